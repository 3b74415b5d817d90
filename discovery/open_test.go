package discovery

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pem := filepath.Join(dir, "x.pem")
	if err := os.WriteFile(pem, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for target, says := range map[string]string{
		"":                                            "static:FILE, consul://HOST:PORT or nacos://HOST:PORT",
		"etcd://a:2379":                               `"etcd" begins with no known kind`,
		"static:":                                     "names no file",
		"static:" + dir + "/missing":                  "no such file",
		"consul://":                                   `"" is not HOST:PORT`,
		"consul://a":                                  `"a" is not HOST:PORT`,
		"consul://a:8500,":                            `"" is not HOST:PORT`,
		"consul://a:8500,b:99999":                     `"b:99999" is not HOST:PORT`,
		"consul://2001:db8::1:8500":                   "is not HOST:PORT",
		"consul://a:8500?tokn-file=x":                 "tokn-file: no such key",
		"consul://127.0.0.1:8500?token=x":             "use token-file",
		"consul://a:8500?ttl=15":                      `"15" is no duration`,
		"consul://a:8500?ttl=0s":                      "less than a second",
		"consul://a:8500?ttl=15s&ttl=16s":             "stated once",
		"consul://a:8500?datacenter=":                 "not be empty",
		"consul://a:8500?tls=yes":                     "true or false",
		"consul://a:8500?ca=" + pem:                   "no certificate in PEM",
		"consul://a:8500?ca=" + dir + "/x":            "no such file",
		"consul://a:8500?cert=" + pem + "&key=" + pem: "cannot be used with its key",
		"consul://a:8500?check=grpc":                  `"grpc" is neither http nor tcp`,
		"consul://a:8500?check=tcp&check-path=/":      "is for check=http alone",
		"consul://a:8500?check-path=/":                "is for check=http alone",
		"consul://a:8500?check=http&check-path=x":     `"x" does not begin with /`,
		"consul://a:8500?%zz":                         "cannot be read",
		// T19: less than a minute would not be honoured.
		"consul://a:8500?deregister-after=30s": "30s is less than Consul's minimum of 1m0s",
		// A token is not for everybody on the way.
		"consul://a:8500?token-file=" + pem:                "plain text",
		"consul://10.0.0.1:8500?token-file=" + pem:         "plain text",
		"consul://127.0.0.1:8500,b:8500?token-file=" + pem: "to b:8500 in plain text",
	} {
		source, err := Open(target, Options{})
		if err == nil || !strings.Contains(err.Error(), says) || source != nil {
			t.Errorf("%s: %v, want %q", target, err, says)
		}
	}
}

func TestOpenConsul(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	for _, target := range []string{
		"a:8500", "a:8500/", "[2001:db8::1]:8500,b:8500?ttl=15s&deregister-after=1m&datacenter=dc2&tls=true&server-name=x",
		"127.0.0.1:8500?token-file=" + token, "localhost:8500?token-file=" + token, "[::1]:8500?token-file=" + token,
		"a:8500?plain-token=true&token-file=" + token, "a:8500?tls=true&token-file=" + token,
	} {
		source, err := Open("consul://"+target, Options{Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		source.Close()
	}
	o, err := parseConsul("a:8500,b:8501", quiet())
	if err != nil || o.ttl != DefaultTTL || o.deregisterAfter != 5*time.Minute || len(o.hosts) != 2 || o.tls != nil {
		t.Errorf("%+v, %v", o, err)
	}
}

// T15: a lease that one slow answer would cost is allowed, not silently.
func TestShortLeaseIsWarnedOf(t *testing.T) {
	t.Parallel()
	for ttl, warned := range map[string]bool{"6s": true, "15s": false} {
		var log bytes.Buffer
		if _, err := parseConsul("a:8500?ttl="+ttl, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), "three renewals") != warned {
			t.Errorf("%s: %s", ttl, log.String())
		}
	}
}

// Two sources of one process share a registry of metrics.
func TestSourcesShareMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for range 2 {
		source, err := Open("consul://a:8500", Options{Registry: reg})
		if err != nil {
			t.Fatal(err)
		}
		source.(*consul).metrics.problem(noLeader)
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	// The other kinds are there from the start, at 0: a rise from nothing is none to Prometheus.
	for _, m := range families[0].GetMetric() {
		want := 0.0
		if m.GetLabel()[0].GetValue() == string(noLeader) {
			want = 2
		}
		if m.GetCounter().GetValue() != want {
			t.Errorf("%v, want %v", m, want)
		}
	}
	if n := len(families[0].GetMetric()); n != 10 {
		t.Errorf("%d kinds are counted, want 10", n)
	}
}
