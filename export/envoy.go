package export

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/rules"
)

// Mesh is what an export for Envoy is made of: rules and the instances of one moment.
type Mesh struct {
	Region       string
	Number       uint64 // of the release of rules
	Set          rules.Set
	Services     []directory.Service
	Service, Env string // only this service, only this environment; empty: all
}

const (
	most  = 10_000 // weight of an instance
	whole = 1000   // thousandths of a weight
)

// unlike is what the rules or their callers do and Envoy does not.
var unlike = [...]string{
	"a condition (target-load > 80): the fallback keeps its stated part; nobody moves load away from a hot version",
	"a version whose instances all fail: it keeps its part, and the other one takes it when the export is made anew",
	"the first 30 s of an instance: slow start gives it a tenth at once and more over 60 s, where callers give nothing for 30 s",
	"the breaker of a whole service (slow or failed calls, open for 30 s, 3 probes) and its degraded value",
	"the base of a lane, a person's own instance, the overrides of a process",
	"keys: calls with one key are drawn anew each time",
	"records: dispatchctl explain call knows no call that Envoy sent",
	"the deadline of a caller: each HTTP call ends after 3 s, whatever its caller allows, event streams and long downloads too; give their paths a route of their own",
	"the deadline of a gRPC call that has none: it ends by its grpc-timeout, or never, as streams do",
	"the budget: retries are at most a fifth of calls in flight, not of calls, and 3 are always allowed",
}

// Envoy writes rules as Envoy's dynamic configuration: rds-ENV.yaml with a virtual
// host for each service of an environment, and cds.yaml with a cluster for each
// version. Services without a rule are not in it: where their calls go depends on
// the caller's own cluster. An error means that Envoy's own checks refuse something.
func Envoy(m Mesh) (Export, error) {
	e := envoy{Mesh: m, hosts: map[string][]*route.VirtualHost{}, names: map[[2]string]string{}}
	all := m.Set.Effective().Rules
	for i, r := range all {
		first := i == 0 || r.Service != all[i-1].Service || r.Selector.Env != all[i-1].Selector.Env
		if first && (m.Service == "" || r.Service == m.Service) && (m.Env == "" || r.Selector.Env == m.Env) {
			e.rule(r)
		}
	}
	if m.Set.Direct {
		e.note("the kill switch is thrown: callers skip these rules now, and Envoy would follow them")
	}
	e.notes = append(e.notes, unlike[:]...)
	out := Export{Notes: e.notes}
	for _, env := range slices.Sorted(maps.Keys(e.hosts)) {
		config := &route.RouteConfiguration{Name: "dispatch-" + env, VirtualHosts: e.hosts[env]}
		if err := out.resource(m, "rds-"+env+".yaml", config); err != nil {
			return Export{}, err
		}
	}
	return out, resources(&out, m, "cds.yaml", e.clusters)
}

// envoy is an export under way.
type envoy struct {
	Mesh
	hosts    map[string][]*route.VirtualHost // by env
	clusters []*cluster.Cluster
	names    map[[2]string]string // service by env and domain: Envoy compares those without case
	notes    []string
}

func (e *envoy) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// part is a version and its part of the calls.
type part struct {
	version string
	weight  int
	serving []discovery.Instance
	takes   map[string]uint32 // weight by instance ID
}

