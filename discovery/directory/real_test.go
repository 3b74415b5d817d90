package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/testenv"
)

// B19, B22 with real parts: a file and a Consul agent make one list; when the agent is
// stopped, the list stays, and pages and callers are told. When it starts again,
// without what it knew, nobody sees an empty list.
func TestFileAndConsul(t *testing.T) {
	agent := testenv.NewConsul(t, "")
	both, only, byHand := listening(t), listening(t), listening(t)
	file := filepath.Join(t.TempDir(), "instances.yaml")
	line := "  - {service: orders, address: %q, cluster: production, region: cn-hangzhou, env: prod, version: v1}\n"
	if err := os.WriteFile(file, fmt.Appendf(nil, "instances:\n"+line+line, both.String(), byHand.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	consul := opened(t, "consul://"+agent.Addr)
	registering(t, consul, discovery.Instance{Service: "orders", Address: both, Coordinates: home()}, discovery.Instance{Service: "orders", Address: only, Coordinates: home()})
	registry := prometheus.NewRegistry()
	d, err := New(Options{Region: region, Metrics: registry, Registries: []Registry{{"hand", opened(t, "static:"+file)}, {"main", consul}}})
	if err != nil {
		t.Fatal(err)
	}
	end := running(t, d)
	defer end()
	s := serve(t, d, nil)
	server := httptest.NewServer(s)
	defer server.Close()
	defer s.Stop()

	got := asking(t, server.URL, wire.Ask{})
	if !got.Full || got.Partial != nil || listed(got) != sorted(both, only, byHand) {
		t.Fatalf("first answer: %+v", got)
	}
	v, _ := d.View()
	for _, in := range v.Services[0].Instances {
		want := map[discovery.Address]string{both: "hand [hand main]", only: "main [main]", byHand: "hand [hand]"}[in.Address]
		if fmt.Sprint(in.Source, " ", in.Sources) != want {
			t.Errorf("%s has %s %v, want %s", in.Address, in.Source, in.Sources, want)
		}
	}
	agent.Stop(t)
	away := awaited(t, d, func(v *View) bool { return !v.Registries[1].OK })
	if !away.Registries[0].OK || away.Registries[1].Problem == "" || len(away.Services[0].Instances) != 3 {
		t.Errorf("view %+v", away)
	}
	got = asking(t, server.URL, wire.Ask{})
	if listed(got) != sorted(both, only, byHand) || got.Partial["main"] == "" || len(got.Partial) != 1 {
		t.Errorf("while it is away: %+v", got)
	}
	if gauge := value(t, registry, "dispatch_directory_registry_away", "main"); gauge != 1 {
		t.Errorf("dispatch_directory_registry_away is %g", gauge)
	}
	agent.Start(t)
	back := awaited(t, d, func(v *View) bool {
		if len(v.Services) == 0 || len(v.Services[0].Instances) < 2 {
			t.Error("a list was emptied by a restart")
		}
		return v.Registries[1].OK && len(v.Services[0].Instances) == 3
	})
	if len(back.Suspicious) != 0 {
		t.Errorf("suspicious: %+v", back.Suspicious)
	}
}

// C09 and the figure of this layer: a change in a real Consul is with a waiting caller
// within 300 ms.
func TestConsulChangeReachesCallers(t *testing.T) {
	address := testenv.Consul(t)
	client, err := api.NewClient(&api.Config{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	name := "reach-" + fmt.Sprint(os.Getpid())
	put := func(weight int) {
		t.Helper()
		if err := client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: name, Name: name, Address: "10.0.0.1", Port: 80,
			Meta: map[string]string{"cluster": "c", "region": region, "env": "e", "version": "v", "weight": fmt.Sprint(weight)}}); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	d, err := New(Options{Region: region, Registries: []Registry{{"main", opened(t, "consul://"+address)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer running(t, d)()
	s := serve(t, d, nil)
	server := httptest.NewServer(s)
	defer server.Close()
	defer s.Stop()
	got := asking(t, server.URL, wire.Ask{Services: []string{name}})
	var took []time.Duration
	for i := 1; i <= 40/slowdown; i++ {
		var changed time.Time
		timer := time.AfterFunc(200*time.Millisecond, func() { changed = time.Now(); put(i) })
		for !slices.ContainsFunc(got.Services[name].Instances, func(in discovery.Instance) bool { return in.Share() == i }) {
			got = asking(t, server.URL, after(got, name))
		}
		took = append(took, time.Since(changed))
		timer.Stop()
	}
	slices.Sort(took)
	t.Logf("%d changes from Consul to a caller: p50 %s, p95 %s, maximum %s", len(took), took[len(took)/2], took[len(took)*95/100], took[len(took)-1])
	if p95 := took[len(took)*95/100]; p95 > 300*slowdown*time.Millisecond {
		t.Errorf("p95 is %s, want 300 ms", p95)
	}
}

func opened(t *testing.T, target string) discovery.Catalog {
	t.Helper()
	source, err := discovery.Open(target, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return source
}

func listening(t *testing.T) discovery.Address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	a, err := discovery.ParseAddress(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// registering enters instances and keeps them until the test ends.
func registering(t *testing.T, source discovery.Source, instances ...discovery.Instance) {
	t.Helper()
	reg, err := discovery.Register(t.Context(), source, discovery.RegisterOptions{Force: true, Linger: -1}, instances...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- reg.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done // the agent may be gone already
	})
}

// awaited is the first view that is as wanted.
func awaited(t *testing.T, d *Directory, want func(*View) bool) *View {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		v, changed := d.View()
		if want(v) {
			return v
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("after 30 s the view is %s", plain(v))
		}
	}
}

// asking sends an Ask over HTTP.
func asking(t *testing.T, url string, a wire.Ask) (got wire.Tables) {
	t.Helper()
	a.Caller, a.Home = "c1", home()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // leaves no goroutine behind
	resp, err := client.Post(url+wire.TablesPath, "application/json", bytes.NewReader(plain(a)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
	}
	return got
}

// listed are the addresses of orders in an answer.
func listed(got wire.Tables) string {
	var all []discovery.Address
	for _, in := range got.Services["orders"].Instances {
		all = append(all, in.Address)
	}
	return sorted(all...)
}

func sorted(all ...discovery.Address) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}
