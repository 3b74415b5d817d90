package release

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// threeRegions is an app with three regions of two endpoints each.
func threeRegions() *Document {
	of := 500
	doc := &Document{Apps: []App{{Key: "m", Fallback: "wap.bank.example", Otherwise: policy.Action{Region: "a"}}}}
	for _, key := range []string{"a", "b", "c"} {
		doc.Apps[0].Regions = append(doc.Apps[0].Regions, domain.Region{Key: key, Endpoints: []domain.Endpoint{
			{Key: "main", Domain: key + ".a.com.cn"}, {Key: "spare", Domain: key + "2.a.com.cn", State: domain.Standby}}})
	}
	doc.Apps[0].Policies = []policy.Policy{{Key: "gray", When: policy.When{Platform: policy.Strings{"ios"}},
		Then: policy.Action{Share: &policy.Share{Region: "b", Of: &of}}}}
	return doc
}

func set(t *testing.T, doc *Document, ops Operational, region string, states ...domain.RegionState) Operational {
	t.Helper()
	for _, state := range states {
		next, err := SetRegion{App: "m", Region: region, Expect: Apply(doc, ops)[0].region(region).Condition(), State: state}.On(doc, ops)
		if err != nil {
			t.Fatal(err)
		}
		ops = next
	}
	return ops
}

func TestSwapExchangesStatesAndMovesTheWeight(t *testing.T) {
	t.Parallel()
	doc, weight := threeRegions(), 70
	doc.Apps[0].Regions[0].Endpoints[0].Weight = &weight
	ops, err := Swap{App: "m", Region: "a", From: "main", To: "spare", Expect: "main"}.On(doc, Operational{})
	if err != nil {
		t.Fatal(err)
	}
	after := Apply(doc, ops)[0].Regions[0].Endpoints
	if after[0].State != domain.Standby || !after[1].Serves() || *after[1].Weight != 70 {
		t.Errorf("after the swap: %+v", after)
	}
	if written := doc.Apps[0].Regions[0].Endpoints; written[0].State != "" || written[1].State != domain.Standby {
		t.Errorf("the document changed: %+v", written)
	}
	// The same click again must not swap back.
	if _, err := (Swap{App: "m", Region: "a", From: "main", To: "spare", Expect: "main"}).On(doc, ops); fault.CodeOf(err) != "expect_mismatch" {
		t.Errorf("a second click: %v", err)
	}
	back, err := Swap{App: "m", Region: "a", From: "spare", To: "main"}.On(doc, ops)
	if err != nil {
		t.Fatal(err)
	}
	carried, held := back.Carry(doc, doc, false)
	if len(held) > 0 || len(carried.Apps["m"].Endpoints) != 1 || carried.Apps["m"].Endpoints["a/spare"].State != "" {
		t.Errorf("a swap there and back leaves %+v, held %v", carried.Apps["m"].Endpoints, held)
	}
}

