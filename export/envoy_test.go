package export

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routes3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	xds "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
)

var update = flag.Bool("update", false, "write the golden files anew")

const hangzhou = "cn-hangzhou"

// sampleRules is the folder of examples/rules.
func sampleRules(t *testing.T) rules.Set {
	t.Helper()
	var files []rules.File
	names, err := filepath.Glob("../examples/rules/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no sample rules: %v", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, rules.File{Name: filepath.Base(name), Text: string(text)})
	}
	set, err := rules.Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// at is an instance of order-core in production.
func at(id, address, version string, weight int) directory.Instance {
	in := directory.Instance{Instance: discovery.Instance{ID: id, Service: "order-core", Weight: &weight,
		Coordinates: discovery.Coordinates{Cluster: "production", Region: hangzhou, Env: "prod", Version: version}}}
	if err := in.Address.UnmarshalText([]byte(address)); err != nil {
		panic(err)
	}
	return in
}

// sample is order-core as the sample rule means it, with instances of other
// coordinates that must not appear.
func sample(t *testing.T) Mesh {
	pre, old := at("o-9", "10.0.9.9:8080", "v2.3.1", 100), at("o-8", "10.0.9.8:8080", "v2.2.0", 100)
	pre.Env = "pre"
	gone := at("o-5", "10.0.1.5:8080", "v2.3.1", 100)
	gone.Scale = &route.Scale{Thousandths: 0, Why: route.Isolated}
	half := at("o-4", "10.0.1.4:9090", "v2.3.0", 100)
	half.Scale = &route.Scale{Thousandths: 500, Why: route.Hot}
	return Mesh{Region: hangzhou, Number: 7, Set: sampleRules(t), Service: "order-core", Env: "prod",
		Services: []directory.Service{{Name: "order-core", Instances: []directory.Instance{
			at("o-2", "10.0.1.2:8080", "v2.3.1", 50), at("o-1", "10.0.1.1:8080", "v2.3.1", 100), at("o-3", "10.0.1.3:8080", "v2.3.0", 100), half, gone, pre, old}}}}
}

