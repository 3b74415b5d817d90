package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/signed"
)

// Nobody starts with a secret that others know, and a secret that is in use shows
// nowhere: not on the screen, in the log, in an error, or on the ops listener.
func TestSEC28SecretsAreStrongAndUnseen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if exit, _, stderr := command(t, "keys", "new", dir); exit != 0 {
		t.Fatal(stderr)
	}
	for _, c := range []struct{ flag, file, content string }{
		{"--fleet-token-file", "weak", "changeme"},
		{"--fleet-token-file", "weak", strings.Repeat("changeme", 8)},
		{"--fleet-token-file", "weak", "c2hvcnQ"},
		{"--session-key-file", "weak", `{"keys":[{"kty":"oct","kid":"session-x","k":"Y2hhbmdlbWUtY2hhbmdlbWUtY2hhbmdlbWUtMTIzNDU"}]}`},
		{"--list-key-file", "weak", `{"keys":[{"kty":"oct","kid":"list-x","k":"AAAAAAAAAAAAAAAAAAAAAA"}]}`},
		{"--publisher-key-file", "weak", `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"x","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}]}`},
	} {
		path := filepath.Join(t.TempDir(), c.file)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		exit, stderr := briefly(t, "serve", "--data", t.TempDir(), "--allowed-suffixes", "bank.example", c.flag, path,
			"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--fleet-listen", "127.0.0.1:0")
		if exit != 1 || !strings.Contains(stderr, c.flag) || !strings.Contains(stderr, "unusable key") {
			t.Errorf("%s with %.20s: exit %d: %s", c.flag, c.content, exit, stderr)
		}
		if strings.Contains(c.content, "d\":\"") && strings.Contains(stderr, "nWGxne") {
			t.Errorf("the error shows the secret: %s", stderr)
		}
	}

	const inDSN, inURL, inEnv = "dsn-hunter2-aaaa", "url-hunter2-bbbb", "env-hunter2-cccc"
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	data := t.TempDir()
	start(t, "--demo", "--data", data).stop()
	token, err := signed.ReadTokens(filepath.Join(data, "keys/fleet.token"))
	if err != nil {
		t.Fatal(err)
	}
	closed := free(t)
	t.Setenv(redisPassword, inEnv)
	r := startAlone(t, "--data", data, "--allowed-suffixes", "a.com.cn,b.com.cn,bank.example", "--db", "mysql:u:"+inDSN+"@tcp("+mute.Addr().String()+")/d",
		"--redis", "redis://:"+inURL+"@"+closed+"/0", "--session-map", "redis", "--control", "http://"+closed, "--log-level", "debug")
	r.awaitReady(`sources: [\s\S]*redis`)
	r.route("app=mobile", "X-Device-Id", "d-1001")
	seen := r.log.String()
	for _, url := range []string{"/readyz", "/metrics", "/healthz", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2"} {
		_, body := r.get(r.ops + url)
		seen += string(body)
	}
	for _, secret := range []string{inDSN, inURL, inEnv, token[0]} {
		if i := strings.Index(seen, secret); i >= 0 {
			t.Errorf("%s is shown: …%.200s", secret, seen[max(0, i-150):])
		}
	}
	for _, url := range []string{"/debug/pprof/", "/debug/pprof/goroutine", "/metrics"} {
		if status, _ := r.get(r.public + url); status != http.StatusNotFound {
			t.Errorf("the public listener answers %s with %d", url, status)
		}
	}
	if status, _ := r.get(r.ops + "/debug/pprof/cmdline"); status != http.StatusNotFound {
		t.Errorf("the ops listener shows the command line: %d", status)
	}
}