// P21, e58: no action leaves an app without a region that serves.
func TestActionsAreRefusedByName(t *testing.T) {
	t.Parallel()
	doc := threeRegions()
	doc.Apps[0].Regions[1].Endpoints[1].State = domain.Closed
	onlyA := set(t, doc, set(t, doc, Operational{}, "b", domain.Off), "c", domain.Draining)
	noServing := edited2(doc, func(d *Document) {
		d.Apps[0].Regions[2].State = domain.Off
		d.Apps[0].Regions[2].Endpoints = d.Apps[0].Regions[2].Endpoints[1:]
	})
	for name, c := range map[string]struct {
		doc    *Document
		ops    Operational
		action interface {
			On(*Document, Operational) (Operational, error)
		}
		code string
		kind fault.Kind
	}{
		"the last region off":      {doc, onlyA, SetRegion{"m", "a", "active", "off"}, "last_region", fault.Invalid},
		"the last region draining": {doc, onlyA, SetRegion{"m", "a", "active", "draining"}, "last_region", fault.Invalid},
		"unknown app":              {doc, onlyA, SetRegion{"x", "a", "active", "off"}, "unknown_app", fault.NotFound},
		"unknown region":           {doc, onlyA, SetRegion{"m", "x", "active", "off"}, "unknown_region", fault.NotFound},
		"unknown state":            {doc, onlyA, SetRegion{"m", "a", "active", "closed"}, "bad_state", fault.Invalid},
		"no state":                 {doc, onlyA, SetRegion{"m", "a", "active", ""}, "bad_state", fault.Invalid},
		"stale expect":             {doc, onlyA, SetRegion{"m", "b", "active", "draining"}, "expect_mismatch", fault.Conflict},
		"no expect":                {doc, onlyA, SetRegion{"m", "b", "", "draining"}, "expect_mismatch", fault.Conflict},
		"no change":                {doc, onlyA, SetRegion{"m", "b", "off", "off"}, "no_change", fault.Invalid},
		"active without endpoints": {noServing, Operational{}, SetRegion{"m", "c", "off", "active"}, "no_serving_endpoint", fault.Invalid},
		"swap in an unknown app":   {doc, onlyA, Swap{"x", "a", "main", "spare", ""}, "unknown_app", fault.NotFound},
		"swap from an unknown":     {doc, onlyA, Swap{"m", "a", "x", "spare", ""}, "unknown_endpoint", fault.NotFound},
		"swap to an unknown":       {doc, onlyA, Swap{"m", "a", "main", "", ""}, "unknown_endpoint", fault.NotFound},
		"swap in what is off":      {doc, onlyA, Swap{"m", "b", "main", "spare", ""}, "endpoint_off", fault.Invalid},
		"swap with itself":         {doc, onlyA, Swap{"m", "a", "main", "main", ""}, "expect_mismatch", fault.Conflict},
		"swap from a standby":      {doc, onlyA, Swap{"m", "a", "spare", "main", ""}, "expect_mismatch", fault.Conflict},
		"swap by an old screen":    {doc, onlyA, Swap{"m", "a", "main", "spare", "spare"}, "expect_mismatch", fault.Conflict},
		"swap by a vanished one":   {doc, onlyA, Swap{"m", "a", "main", "spare", "gone"}, "expect_mismatch", fault.Conflict},
	} {
		before := fmt.Sprint(c.ops)
		_, err := c.action.On(c.doc, c.ops)
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || e.Code != c.code || e.Kind != c.kind {
			t.Errorf("%s: got %v, want code %s", name, err, c.code)
			continue
		}
		if c.code == "expect_mismatch" && e.Data.(map[string]string)["current"] == "" {
			t.Errorf("%s: the current value is not told", name)
		}
		if fmt.Sprint(c.ops) != before {
			t.Errorf("%s: a refused action changed the state", name)
		}
	}
}

// edited2 edits a copy of a document that no text gave.
func edited2(doc *Document, edit func(*Document)) *Document {
	out := *doc
	out.Apps = slices.Clone(doc.Apps)
	for i := range out.Apps {
		app := &out.Apps[i]
		app.Policies = slices.Clone(app.Policies)
		app.Regions = slices.Clone(app.Regions)
		for j := range app.Regions {
			app.Regions[j].Endpoints = slices.Clone(app.Regions[j].Endpoints)
		}
	}
	edit(&out)
	return &out
}

func TestOffVoidsSessionsAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	doc := threeRegions()
	ops := set(t, doc, Operational{}, "b", domain.Draining, domain.Active, domain.Draining)
	if got := Apply(doc, ops)[0].Regions[1]; got.Epoch != 0 || got.State != domain.Draining {
		t.Errorf("draining: %+v", got)
	}
	ops = set(t, doc, ops, "b", domain.Off, domain.Active, domain.Off, domain.Draining)
	if got := Apply(doc, ops)[0].Regions[1]; got.Epoch != 2 {
		t.Errorf("off twice gives epoch %d, want 2", got.Epoch)
	}
}

