package pages

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
)

func TestMapSaysWhoReachesWhat(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	c.follow(house())
	c.get("/map").has(t, "Calls fail in 1 place now", "Rules v1", "pipeline-rules", "order-core to 70 %", "production / cn-hangzhou / prod", "1 older rule is shadowed",
		"key service", "order-core/prod@2026-10-01T09:00:00Z", "strategy: {version: &#34;2.10&#34;, weight: 70}", "5 → 5 → 1 → 0", "no instance has that version",
		"2 of 2 services", "called by 1 service", "no rule", "<svg class=\"graph\"", "■ fails in test", "not registered")
	for query, want := range map[string][2]bool{ // order-core, notify
		"": {true, true}, "service=ORDER": {true, false}, "env=test": {true, false}, "env=prod": {true, true}, "problem=1": {true, false}, "env=prod&problem=1": {false, false}, "service=x": {false, false}} {
		a := c.get("/map?" + query)
		for i, name := range []string{"order-core", "notify"} {
			if got := strings.Contains(a.text, `role="rowheader"><a href="/services/`+name+`"`); got != want[i] {
				t.Errorf("%q shows %s: %v", query, name, got)
			}
		}
	}
	if a := c.get("/map", "X-Fragment", "map").has(t, `id="map"`); strings.Contains(a.text, "<html") {
		t.Error("the fragment is a page")
	}
}

func TestKillSwitchOnTheMap(t *testing.T) {
	t.Parallel()
	viewer := open(t, bank, actions.Viewer)
	viewer.follow(house())
	viewer.get("/map").has(t, "Somebody on call, or with break glass")
	if a := viewer.post("/map/switch", url.Values{"direct": {"true"}}); a.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer: %d", a.StatusCode)
	}
	c := open(t, bank, actions.OnCall)
	v, set := house()
	c.follow(v, set)
	c.get("/map").has(t, "Throw the kill switch", `placeholder="test/cn-hangzhou"`, `name="direct" value="true"`)
	a := c.post("/map/switch", url.Values{"direct": {"true"}, "reason": {`rules are "wrong"`}, "confirm": {"test/sh"}})
	if a.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("the wrong word: %d", a.StatusCode)
	}
	a.has(t, "confirm_mismatch", `value="test/sh"`, "rules are &#34;wrong&#34;", `<details id="switch" open>`)
	if text := c.get("/map").text; strings.Contains(text, "grows in") {
		t.Error("it warns of a version that grows, and none does")
	}
	set.Grays = []rules.Gray{{Service: "order-core", Env: "prod", Version: "v2.3.1", Share: 20, Steps: rules.DefaultSteps()}}
	c.follow(v, set)
	c.get("/map").has(t, "v2.3.1 grows in prod and takes 20\u202f% now", "what its instances are of all: ", `<a href="/services/order-core">`)
	set.Grays = nil
	set.Direct = true
	c.follow(v, set)
	c.get("/map").has(t, "Let the rules count again", `name="direct" value="false"`, "rules do not count")
}

func TestMapColoursAVersionAlikeEverywhere(t *testing.T) {
	t.Parallel()
	cell := func(env string, versions ...actions.MapVersion) actions.MapCell {
		return actions.MapCell{Service: "a", Env: env, Versions: versions}
	}
	row := rowOfMap([]actions.MapCell{cell("prod", actions.MapVersion{Version: "v2", Share: .9}, actions.MapVersion{Version: "v1", Share: .1}),
		cell("test", actions.MapVersion{Version: "v3", Share: 1}, actions.MapVersion{Version: "v1"})}, []string{"prod", "staging", "test"})
	var got []string
	for _, in := range row.Envs {
		for _, c := range in.Cells {
			for _, p := range c.Parts {
				got = append(got, p.Version+" "+p.Class)
			}
		}
	}
	if want := []string{"v2 s1", "v1 s2", "v3 s3", "v1 s2"}; !slices.Equal(got, want) || len(row.Envs) != 3 || len(row.Envs[1].Cells) != 0 {
		t.Errorf("%v, want %v", got, want)
	}
	if none := rowOfMap([]actions.MapCell{cell("dev")}, []string{"prod"}); none.Envs != nil {
		t.Errorf("a service that is in no column: %+v", none)
	}
}

