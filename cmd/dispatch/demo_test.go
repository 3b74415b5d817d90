package main

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// The demo's devices meet every rule of the example that needs no address database,
// come back with their sessions, and are the same at every start.
func TestTheDemosTrafficMeetsEveryRule(t *testing.T) {
	r := start(t, "--demo", "--demo-traffic", "on")
	traffic, again := newDemoTraffic(r.public), newDemoTraffic(r.public)
	for i := range traffic.devices {
		if !slices.Equal(traffic.devices[i].header["X-Device-Id"], again.devices[i].header["X-Device-Id"]) {
			t.Fatal("other devices at the next start")
		}
	}
	for range 2 {
		for i := range traffic.devices {
			if i%4 == 0 || i < 20 {
				if err := traffic.ask(t.Context(), &traffic.devices[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	traffic.client.CloseIdleConnections()
	for _, series := range []string{
		`dispatch_policy_decisions_total\{app="mobile",policy="staff"\}`, `dispatch_policy_decisions_total\{app="mobile",policy="gray-10-2"\}`,
		`dispatch_policy_decisions_total\{app="mobile",policy="home-sh"\}`, `dispatch_policy_decisions_total\{app="mobile",policy="home-hf"\}`,
		`dispatch_policy_decisions_total\{app="corporate",policy="payroll"\}`, `dispatch_policy_decisions_total\{app="corporate",policy="home-hf"\}`,
		`dispatch_decisions_total\{app="mobile",reason="STICKY",region="sh"\}`, `dispatch_decisions_total\{app="mobile",reason="DEFAULT",region="hf"\}`,
	} {
		if n := r.metric(series); n == "" || n == "0" {
			t.Errorf("%s is %q", series, n)
		}
	}
	for _, kind := range []string{"untrusted_origin", "forwarded", "too_many_attrs", "escape"} {
		if n := r.metric(`dispatch_bad_inputs_total\{kind="` + kind + `"\}`); n != "0" {
			t.Errorf("%s inputs of kind %s", n, kind)
		}
	}
}

// Without being asked for anything, a demo has traffic; without the flag it has none.
func TestADemoHasTrafficUnlessItIsOff(t *testing.T) {
	on, off := start(t, "--demo", "--demo-traffic", "on"), start(t, "--demo")
	on.awaitText(`^[1-9]`, func() string { return on.metric(`dispatch_requests_total\{code="200"\}`) })
	if n := off.metric(`dispatch_requests_total\{code="200"\}`); n != "0" && n != "" {
		t.Errorf("a demo without traffic answered %s requests", n)
	}
	// Somebody else on this machine is not believed for that.
	on.route("app=mobile", "X-Device-Id", "d-1", "X-Origin-Region", "hf")
	if n := on.metric(`dispatch_bad_inputs_total\{kind="untrusted_origin"\}`); n != "1" {
		t.Errorf("%s hints of strangers were left out, want 1", n)
	}
}

// One server stands for every host, with a certificate that probes believe and nobody else does.
func TestTheDemosHostsAreThere(t *testing.T) {
	ca, err := newDemoAuthority()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: ca.certificate}
	server.StartTLS()
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "https://")
	for _, host := range []string{"wapabst.a.com.cn", "wapcdst.b.com.cn", "wapabst.a.com.cn"} {
		conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: host, RootCAs: ca.pool(), MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		_ = conn.Close()
	}
	if conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "wapabst.a.com.cn", MinVersion: tls.VersionTLS12}); err == nil {
		_ = conn.Close()
		t.Error("this machine believes the demo's certificates")
	}
	if len(ca.hosts) != 2 {
		t.Errorf("%d certificates for two hosts", len(ca.hosts))
	}
}