func TestCarryKeepsWhatWasChangedByHand(t *testing.T) {
	t.Parallel()
	old, share := threeRegions(), 900
	ops := set(t, old, Operational{}, "b", domain.Draining)
	ops, err := Swap{App: "m", Region: "a", From: "main", To: "spare"}.On(old, ops)
	if err != nil {
		t.Fatal(err)
	}
	ops = ops.with("m", func(s *AppState) { s.Policies["gray"] = PolicyOps{Epoch: 3, Share: &share} })
	for name, c := range map[string]struct {
		edit func(*App)
		held []string // paths
		want func(App) string
		is   string
	}{
		"an edit elsewhere": {func(a *App) { a.Name = "new" }, nil,
			func(a App) string {
				return string(a.Regions[1].State + "/" + domain.RegionState(a.Regions[0].Endpoints[1].State))
			}, "draining/active"},
		"the document catches up": {func(a *App) { a.Regions[1].State = domain.Draining }, nil,
			func(a App) string { return string(a.Regions[1].State) }, "draining"},
		"the document says a third thing": {func(a *App) { a.Regions[1].State = domain.Off }, []string{"apps[0].regions[1].state"},
			func(a App) string { return string(a.Regions[1].State) }, "draining"},
		"another endpoint state": {func(a *App) { a.Regions[0].Endpoints[1].State = domain.Closed }, []string{"apps[0].regions[0].endpoints[1].state"},
			func(a App) string { return string(a.Regions[0].Endpoints[1].State) }, "active"},
		"another weight": {func(a *App) { a.Regions[0].Endpoints[1].Weight = new(7) }, []string{"apps[0].regions[0].endpoints[1].weight"},
			func(a App) string { return fmt.Sprint(*a.Regions[0].Endpoints[1].Weight) }, "100"},
		"another share": {func(a *App) { a.Policies[0].Then.Share = &policy.Share{Region: "b", Of: new(700)} }, []string{"apps[0].policies[0].then.share"},
			func(a App) string { return fmt.Sprint(*a.Policies[0].Then.Share.Of) }, "900"},
		"no share any more": {func(a *App) { a.Policies[0].Then = policy.Action{Region: "b"} }, []string{"apps[0].policies[0].then.share"},
			func(a App) string { return a.Policies[0].Then.Region }, "b"},
		"the same share in another region": {func(a *App) { a.Policies[0].Then.Share = &policy.Share{Region: "c", Of: new(500)} }, nil,
			func(a App) string { return fmt.Sprint(a.Policies[0].Then.Share.Region, *a.Policies[0].Then.Share.Of) }, "c900"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc := edited2(old, func(d *Document) { c.edit(&d.Apps[0]) })
			next, held := ops.Carry(old, doc, false)
			var paths []string
			for _, p := range held {
				paths = append(paths, p.Path)
			}
			if !slices.Equal(paths, c.held) {
				t.Errorf("held %v, want %v", held, c.held)
			}
			if got := c.want(Apply(doc, next)[0]); got != c.is {
				t.Errorf("got %s, want %s", got, c.is)
			}
			if (Held(held) == nil) != (c.held == nil) || c.held != nil && fault.CodeOf(Held(held)) != "held" {
				t.Errorf("Held says %v", Held(held))
			}
			if next.Apps["m"].Policies["gray"].Epoch != 3 {
				t.Errorf("the policy's epoch is lost: %+v", next.Apps["m"].Policies)
			}
			released, _ := ops.Carry(old, doc, true)
			for _, p := range held {
				if mentions(second(released.Carry(doc, doc, false)), p.Path, "") {
					t.Errorf("%s is still held after --release-holds", p.Path)
				}
			}
			if c.held != nil && reflect.DeepEqual(released, next) {
				t.Error("--release-holds changed nothing")
			}
		})
	}
}

func second(_ Operational, held []fault.Problem) []fault.Problem { return held }

func TestReleasedHoldLetsTheDocumentWin(t *testing.T) {
	t.Parallel()
	old := threeRegions()
	ops := set(t, old, Operational{}, "b", domain.Draining)
	doc := edited2(old, func(d *Document) { d.Apps[0].Regions[1].State = domain.Off })
	next, held := ops.Carry(old, doc, true)
	if got := Apply(doc, next)[0].Regions[1]; got.State != domain.Off || got.Epoch != 1 || len(held) != 1 {
		t.Errorf("region %+v, held %v", got, held)
	}
}

