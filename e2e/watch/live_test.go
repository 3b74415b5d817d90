package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/heartbeat"
	"dispatch.example/dispatch/discovery/trace/otlp"
	"dispatch.example/dispatch/internal/testenv"
)

// known are metrics by name with the labels that each has.
type known map[string]map[string]bool

func (k known) add(name string, labels ...string) {
	if k[name] == nil {
		k[name] = map[string]bool{"instance": true, "job": true, "region": true} // those of a target; docs/operate.md
	}
	for _, label := range labels {
		k[name][label] = true
	}
}

// scraped adds what /metrics shows now.
func (k known) scraped(t testing.TB, url string) {
	t.Helper()
	resp, err := http.Get(url)
	must(t, err)
	text, err := io.ReadAll(resp.Body)
	must(t, errors.Join(err, resp.Body.Close()))
	for _, m := range regexp.MustCompile(`(?m)^(dispatch_\w+)(?:\{(.*)\})? `).FindAllStringSubmatch(string(text), -1) {
		k.add(m[1])
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			k.add(m[1], label[1])
		}
	}
}

// described adds what a registry would show; the parts of histograms, too.
func (k known) described(reg *prometheus.Registry) {
	out := make(chan *prometheus.Desc)
	go func() { reg.Describe(out); close(out) }()
	parts := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}`)
	for d := range out {
		m := parts.FindStringSubmatch(d.String())
		labels := strings.Split(m[2], ",")
		k.add(m[1], labels...)
		k.add(m[1]+"_bucket", append(labels, "le")...)
	}
}

// Of what dashboards and alerts name, all is there: metrics and their labels in what
// processes really show, values of labels as words of the source.
func TestEveryMetricIsThere(t *testing.T) {
	t.Parallel()
	all := known{}
	all.add("up")
	liveNodes(t, all)
	callers(t, all)
	words := wordsOfTheSource(t)
	check := func(where, query string) {
		for _, problem := range problems(query, all, words) {
			t.Errorf("%s: %s, in %s", where, problem, query)
		}
	}
	for title, d := range dashboards(t) {
		for _, q := range d.queries() {
			check(title, q)
		}
	}
	for file, rules := range alerts(t) {
		for _, a := range rules {
			check(file+", "+a.Alert, a.Expr)
		}
	}
	// A test that cannot fail shows nothing.
	for query, want := range map[string]string{
		`rate(dispatch_nonsense_total[1m])`:               "nobody has dispatch_nonsense_total",
		`dispatch_fleet_replicas{stat="silent"}`:          "dispatch_fleet_replicas has no label stat",
		`dispatch_fleet_replicas{state="behind|sillent"}`: `state is never "sillent"`,
		`sum by (servic) (dispatch_discovery_ejected)`:    "no metric here has the label servic",
	} {
		if got := strings.Join(problems(query, all, words), "; "); got != want {
			t.Errorf("of %s it says %q, want %q", query, got, want)
		}
	}
}

var (
	selector = regexp.MustCompile(`\b(dispatch_\w+|up)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// problems are what a query names and nobody has.
func problems(query string, all known, words map[string]bool) (list []string) {
	anywhere := map[string]bool{"release": strings.Contains(query, "count_values")}
	for _, m := range selector.FindAllStringSubmatch(query, -1) {
		labels := all[m[1]]
		if labels == nil {
			list = append(list, "nobody has "+m[1])
			continue
		}
		maps.Copy(anywhere, labels)
		for _, one := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !labels[one[1]] {
				list = append(list, fmt.Sprintf("%s has no label %s", m[1], one[1]))
				continue
			}
			for value := range strings.SplitSeq(one[3], "|") {
				if !words[value] && !slices.Contains([]string{"job", "instance", "service", "code"}, one[1]) {
					list = append(list, fmt.Sprintf("%s is never %q", one[1], value))
				}
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(m[1], ", ") {
			if label != "" && !anywhere[label] && !strings.Contains(strings.Join(list, " "), "nobody has") {
				list = append(list, "no metric here has the label "+label)
			}
		}
	}
	return list
}

// wordsOfTheSource are all short literals of the product.
func wordsOfTheSource(t testing.TB) map[string]bool {
	t.Helper()
	words := map[string]bool{}
	literal := regexp.MustCompile(`"(\w+)"`)
	for _, folder := range []string{"admin", "cmd", "discovery", "domain", "fleet", "handler", "policy", "probe", "release", "whitelist"} {
		must(t, filepath.WalkDir(filepath.Join("../..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
				words[m[1]] = true
			}
			return err
		}))
	}
	return words
}