func TestPiecesOfABar(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		shares []float64
		want   []string
	}{
		{[]float64{1}, []string{"M0 0H1000V10H0z"}},
		{[]float64{.7, .3}, []string{"M0 0H692V10H0z", "M700 0H1000V10H700z"}},
		{[]float64{.5, .5, 0}, []string{"M0 0H492V10H0z", "M500 0H1000V10H500z", ""}},
		{[]float64{.001, .999}, []string{"M0 0H4V10H0z", "M1 0H1000V10H1z"}},
		{[]float64{0, 1}, []string{"", "M0 0H1000V10H0z"}},
		{[]float64{0, 0}, []string{"", ""}},
		{nil, nil},
	} {
		if got := pieces(row.shares); !slices.Equal(got, row.want) {
			t.Errorf("%v: %q, want %q", row.shares, got, row.want)
		}
	}
}

func TestWhatAVersionWithoutCallsIsCalled(t *testing.T) {
	t.Parallel()
	r := ruleOf("a", "prod", "v2", "2026-11-01T09:00:00Z")
	off := r
	off.Strategy.Weight = 0
	fall := r
	fall.Fallback = &rules.Fallback{Version: "v1"}
	for _, row := range []struct {
		v    actions.MapVersion
		r    *rules.Rule
		want string
	}{
		{actions.MapVersion{Version: "v2"}, &r, "map.nobody"},
		{actions.MapVersion{Version: "v2", Instances: 2}, &r, "map.drained"},
		{actions.MapVersion{Version: "v2", Instances: 2, Serving: 1}, &r, ""},
		{actions.MapVersion{Version: "v2", Instances: 2, Serving: 1}, &off, "map.weightless"},
		{actions.MapVersion{Version: "v1", Instances: 2, Serving: 1}, &fall, "map.weightless"},
		{actions.MapVersion{Version: "v2", Instances: 2, Serving: 1}, nil, ""},
	} {
		if got := noteOf(row.v, actions.MapCell{Rule: row.r}); got != row.want {
			t.Errorf("%+v: %q, want %q", row.v, got, row.want)
		}
	}
	c := must(readCatalogue(files))
	for counts, want := range map[route.Counts]string{{}: "map.next.cluster", {Cluster: 3}: "map.next.region", {Cluster: 3, Region: 3}: "map.next.env",
		{Cluster: 3, Region: 3, Env: 2}: "map.next.version", {Cluster: 3, Region: 3, Env: 2, Version: 1}: "map.next.weight"} {
		if got := nextStep(actions.MapCell{Problem: "x", Counts: counts}); got != want || !c.has(got) {
			t.Errorf("%+v: %s, want %s", counts, got, want)
		}
	}
	if got := nextStep(actions.MapCell{}); got != "" {
		t.Errorf("without a problem: %s", got)
	}
}

func plainly(string) (string, bool) { return "", false }

func TestCallersAreDrawnLeft(t *testing.T) {
	t.Parallel()
	edges := []callEdge{{From: "gateway", To: "order"}, {From: "gateway", To: "user"}, {From: "order", To: "risk"}, {From: "risk", To: "user"}, {From: "notify", To: "order"}, {From: "order", To: "notify"}, {From: "user", To: "user"}}
	g, crowded := drawCalls(edges, plainly)
	x := map[string]float64{}
	for _, n := range g.Nodes {
		x[n.Name] = n.X
	}
	if crowded || !(x["gateway"] < x["order"] && x["order"] < x["risk"] && x["risk"] < x["user"] && x["order"] != x["notify"]) {
		t.Errorf("crowded %v, placed at %v", crowded, x)
	}
	if len(g.Nodes) != 5 || len(g.Edges) != len(edges) {
		t.Errorf("%d boxes and %d arrows", len(g.Nodes), len(g.Edges))
	}
}