// A document that still says what it said before the night undoes the night only
// when the hold is released, and then names it.
func TestReleasedHoldUndoesWhatTheDocumentNeverChanged(t *testing.T) {
	t.Parallel()
	doc := threeRegions()
	ops := set(t, doc, Operational{}, "b", domain.Off)
	if kept, held := ops.Carry(doc, doc, false); len(held) != 0 || Apply(doc, kept)[0].Regions[1].State != domain.Off {
		t.Errorf("kept %+v, held %v", kept, held)
	}
	undone, held := ops.Carry(doc, doc, true)
	if got := Apply(doc, undone)[0].Regions[1].Condition(); got != domain.Active || !mentions(held, "apps[0].regions[1].state", "off was set by hand") {
		t.Errorf("region is %s, undone %v", got, held)
	}
}

func TestVanishedPartsKeepTheirEpochs(t *testing.T) {
	t.Parallel()
	full := threeRegions()
	ops := set(t, full, Operational{}, "b", domain.Off, domain.Active, domain.Draining)
	ops = ops.with("m", func(s *AppState) { s.Policies["gray"] = PolicyOps{Epoch: 4, Share: new(100)} })
	without := edited2(full, func(d *Document) {
		d.Apps[0].Regions = slices.Delete(d.Apps[0].Regions, 1, 2)
		d.Apps[0].Policies = nil
	})
	gone, held := ops.Carry(full, without, false)
	if want := (RegionOps{Epoch: 2}); gone.Apps["m"].Regions["b"] != want || len(held) > 0 {
		t.Errorf("a vanished region keeps %+v, want %+v; held %v", gone.Apps["m"].Regions["b"], want, held)
	}
	if want := (PolicyOps{Epoch: 4}); gone.Apps["m"].Policies["gray"] != want {
		t.Errorf("a vanished policy keeps %+v, want %+v", gone.Apps["m"].Policies["gray"], want)
	}
	still, _ := gone.Carry(without, without, false)
	back, _ := still.Carry(without, full, false)
	if got := Apply(full, back)[0].Regions[1]; got.Epoch != 2 || got.Condition() != domain.Active {
		t.Errorf("back again: %+v, want epoch 2 and the document's state", got)
	}

	other := &Document{Apps: []App{{Key: "other"}}}
	noApp, _ := ops.Carry(full, other, false)
	backApp, _ := noApp.Carry(other, full, false)
	if got := Apply(full, backApp)[0].Regions; got[0].Epoch != 1 || got[1].Epoch != 2 {
		t.Errorf("an app that went and came back has epochs %d and %d, want 1 and 2", got[0].Epoch, got[1].Epoch)
	}
}

func TestSaltsAreStoredAndOutliveTheDocument(t *testing.T) {
	t.Parallel()
	doc := threeRegions()
	first, _ := Operational{}.Carry(nil, doc, false)
	want := map[string]string{"gray": "m/gray", "otherwise": "m/otherwise",
		"failover/a": "failover/m/a", "failover/b": "failover/m/b", "failover/c": "failover/m/c",
		"endpoint/a": "endpoint/m/a", "endpoint/b": "endpoint/m/b", "endpoint/c": "endpoint/m/c"}
	if !maps.Equal(first.Apps["m"].Salts, want) {
		t.Errorf("first publish stores %v, want %v", first.Apps["m"].Salts, want)
	}
	stated := edited2(doc, func(d *Document) {
		d.Apps[0].Policies[0].Salt = "2024"
		d.Apps[0].Salts = map[string]string{"otherwise": "old"}
	})
	second, _ := first.Carry(doc, stated, false)
	third, _ := second.Carry(stated, doc, false) // no longer stated
	if salts := third.Apps["m"].Salts; salts["gray"] != "2024" || salts["otherwise"] != "old" {
		t.Errorf("salts that are no longer stated: %v", salts)
	}
	if rules := RulesOf(&Apply(doc, third)[0], third); rules.Salts["gray"] != "2024" {
		t.Errorf("the rules draw with %v", rules.Salts)
	}
	without := edited2(doc, func(d *Document) { d.Apps[0].Policies = nil })
	fourth, _ := third.Carry(doc, without, false)
	fifth, _ := fourth.Carry(without, doc, false)
	if fifth.Apps["m"].Salts["gray"] != "2024" {
		t.Errorf("a policy that came back draws with %q", fifth.Apps["m"].Salts["gray"])
	}
	if plain, _ := first.Carry(doc, without, false); plain.Apps["m"].Salts["gray"] != "" {
		t.Error("a default salt of a vanished policy is kept, and so the state grows with every gray")
	}
}