// A56: the sample rule as Envoy has it, to the byte. protojson adds blanks by chance
// to each build, so equal bytes of one process would show nothing.
func TestEnvoyGolden(t *testing.T) {
	out, err := Envoy(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range out.Files {
		names = append(names, f.Name)
		path := filepath.Join("testdata", "envoy", f.Name)
		if *update {
			if err := os.WriteFile(path, []byte(f.Text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if f.Text != string(want) {
			t.Errorf("%s is\n%s\nwant\n%s\nif the change is meant: go test ./export -run Golden -update", f.Name, f.Text, want)
		}
	}
	if !slices.Equal(names, []string{"rds-prod.yaml", "cds.yaml"}) {
		t.Errorf("the files are %v", names)
	}
}

// What Envoy is told is what callers do.
func TestEnvoyHasTheNumbersOfCallers(t *testing.T) {
	t.Parallel()
	out, err := Envoy(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	hosts, clusters := configured(t, out)
	for _, r := range hosts["prod order-core"].Routes {
		a := r.GetRoute()
		if r.Match.Grpc != nil { // streams among them, which have no deadline
			if own := a.GetMaxStreamDuration().GetGrpcTimeoutHeaderMax(); a.Timeout == nil || a.Timeout.AsDuration() != 0 || own == nil || own.AsDuration() != 0 {
				t.Errorf("gRPC ends after %v, or %v of its own", a.Timeout, own)
			}
			continue
		}
		if a.Timeout.AsDuration() != guard.DefaultDeadline || a.RetryPolicy.NumRetries.Value != guard.DefaultRetries {
			t.Errorf("a call ends after %s and has %d retries", a.Timeout.AsDuration(), a.RetryPolicy.NumRetries.Value)
		}
	}
	c := clusters["order-core/prod/v2.3.1"]
	if c.ConnectTimeout.AsDuration() != guard.DialLimit {
		t.Errorf("a connection may take %s", c.ConnectTimeout.AsDuration())
	}
	const more = 1_000_000 // than one Envoy has under way; callers have no limit
	if l := c.CircuitBreakers.Thresholds[0]; l.GetMaxConnections().GetValue() < more || l.GetMaxPendingRequests().GetValue() < more || l.GetMaxRequests().GetValue() < more {
		t.Errorf("limits of Envoy stand: %v", l)
	}
	if first := hosts["prod order-core"].Routes[0]; first.Match.Grpc == nil || first.GetRoute().RetryPolicy.RetryOn != "connect-failure,refused-stream" {
		t.Errorf("the first route is %v", first)
	}
}

// read gives a YAML text to protojson, as Envoy does, and refuses what the message
// does not know.
func read(t *testing.T, text string, into proto.Message) {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(raw, into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if err := into.(checked).ValidateAll(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// configured are the virtual hosts and clusters of an export, by name, as Envoy reads them.
func configured(t *testing.T, out Export) (hosts map[string]*routes3.VirtualHost, clusters map[string]*cluster.Cluster) {
	t.Helper()
	hosts, clusters = map[string]*routes3.VirtualHost{}, map[string]*cluster.Cluster{}
	for _, f := range out.Files {
		var answer xds.DiscoveryResponse
		read(t, f.Text, &answer)
		for _, packed := range answer.Resources {
			m, err := packed.UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			if err := m.(checked).ValidateAll(); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
			switch m := m.(type) {
			case *routes3.RouteConfiguration:
				for _, h := range m.VirtualHosts {
					hosts[strings.TrimPrefix(m.Name, "dispatch-")+" "+h.Name] = h
				}
			case *cluster.Cluster:
				clusters[m.Name] = m
			}
		}
	}
	return hosts, clusters
}

// weights are the parts of a host's versions; every route has the same.
func weights(t *testing.T, h *routes3.VirtualHost) map[string]uint32 {
	t.Helper()
	parts := map[string]uint32{}
	for _, r := range h.Routes {
		for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
			if before, known := parts[w.Name]; known && before != w.Weight.Value {
				t.Errorf("routes of %s differ about %s", h.Name, w.Name)
			}
			parts[w.Name] = w.Weight.Value
		}
	}
	return parts
}

func TestEnvoyReadsWhatTheRuleSays(t *testing.T) {
	out, err := Envoy(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	hosts, clusters := configured(t, out)
	h := hosts["prod order-core"]
	if h == nil || len(hosts) != 1 || !slices.Equal(h.Domains, []string{"order-core", "order-core:8080", "order-core:9090"}) {
		t.Fatalf("hosts are %v", hosts)
	}
	if got := weights(t, h); len(got) != 2 || got["order-core/prod/v2.3.1"] != 70 || got["order-core/prod/v2.3.0"] != 30 {
		t.Errorf("the parts are %v", got)
	}
	takes := map[string]uint32{}
	for name, c := range clusters {
		for _, e := range c.LoadAssignment.Endpoints[0].LbEndpoints {
			takes[strings.TrimPrefix(name, "order-core/prod/")+" "+e.GetEndpoint().Address.GetSocketAddress().Address] = e.LoadBalancingWeight.Value
		}
	}
	if len(takes) != 4 || takes["v2.3.1 10.0.1.1"] != 100 || takes["v2.3.1 10.0.1.2"] != 50 || takes["v2.3.0 10.0.1.3"] != 100 || takes["v2.3.0 10.0.1.4"] != 50 {
		t.Errorf("the instances are %v", takes)
	}
	if notes := strings.Join(out.Notes, "\n"); !strings.Contains(notes, "o-5 at 10.0.1.5:8080") || !strings.Contains(notes, "target-load > 80") {
		t.Errorf("the notes are\n%s", notes)
	}
}

func TestEnvoyOfRulesThatLackInstances(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Mesh)
		parts  map[string]uint32
		note   string
		none   bool // answers 503
	}{
		"the main version is gone": {func(m *Mesh) { m.Services[0].Instances = m.Services[0].Instances[2:4] },
			map[string]uint32{"order-core/prod/v2.3.0": 30}, "v2.3.1: no instance takes calls, so its part of 70", false},
		"both are gone":         {func(m *Mesh) { m.Services[0].Instances = nil }, nil, "each is answered with 503", true},
		"nobody knows it":       {func(m *Mesh) { m.Services = nil }, nil, "each is answered with 503", true},
		"a version has no part": {func(m *Mesh) { m.Set.Rules[0].Strategy.Weight = 0 }, map[string]uint32{"order-core/prod/v2.3.0": 30}, "a condition", false},
		"neither has a part":    {func(m *Mesh) { m.Set.Rules[0].Strategy.Weight, m.Set.Rules[0].Fallback.Weight = 0, 0 }, nil, "no version takes calls", true},
		"a new version grows": {func(m *Mesh) {
			m.Services[0].Instances = append(m.Services[0].Instances, at("o-7", "10.0.1.7:8080", "v2.4.0", 100))
			m.Set.Grays = []rules.Gray{{Service: "order-core", Env: "prod", Version: "v2.4.0", Share: 20, Steps: rules.DefaultSteps(), ByKey: true, By: "li"}}
		}, map[string]uint32{"order-core/prod/v2.4.0": 20, "order-core/prod/v2.3.1": 80}, "v2.4.0 takes 20 %", false},
		"the switch is thrown": {func(m *Mesh) { m.Set.Direct = true },
			map[string]uint32{"order-core/prod/v2.3.1": 70, "order-core/prod/v2.3.0": 30}, "kill switch is thrown", false},
		"an id that ends a comment": {func(m *Mesh) { m.Services[0].Instances[4].ID = "x\nresources: []\u2028a: b" },
			map[string]uint32{"order-core/prod/v2.3.1": 70, "order-core/prod/v2.3.0": 30}, "takes no calls and is left out", false},
		"a name instead of an address": {func(m *Mesh) { m.Services[0].Instances[0].Address.Host = "order-2.internal" },
			map[string]uint32{"order-core/prod/v2.3.1": 70, "order-core/prod/v2.3.0": 30}, "a condition", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := sample(t)
			m.Set.Rules = slices.Clone(m.Set.For("order-core", "prod"))
			f := *m.Set.Rules[0].Fallback
			m.Set.Rules[0].Fallback = &f
			c.change(&m)
			out, err := Envoy(m)
			if err != nil {
				t.Fatal(err)
			}
			hosts, clusters := configured(t, out)
			h := hosts["prod order-core"]
			if h == nil {
				t.Fatalf("hosts are %v", hosts)
			}
			got := weights(t, h)
			if len(got) != len(c.parts) {
				t.Errorf("parts %v, want %v", got, c.parts)
			}
			for version, weight := range c.parts {
				if got[version] != weight || clusters[version] == nil {
					t.Errorf("parts %v, want %v", got, c.parts)
				}
			}
			if none := h.Routes[0].GetDirectResponse(); c.none != (none.GetStatus() == 503) {
				t.Errorf("answers %v", none)
			}
			if notes := strings.Join(out.Notes, "\n"); !strings.Contains(notes, c.note) {
				t.Errorf("no note has %q:\n%s", c.note, notes)
			}
			if main := clusters["order-core/prod/v2.3.1"]; name == "a name instead of an address" && main.GetType() != cluster.Cluster_STRICT_DNS {
				t.Errorf("the cluster is %v", main.GetType())
			}
		})
	}
}

// All sample rules: one file of routes for each environment, as a name may be in two.
func TestEnvoyOfAllRules(t *testing.T) {
	m := sample(t)
	m.Service, m.Env = "", ""
	want := len(m.Set.Rules) // one for each name in an environment
	twin := m.Set.For("order-core", "prod")[0]
	twin.Service = "Order-Core"
	shadowed := m.Set.For("pay-core", "prod")[0]
	shadowed.Strategy.Version = "never"
	m.Set.Rules = append(append(slices.Clone(m.Set.Rules[:3]), shadowed), append(slices.Clone(m.Set.Rules[3:]), twin)...)
	out, err := Envoy(m)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range out.Files {
		names = append(names, f.Name)
	}
	hosts, _ := configured(t, out)
	if !slices.Equal(names, []string{"rds-prod.yaml", "rds-test.yaml", "cds.yaml"}) || len(hosts) != want || hosts["test order-core"] == nil || hosts["prod pay-ledger.rpc"] == nil {
		t.Errorf("files %v, hosts %v", names, hosts)
	}
	if !strings.Contains(strings.Join(out.Notes, "\n"), "Envoy cannot tell it from order-core") {
		t.Errorf("the notes are %q", out.Notes)
	}
}

// The bootstrap of the manual is one that Envoy's own types accept, and names files
// and a route configuration that an export has.
func TestEnvoyBootstrapOfTheManual(t *testing.T) {
	manual, err := os.ReadFile("../docs/inner-layer.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(# envoy.yaml\n.*?)```").FindSubmatch(manual)
	if found == nil {
		t.Fatal("docs/inner-layer.md has no envoy.yaml")
	}
	read(t, string(found[1]), &bootstrap.Bootstrap{})
	out, err := Envoy(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range out.Files {
		if !strings.Contains(string(found[1]), "/"+f.Name) {
			t.Errorf("envoy.yaml does not read %s", f.Name)
		}
	}
	if !strings.Contains(string(found[1]), "route_config_name: dispatch-prod") {
		t.Error("envoy.yaml names no route configuration of the export")
	}
}