// rule writes the virtual host of a rule and the clusters of its versions.
func (e *envoy) rule(r rules.Rule) {
	id := [2]string{r.Selector.Env, strings.ToLower(r.Service)}
	if other, taken := e.names[id]; taken {
		e.note("%s in %s: Envoy cannot tell it from %s, names have no case there; it is left out", r.Service, r.Selector.Env, other)
		return
	}
	e.names[id] = r.Service
	if g := r.Gray; g != nil {
		e.note("%s in %s: a gray runs, %s; export again at each step", r.Service, r.Selector.Env, g)
		if g.ByKey {
			e.note("%s in %s: the gray is for calls with a key, and Envoy draws from all", r.Service, r.Selector.Env)
		}
	}
	parts := []part{e.part(r, r.Strategy.Version, r.Strategy.Weight)}
	if f := r.Fallback; f != nil {
		parts = append(parts, e.part(r, f.Version, f.Weight))
	}
	host := &route.VirtualHost{Name: r.Service, Domains: domains(r.Service, parts)}
	weighted := &route.WeightedCluster{}
	for _, p := range parts {
		name := r.Service + "/" + r.Selector.Env + "/" + p.version
		if len(p.serving) == 0 {
			if p.weight > 0 {
				e.note("%s: no instance takes calls, so its part of %d is left to the other version", name, p.weight)
			}
			continue
		}
		e.clusters = append(e.clusters, clusterOf(name, r.Selector, p))
		if p.weight > 0 {
			weighted.Clusters = append(weighted.Clusters, &route.WeightedCluster_ClusterWeight{Name: name, Weight: wrapperspb.UInt32(uint32(p.weight))})
		}
	}
	host.Routes = routes(weighted)
	if len(weighted.Clusters) == 0 {
		e.note("%s in %s: no version takes calls, so each is answered with 503", r.Service, r.Selector.Env)
		host.Routes = nowhere(r)
	}
	e.hosts[r.Selector.Env] = append(e.hosts[r.Selector.Env], host)
}

// part finds the instances of a version in the rule's coordinates.
func (e *envoy) part(r rules.Rule, version string, weight int) part {
	p := part{version: version, weight: weight, takes: map[string]uint32{}}
	want := discovery.Coordinates{Cluster: r.Selector.Cluster, Region: r.Selector.Region, Env: r.Selector.Env, Version: version}
	at, known := slices.BinarySearchFunc(e.Services, r.Service, func(s directory.Service, name string) int { return cmp.Compare(s.Name, name) })
	if !known {
		return p
	}
	for _, in := range e.Services[at].Instances {
		if in.Coordinates != want {
			continue
		}
		takes := min(max(in.Share(), 0), most) * whole
		if in.Scale != nil {
			takes = takes / whole * min(max(in.Scale.Thousandths, 0), whole)
		}
		if takes == 0 {
			e.note("%s at %s takes no calls and is left out", in.ID, in.Address)
			continue
		}
		p.serving, p.takes[in.ID] = append(p.serving, in.Instance), uint32(max(takes/whole, 1))
	}
	slices.SortFunc(p.serving, func(a, b discovery.Instance) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Address.String(), b.Address.String()))
	})
	return p
}

// domains are the names that a caller may have in its URL: the service, with each
// port that an instance listens on or without.
func domains(service string, parts []part) []string {
	ports := map[uint16]bool{}
	for _, p := range parts {
		for _, in := range p.serving {
			ports[in.Address.Port] = true
		}
	}
	list := []string{service}
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		list = append(list, fmt.Sprintf("%s:%d", service, port))
	}
	return list
}

// clusterOf is a version with its instances as endpoints of one locality.
func clusterOf(name string, s rules.Selector, p part) *cluster.Cluster {
	c := guarded(name)
	list := &endpoint.LocalityLbEndpoints{Locality: &core.Locality{Region: s.Region, Zone: s.Cluster}}
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
	for _, in := range p.serving {
		if _, ip := in.Address.IP(); !ip {
			c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STRICT_DNS}
		}
		list.LbEndpoints = append(list.LbEndpoints, &endpoint.LbEndpoint{LoadBalancingWeight: wrapperspb.UInt32(p.takes[in.ID]),
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: &core.Address{Address: &core.Address_SocketAddress{
				SocketAddress: &core.SocketAddress{Address: in.Address.Host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(in.Address.Port)}}}}}}})
	}
	c.LoadAssignment = &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{list}}
	return c
}