// Whatever is done, in any order, epochs only rise and an app that was usable
// stays usable.
func TestEpochsOnlyRise(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 21))
		docs := []*Document{threeRegions(), edited2(threeRegions(), func(d *Document) { d.Apps[0].Regions = d.Apps[0].Regions[:2] }),
			edited2(threeRegions(), func(d *Document) { d.Apps[0].Regions[2].State = domain.Off }), {Apps: []App{{Key: "other"}}}}
		doc := docs[0]
		ops, _ := Operational{}.Carry(nil, doc, false)
		highest := map[string]uint32{}
		for range 200 {
			region := []string{"a", "b", "c"}[random.IntN(3)]
			states := []domain.RegionState{domain.Active, domain.Draining, domain.Off}
			var next Operational
			var err error
			switch random.IntN(4) {
			case 0:
				to := docs[random.IntN(len(docs))]
				next, _ = ops.Carry(doc, to, random.IntN(2) == 0)
				doc = to
			case 1:
				endpoints := []string{"main", "spare"}
				from := random.IntN(2)
				next, err = Swap{App: "m", Region: region, From: endpoints[from], To: endpoints[1-from]}.On(doc, ops)
			default:
				next, err = SetRegion{App: "m", Region: region, Expect: states[random.IntN(3)], State: states[random.IntN(3)]}.On(doc, ops)
				if err == nil && !usable(Apply(doc, next)[0].Regions) {
					t.Fatalf("seed %d: an action left no usable region", seed)
				}
			}
			if err != nil {
				continue
			}
			for key, r := range next.Apps["m"].Regions {
				if r.Epoch < highest[key] {
					t.Fatalf("seed %d: epoch of %s fell from %d to %d", seed, key, highest[key], r.Epoch)
				}
				highest[key] = r.Epoch
			}
			for key, epoch := range highest {
				if next.Apps["m"].Regions[key].Epoch < epoch {
					t.Fatalf("seed %d: epoch %d of %s is lost", seed, epoch, key)
				}
			}
			ops = next
		}
	}
}

func TestDiffIsReadable(t *testing.T) {
	t.Parallel()
	old := document(t)
	before, _ := Operational{}.Carry(nil, old, false)
	doc := edited(t, old, func(d *Document) {
		app := &d.Apps[0]
		app.Regions[0].Capacity = 70
		app.Regions[1].Failover = nil
		app.Policies[0], app.Policies[2] = app.Policies[2], app.Policies[0]
		app.Policies[1].When.Not = &policy.When{HasUser: new(true)}
		app.Policies = append(app.Policies, policy.Policy{Key: "last", MatchAll: true, Then: policy.Action{Region: "hf"}})
		*d.Lists[0].IDs = append(*d.Lists[0].IDs, "d-secret")
		d.Tables = nil
	})
	after, _ := before.Carry(old, doc, false)
	after, err := SetRegion{App: "mobile", Region: "hf", Expect: "active", State: "off"}.On(doc, after)
	if err != nil {
		t.Fatal(err)
	}
	found, err := Diff(Configuration{old, before}, Configuration{doc, after})
	if err != nil {
		t.Fatal(err)
	}
	var text string
	for _, d := range found {
		text += d.String() + "\n"
	}
	same(t, "testdata/document/diff.txt", text)
	if none, err := Diff(Configuration{doc, after}, Configuration{doc, after}); err != nil || len(none) > 0 {
		t.Errorf("a configuration differs from itself: %v, %v", none, err)
	}
	if all, err := Diff(Configuration{}, Configuration{doc, after}); err != nil || len(all) == 0 {
		t.Errorf("nothing is new in a first release: %v, %v", all, err)
	}
}
