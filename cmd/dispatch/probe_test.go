package main

import (
	"net/http"
	"strings"
	"testing"
)

// A control node probes every host of its release and tells the database; without a
// DNS server nobody is up, and the node says why.
func TestAControlNodeProbesItsHosts(t *testing.T) {
	r := start(t, "--data", t.TempDir(), "--allowed-suffixes", "a.com.cn,b.com.cn,bank.example", "--bootstrap", "../../examples/mobile-bank.yaml",
		"--four-eyes", "off", "--probes", "on", "--probe-dns", "127.0.0.1:1", "--probe-every", "1s")
	r.awaitText(`"wapabst2\.a\.com\.cn":\{"host":"wapabst2\.a\.com\.cn","state":"unknown".*"problem":"dns: `, func() string {
		_, body := r.get(r.admin+"/api/v1/probes", "Authorization", "Bearer "+r.token)
		return string(body)
	})
	r.log.await(t, `"msg":"most hosts fail at once: this prober is distrusted`, nil)
	if got := r.metric("dispatch_probe_distrusted"); got != "1" {
		t.Errorf("dispatch_probe_distrusted is %q", got)
	}
	status, body := r.post("/emergency", swapToSpare)
	if status != http.StatusConflict || !strings.Contains(string(body), "probe_fresh") {
		t.Errorf("a swap to a host that nobody sees: %d %s", status, body)
	}
}

// A demo, and who says so, asks nobody.
func TestProbesAreOffWhereNobodyShouldBeAsked(t *testing.T) {
	for _, args := range [][]string{{"--demo"}, {"--demo", "--probes", "off"}} {
		r := start(t, args...)
		if _, body := r.get(r.admin+"/api/v1/probes", "Authorization", "Bearer "+r.token); !strings.Contains(string(body), `"on":false`) {
			t.Errorf("%q: %s", args, body)
		}
	}
	exit, _, stderr := command(t, "serve", "--allowed-suffixes", "bank.example", "--probe-every", "1ms", "--probe-port", "0", "--probe-path", "x", "--probe-allow", "nonsense")
	for _, flag := range []string{"--probe-every", "--probe-port", "--probe-path", "--probe-allow"} {
		if exit == 0 || !strings.Contains(stderr, flag) {
			t.Errorf("exit %d, and %s is not named in %s", exit, flag, stderr)
		}
	}
}
