package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// speak sends bytes on a connection of its own and returns all that comes back
// before the server ends it.
func speak(t *testing.T, url, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, text) // the server may refuse before it has read all
	all, _ := io.ReadAll(c)        // to the end of the connection, or of the deadline
	return string(all)
}

// SEC27 on the admin listener: it answers to its own names alone, whatever else a
// request says about hosts and methods, and two readers of one connection cannot
// take it apart differently.
func TestSEC27AdminListenerAnswersToItsNames(t *testing.T) {
	r := start(t, "--demo")
	const end = "\r\nConnection: close\r\n\r\n"
	token := "\r\nAuthorization: Bearer " + r.token
	json := token + "\r\nContent-Type: application/json"
	const smuggled = "GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, tc := range []struct {
		name, raw string
		status    int
		want      string
	}{
		{"its address", "GET /api/v1/me HTTP/1.1\r\nHost: " + strings.TrimPrefix(r.admin, "http://") + token + end, 200, `"administrator"`},
		{"through a tunnel", "GET /api/v1/me HTTP/1.1\r\nHost: LocalHost:9999" + token + end, 200, `"administrator"`},
		{"loopback of version 6", "GET /api/v1/me HTTP/1.1\r\nHost: [::1]:8081" + token + end, 200, `"administrator"`},
		{"another name", "GET /api/v1/me HTTP/1.1\r\nHost: evil.example" + token + end, 421, `"hint":"use the address of --admin-listen`},
		{"a name that begins like it", "GET /api/v1/me HTTP/1.1\r\nHost: localhost.evil.example" + token + end, 421, `"code":"unknown_host"`},
		{"an address that begins like it", "GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80" + token + end, 421, `"code":"unknown_host"`},
		{"another address", "GET /api/v1/me HTTP/1.1\r\nHost: 192.0.2.1" + token + end, 421, `"code":"unknown_host"`},
		{"another name, nothing to find there", "GET /favicon.ico HTTP/1.1\r\nHost: evil.example" + end, 421, `"code":"unknown_host"`},
		{"an empty name", "GET /api/v1/me HTTP/1.1\r\nHost: " + token + end, 421, `"code":"unknown_host"`},
		{"no name", "GET /api/v1/me HTTP/1.0" + token + end, 421, `"code":"unknown_host"`},
		{"two names", "GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nHost: evil.example" + token + end, 400, ""},
		{"absolute form of another name", "GET http://evil.example/api/v1/me HTTP/1.1\r\nHost: localhost" + token + end, 421, `"code":"unknown_host"`},
		{"absolute form beside another name", "GET http://localhost/api/v1/me HTTP/1.1\r\nHost: evil.example" + token + end, 200, `"administrator"`},
		{"another name of a proxy", "GET /api/v1/me HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost" + token + end, 421, `"code":"unknown_host"`},
		{"length and chunks", "POST /api/v1/explain HTTP/1.1\r\nHost: localhost" + json + "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 400, ""},
		{"two lengths", "POST /api/v1/explain HTTP/1.1\r\nHost: localhost" + json + "\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}" + smuggled, 400, ""},
		{"GET that says DELETE", "GET /api/v1/tokens/1 HTTP/1.1\r\nHost: localhost\r\nX-HTTP-Method-Override: DELETE\r\nX-HTTP-Method: DELETE\r\nX-Method-Override: DELETE" + token + end, 405, ""},
		{"the token that was not revoked", "GET /api/v1/me HTTP/1.1\r\nHost: localhost" + token + end, 200, `"administrator"`},
	} {
		text := speak(t, r.admin, tc.raw)
		version, rest, _ := strings.Cut(text, " ")
		if !strings.HasPrefix(version, "HTTP/1.") || !strings.HasPrefix(rest, fmt.Sprint(tc.status, " ")) || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %.500q, want %d %s", tc.name, text, tc.status, tc.want)
		}
		if n := strings.Count(text, "HTTP/1."); n != 1 {
			t.Errorf("%s: %d answers: %q", tc.name, n, text)
		}
	}
}