// callers adds the metrics of a service that calls others and is registered, and of
// the directory, as the parts of each register them.
func callers(t testing.TB, all known) {
	t.Helper()
	reg := prometheus.NewRegistry()
	source, err := discovery.Open("static:../../examples/inner/registry.yaml", discovery.Options{Registry: reg})
	must(t, err)
	t.Cleanup(source.Close)
	home := discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod", Version: "v1"}
	calls, err := caller.New(caller.Options{Service: "shop", Self: home, Registry: source, Services: []string{"order-core"}, Metrics: reg})
	must(t, err)
	_, err = guard.New(calls, guard.Options{Metrics: reg})
	must(t, err)
	_, err = heartbeat.New(heartbeat.Options{Control: []string{"http://127.0.0.1:8083"}, Token: "t", Metrics: reg,
		Instances: []discovery.Instance{{ID: "shop-1", Service: "shop", Address: discovery.Address{Host: "127.0.0.1", Port: 9000}, Coordinates: home, Started: time.Now()}}})
	must(t, err)
	_, err = directory.New(directory.Options{Region: home.Region, Metrics: reg, Registries: []directory.Registry{{Name: "file", Source: source}}})
	must(t, err)
	_, err = otlp.New(otlp.Options{URL: "http://127.0.0.1:4318", Service: "shop", Registry: reg})
	must(t, err)
	all.described(reg)
}

// liveNodes adds what a control node shows, an edge that follows it, and one that
// refuses its releases.
func liveNodes(t testing.TB, all known) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dispatch-watch-") // not t.TempDir: a socket's path may have 107 bytes only
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"dispatch", "dispatchctl"} {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), "../../cmd/"+name).CombinedOutput()
		if err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	program, data := filepath.Join(dir, "dispatch"), filepath.Join(dir, "control")
	addr := make([]string, 8)
	for i := range addr {
		addr[i], err = testenv.FreeAddr()
		must(t, err)
	}
	control := begin(t, &testenv.Control{Name: "control", Log: filepath.Join(dir, "control.log"), Up: testenv.Answers("http://" + addr[1] + "/api/v1/openapi.json"),
		Args: []string{program, "serve", "--demo", "--data", data, "--listen", addr[0], "--admin-listen", addr[1], "--ops-listen", addr[2], "--fleet-listen", addr[3]}})
	token := ""
	within(t, func() error {
		token = regexp.MustCompile(`dsp_\w+`).FindString(control.Tail())
		if token == "" {
			return errors.New("the demo prints no token")
		}
		return nil
	})
	must(t, os.WriteFile(filepath.Join(dir, "plan.json"), []byte(`{"region":"hf","steps":[1000],"bake":"1m","sample":1,"signals":[{"kind":"probe"}]}`), 0o600))
	plan := exec.CommandContext(t.Context(), filepath.Join(dir, "dispatchctl"), "gray", "plan", "mobile/gray-10-2", filepath.Join(dir, "plan.json"), "--reason", "grow", "--confirm", "gray-10-2")
	plan.Env = append(os.Environ(), "DISPATCH_SERVER=http://"+addr[1], "DISPATCH_TOKEN="+token)
	if out, err := plan.CombinedOutput(); err != nil {
		t.Fatalf("plan a gray: %v\n%s", err, out)
	}
	trust, err := exec.CommandContext(t.Context(), program, "keys", "export", "--publisher-key-file", data+"/keys/publisher.jwks", "--record-key-file", data+"/keys/record.jwks").Output()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "trust.jwks"), trust, 0o600))
	for i, deployment := range []string{"dispatch", "another"} {
		begin(t, &testenv.Control{Name: "edge-" + deployment, Log: filepath.Join(dir, deployment+".log"), Up: testenv.Answers("http://" + addr[5+2*i] + "/healthz"),
			Args: []string{program, "serve", "--role", "edge", "--data", filepath.Join(dir, "edge-"+deployment), "--deployment", deployment, "--allowed-suffixes", "a.com.cn,b.com.cn,bank.example",
				"--listen", addr[4+2*i], "--ops-listen", addr[5+2*i], "--control", "http://" + addr[3], "--fleet-token-file", data + "/keys/fleet.token",
				"--trust-keys", filepath.Join(dir, "trust.jwks"), "--session-key-file", data + "/keys/session.jwks", "--list-key-file", data + "/keys/list.jwks"}})
	}
	within(t, func() error {
		for _, ops := range []string{addr[2], addr[5], addr[7]} {
			all.scraped(t, "http://"+ops+"/metrics")
		}
		for _, late := range []string{"dispatch_release_refusals_total", "dispatch_gray_state", "dispatch_source_up", "dispatch_fleet_requests_total", "dispatch_probe_up", "dispatch_last_drill_timestamp_seconds"} {
			if all[late] == nil {
				return fmt.Errorf("no node shows %s", late)
			}
		}
		return nil
	})
}

// begin starts a process that ends with the test.
func begin(t testing.TB, c *testenv.Control) *testenv.Control {
	t.Helper()
	must(t, c.Start(t.Context()))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s printed\n%s", c.Name, c.Tail())
		}
		if err := c.Stop(15 * time.Second); err != nil {
			t.Error(err)
		}
	})
	return c
}

// within asks until all is well.
func within(t testing.TB, well func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for err := well(); err != nil; err = well() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(cmp.Or(err, ctx.Err()))
		}
	}
}
