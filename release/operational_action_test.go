package release

import (
	"errors"
	"testing"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
)

// night is a document for emergencies: two apps in one region, two clusters that
// share a domain, a spare, and a gray.
const night = `apps:
  - key: mobile
    default: true
    fallback: wap.bank.example
    regions:
      - key: sh
        failover: [hf]
        endpoints:
          - {key: k1-main, domain: wapabst.a.com.cn, cluster: k1}
          - {key: k1-spare, domain: wapabst2.a.com.cn, cluster: k1, state: standby}
          - {key: k2-main, domain: wapabst.a.com.cn, cluster: k2}
      - key: hf
        failover: [sh]
        endpoints: [{key: main, domain: wapcdst.b.com.cn, cluster: k1}]
    policies:
      - {key: gray, match_all: true, then: {share: {region: hf, of: 500}}}
      - {key: ranges, match_all: true, then: {share: {region: hf, buckets: [[0, 99]]}}}
      - {key: ramped, match_all: true, then: {share: {region: hf, ramp: {from: 0, to: 5000, start: 2027-01-01T09:00:00+08:00, end: 2027-01-02T09:00:00+08:00}}}}
      - {key: rest, match_all: true, then: {region: sh}}
    otherwise: {region: sh}
  - key: corporate
    fallback: corp.bank.example
    regions:
      - {key: sh, endpoints: [{key: only, domain: corp-sh.bank.example, cluster: k1}, {key: other, domain: corp-sh.bank.example, cluster: k2}]}
    otherwise: {region: sh}
`

func nightDocument(t *testing.T) *Document {
	t.Helper()
	doc, err := Parse("night.yaml", []byte(night))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// states are the endpoints' states of an app's region, in the order of the document.
func states(doc *Document, ops Operational, app, region string) (list []string) {
	for _, a := range Apply(doc, ops) {
		if a.Key != app {
			continue
		}
		for _, e := range a.region(region).Endpoints {
			list = append(list, string(stateOf(&e)))
		}
	}
	return list
}

func expectStates(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("states %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("states %v, want %v", got, want)
		}
	}
}

// E12: a cluster leaves, the other one serves under the same domain, and it comes
// back as the document says.
func TestAClusterLeavesAndComesBack(t *testing.T) {
	t.Parallel()
	doc := nightDocument(t)
	off, err := SetCluster{Region: "sh", Cluster: "k1", Expect: domain.Serving, State: domain.Closed}.On(doc, Operational{})
	if err != nil {
		t.Fatal(err)
	}
	expectStates(t, states(doc, off, "mobile", "sh"), "off", "off", "active")
	expectStates(t, states(doc, off, "corporate", "sh"), "off", "active")
	expectStates(t, states(doc, off, "mobile", "hf"), "active")

	standby, err := SetCluster{App: "mobile", Region: "sh", Cluster: "k1", Expect: domain.Closed, State: domain.Standby}.On(doc, off)
	if err != nil {
		t.Fatal(err)
	}
	expectStates(t, states(doc, standby, "mobile", "sh"), "standby", "standby", "active")
	expectStates(t, states(doc, standby, "corporate", "sh"), "off", "active")

	back, err := SetCluster{App: "mobile", Region: "sh", Cluster: "k1", Expect: domain.Standby, State: domain.Serving}.On(doc, standby)
	if err != nil {
		t.Fatal(err)
	}
	expectStates(t, states(doc, back, "mobile", "sh"), "active", "standby", "active")
	if held := back.Apps["mobile"].Endpoints; len(held) != 0 {
		t.Errorf("a hold stays: %v", held)
	}
}

// P21: no cluster leaves that nobody stands in for.
func TestSetClusterRefusals(t *testing.T) {
	t.Parallel()
	doc := nightDocument(t)
	draining, err := SetRegion{App: "mobile", Region: "hf", Expect: domain.Active, State: domain.Draining}.On(doc, Operational{})
	if err != nil {
		t.Fatal(err)
	}
	withoutK2, err := SetCluster{Region: "sh", Cluster: "k2", Expect: domain.Serving, State: domain.Closed}.On(doc, Operational{})
	if err != nil {
		t.Fatal(err)
	}
	onlyDraining := draining.with("mobile", func(s *AppState) { s.Regions["sh"] = RegionOps{State: domain.Off} })
	for name, test := range map[string]struct {
		ops  Operational
		set  SetCluster
		code string
	}{
		"an unknown app":             {set: SetCluster{App: "x", Region: "sh", Cluster: "k1", Expect: "active", State: "off"}, code: "unknown_app"},
		"an unknown region":          {set: SetCluster{App: "mobile", Region: "x", Cluster: "k1", Expect: "active", State: "off"}, code: "unknown_region"},
		"an unknown cluster":         {set: SetCluster{Region: "sh", Cluster: "k9", Expect: "active", State: "off"}, code: "unknown_cluster"},
		"an unknown region anywhere": {set: SetCluster{Region: "x", Cluster: "k1", Expect: "active", State: "off"}, code: "unknown_cluster"},
		"a state of regions":         {set: SetCluster{Region: "sh", Cluster: "k1", Expect: "active", State: "draining"}, code: "bad_state"},
		"another state by now":       {set: SetCluster{Region: "sh", Cluster: "k1", Expect: "off", State: "standby"}, code: "expect_mismatch"},
		"nothing to do":              {set: SetCluster{Region: "sh", Cluster: "k1", Expect: "active", State: "active"}, code: "no_change"},
		"a region's only cluster":    {set: SetCluster{App: "mobile", Region: "hf", Cluster: "k1", Expect: "active", State: "off"}, code: "region_empty"},
		"its only one, to standby":   {set: SetCluster{App: "mobile", Region: "hf", Cluster: "k1", Expect: "active", State: "standby"}, code: "region_empty"},
		"the last one of two":        {ops: withoutK2, set: SetCluster{Region: "sh", Cluster: "k1", Expect: "active", State: "off"}, code: "region_empty"},
		"the last draining region":   {ops: onlyDraining, set: SetCluster{App: "mobile", Region: "hf", Cluster: "k1", Expect: "active", State: "off"}, code: "last_region"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := test.set.On(doc, test.ops)
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Code != test.code {
				t.Fatalf("refused with %v, want %s", err, test.code)
			}
			if e.Hint == "" && e.Code != "no_change" && e.Code != "unknown_region" {
				t.Errorf("%s says no next step", e.Code)
			}
		})
	}
	if _, err := (SetCluster{App: "mobile", Region: "hf", Cluster: "k1", Expect: "active", State: "off"}).On(doc, draining); err != nil {
		t.Errorf("a region that drains needs no endpoint while another serves: %v", err)
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	frozen, err := Freeze{Expect: Open, State: Frozen}.On(Operational{})
	if err != nil || !frozen.Frozen {
		t.Fatalf("%+v, %v", frozen, err)
	}
	if open, err := (Freeze{Expect: Frozen, State: Open}).On(frozen); err != nil || open.Frozen {
		t.Errorf("%+v, %v", open, err)
	}
	for code, f := range map[string]Freeze{
		"bad_state":       {Expect: Frozen, State: "shut"},
		"expect_mismatch": {Expect: Open, State: Open},
		"no_change":       {Expect: Frozen, State: Frozen},
	} {
		if _, err := f.On(frozen); fault.CodeOf(err) != code {
			t.Errorf("%+v: %v, want %s", f, err, code)
		}
	}
}