// SEC27: --admin-hosts takes the place of the listener's own names, and no name
// that a request brings comes back in an answer.
func TestSEC27NoLinkCarriesAHost(t *testing.T) {
	r := start(t, "--demo", "--admin-hosts", "console.bank.example,192.0.2.7")
	if text := speak(t, r.admin, "GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); !strings.Contains(text, " 421 ") {
		t.Errorf("a name that the flag does not give: %.200q", text)
	}
	if text := speak(t, r.admin, "GET /api/v1/me HTTP/1.1\r\nHost: 192.0.2.7:8081\r\nConnection: close\r\n\r\n"); !strings.Contains(text, " 401 ") {
		t.Errorf("an address that the flag gives: %.200q", text)
	}
	for _, path := range []string{"/", "/api", "/api/v1/me", "/api/v1/me/", "//api/v1/me", "//evil.example/api/v1/me", "/api/v1/../v1/me", "/api/v1/openapi.json", "/api/v1/fleet", "/api/v1/releases/1"} {
		text := speak(t, r.admin, "GET "+path+" HTTP/1.1\r\nHost: CONSOLE.bank.example\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: gopher\r\n"+
			"Forwarded: host=evil.example\r\nX-Original-URL: /evil.example\r\nAuthorization: Bearer "+r.token+"\r\nConnection: close\r\n\r\n")
		if lower := strings.ToLower(text); !strings.HasPrefix(text, "HTTP/1.1 ") || strings.Contains(lower, "console.bank.example") || strings.Contains(lower, "evil.example") || strings.Contains(lower, "gopher") {
			t.Errorf("GET %s answers with a name that the request brought: %.500q", path, text)
		}
	}
}

// SEC27 on the fleet listener, whose callers prove themselves and are no
// browsers: nothing is smuggled past the token of the first request.
func TestSEC27FleetListenerReadsOneRequest(t *testing.T) {
	data, listen := t.TempDir(), free(t)
	start(t, "--demo", "--data", data, "--fleet-listen", listen)
	const watch, smuggled = "POST /fleet/v1/watch?wait=0s HTTP/1.1\r\n", "GET /fleet/v1/blobs/x HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, tc := range map[string]struct {
		raw    string
		status int
	}{
		"two names":         {watch + "Host: a\r\nHost: b\r\n\r\n", 400},
		"two lengths":       {watch + "Host: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}" + smuggled, 400},
		"length and chunks": {watch + "Host: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 401},
		"says another host": {watch + "Host: 127.0.0.1\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", 401},
	} {
		text := speak(t, listen, tc.raw)
		if !strings.HasPrefix(text, fmt.Sprintf("HTTP/1.1 %d ", tc.status)) || strings.Count(text, "HTTP/1.") != 1 {
			t.Errorf("%s: %.300q, want one answer of %d", name, text, tc.status)
		}
	}
}

func TestAdminHostsAreNames(t *testing.T) {
	for name, ok := range map[string]bool{"console.bank.example": true, "10.1.0.7": true, "::1": true, "control": true,
		"console.bank.example:8081": false, "https://console.bank.example": false, "*.bank.example": false, "a/b": false, "a@b": false, "": false} {
		if problem := hostProblem(name); (problem == "") != ok {
			t.Errorf("%q: %q", name, problem)
		}
	}
	exit, _, stderr := command(t, "serve", "--allowed-suffixes", "bank.example", "--admin-hosts", "*.bank.example")
	if exit != 2 || !strings.Contains(stderr, `--admin-hosts: "*.bank.example" must be a name or an address, without`) {
		t.Errorf("exit %d: %s", exit, stderr)
	}
}

// A listener for everybody answers to this machine's addresses too.
func TestNamesOfAListenerForEverybody(t *testing.T) {
	names := newHostNames(nil, &net.TCPAddr{IP: net.IPv4zero, Port: 8081}, ":8081")
	own, err := net.InterfaceAddrs()
	if err != nil || len(own) == 0 {
		t.Fatal(err)
	}
	for _, addr := range own {
		if ip := addr.(*net.IPNet).IP.String(); !names[plainHost(ip)] {
			t.Errorf("%s is missing from %v", ip, names)
		}
	}
	if names["0.0.0.0"] || names["192.0.2.1"] {
		t.Errorf("too many names: %v", names)
	}
}