// Whatever calls whatever: no two boxes overlap, all lie inside, and no number is odd.
func TestDrawingHoldsForAnyCalls(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var edges []callEdge
		services := 2 + random.IntN(maxNodes-1)
		for range 1 + random.IntN(60) {
			edges = append(edges, callEdge{From: fmt.Sprintf("s%d", random.IntN(services)), To: fmt.Sprintf("s%d", random.IntN(services))})
		}
		g, crowded := drawCalls(edges, plainly)
		if crowded {
			t.Fatal("it is crowded")
		}
		for i, a := range g.Nodes {
			if a.X < 0 || a.Y < 0 || a.X+nodeWidth > g.Width || a.Y+nodeHeight > g.Height {
				t.Fatalf("%+v is outside of %v × %v", a, g.Width, g.Height)
			}
			for _, b := range g.Nodes[:i] {
				if a.X < b.X+nodeWidth && b.X < a.X+nodeWidth && a.Y < b.Y+nodeHeight && b.Y < a.Y+nodeHeight {
					t.Fatalf("%+v lies on %+v", a, b)
				}
			}
		}
		for _, e := range g.Edges {
			if !strings.HasPrefix(e.Path, "M") || strings.Contains(e.Path+e.Head, "NaN") {
				t.Fatalf("%+v", e)
			}
		}
	}
}

func TestTooManyServicesAreNotDrawn(t *testing.T) {
	t.Parallel()
	var edges []callEdge
	for i := range maxNodes {
		edges = append(edges, callEdge{From: "gateway", To: fmt.Sprintf("s%d", i)})
	}
	if g, crowded := drawCalls(edges, plainly); g != nil || !crowded {
		t.Error("31 services are drawn")
	}
	if g, crowded := drawCalls(edges[1:], plainly); g == nil || crowded {
		t.Error("30 services are not")
	}
	if g, crowded := drawCalls(nil, plainly); g != nil || crowded {
		t.Error("nothing is drawn")
	}
	c := open(t, bank, actions.Viewer)
	v, set := house()
	for i := range 40 {
		v.Calls = append(v.Calls, directory.Call{From: "gateway", Env: "prod", To: fmt.Sprintf("s%d", i), Last: time.Now()})
	}
	c.follow(v, set)
	c.get("/map").has(t, "More than 30 services call each other")
}

func TestLongNamesAreShortenedInTheMiddle(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"order-core": "order-core", "ledger-posting-and-settlement-core": "ledger-postin…t-core", "一二三四五六七八九十一二三四五六七八九十一": "一二三四五六七八九十一二三…六七八九十一"} {
		if got := shortened(text, maxLabel); got != want || len([]rune(got)) > maxLabel {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// manyCells is the map of many services with rules, callers and long names.
func manyCells(services int, envs ...string) (m actions.CallMap) {
	m.Number = 12
	for i := range services {
		name := fmt.Sprintf("family-%02d-of-services-with-a-long-name-%03d", i%20, i)
		m.Calls = append(m.Calls, directory.Call{From: fmt.Sprintf("family-%02d-of-services-with-a-long-name-%03d", (i/2)%20, i/2), Env: envs[0], To: name, Last: time.Now()})
		for _, env := range envs {
			r := ruleOf(name, env, "v2.3.1", "2026-11-01T09:00:00Z")
			r.Fallback = &rules.Fallback{Version: "v2.3.0", Weight: 30}
			m.Cells = append(m.Cells, actions.MapCell{Service: name, Env: env, Cluster: "production", Rule: &r, Shadowed: []string{name + "/" + env + "@2026-10-01T09:00:00Z"}, Group: "family-",
				Counts: route.Counts{Cluster: 6, Region: 6, Env: 3, Version: 3}, Versions: []actions.MapVersion{{Version: "v2.3.1", Share: .7, Instances: 4, Serving: 4}, {Version: "v2.3.0", Share: .3, Instances: 2, Serving: 1}}})
		}
	}
	return m
}

// A long map has links to the texts of rules, not the texts.
func TestLongMapHasLinksToRules(t *testing.T) {
	t.Parallel()
	c := open(t, "", actions.Viewer)
	for services, want := range map[int][2]int{manyRows: {manyRows, 0}, manyRows + 1: {0, manyRows + 1}} {
		page := &mapPage{}
		page.draw(manyCells(services, "prod"), &visit{Pages: c.pages, lang: "en"})
		text := c.render("map", page)
		if got := [2]int{strings.Count(text, "strategy: {"), strings.Count(text, "#rule-prod")}; got != want {
			t.Errorf("%d services: %v texts and links, want %v", services, got, want)
		}
	}
}
