package release

import (
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

func TestSetShare(t *testing.T) {
	t.Parallel()
	doc := nightDocument(t)
	ramped := doc.app("mobile").policy("ramped")
	grown, err := SetShare{App: "mobile", Policy: "gray", Expect: "500", To: 2000}.On(doc, Operational{})
	if err != nil {
		t.Fatal(err)
	}
	if got := Position(Apply(doc, grown)[0].policy("gray").Then.Share); got != "2000" {
		t.Errorf("the share is %s then", got)
	}
	back, err := SetShare{App: "mobile", Policy: "gray", Expect: "2000", To: 500}.On(doc, grown)
	if err != nil || *grown.Apps["mobile"].Policies["gray"].Share != 2000 || *back.Apps["mobile"].Policies["gray"].Share != 500 {
		t.Errorf("a step back: %v, and the state before %v", err, grown)
	}
	for name, c := range map[string]struct {
		set  SetShare
		code string
	}{
		"an unknown app":      {SetShare{App: "x", Policy: "gray", Expect: "500", To: 1}, "unknown_app"},
		"an unknown policy":   {SetShare{App: "mobile", Policy: "x", Expect: "500", To: 1}, "unknown_policy"},
		"a policy for all":    {SetShare{App: "mobile", Policy: "rest", Expect: "500", To: 1}, "no_gray"},
		"buckets one by one":  {SetShare{App: "mobile", Policy: "ranges", Expect: "buckets [[0 99]]", To: 1}, "share_form"},
		"a ramp":              {SetShare{App: "mobile", Policy: "ramped", Expect: Position(ramped.Then.Share), To: 1}, "share_form"},
		"more than everybody": {SetShare{App: "mobile", Policy: "gray", Expect: "500", To: 10_001}, "bad_share"},
		"less than nobody":    {SetShare{App: "mobile", Policy: "gray", Expect: "500", To: -1}, "bad_share"},
		"another by now":      {SetShare{App: "mobile", Policy: "gray", Expect: "100", To: 1}, "expect_mismatch"},
		"what is so already":  {SetShare{App: "mobile", Policy: "gray", Expect: "500", To: 500}, "no_change"},
	} {
		if _, err := c.set.On(doc, Operational{}); fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

func TestAbortGray(t *testing.T) {
	t.Parallel()
	doc := nightDocument(t)
	soft, err := AbortGray{App: "mobile", Policy: "gray", Expect: "500"}.On(doc, Operational{})
	if err != nil {
		t.Fatal(err)
	}
	if p := soft.Apps["mobile"].Policies["gray"]; p.Share == nil || *p.Share != 0 || p.Epoch != 0 {
		t.Errorf("a soft abort leaves %+v", p)
	}
	if got := Position(Apply(doc, soft)[0].policy("gray").Then.Share); got != "0" {
		t.Errorf("the share is %s then", got)
	}
	hard, err := AbortGray{App: "mobile", Policy: "gray", Expect: "0", Hard: true}.On(doc, soft)
	if err != nil {
		t.Fatal(err)
	}
	if p := hard.Apps["mobile"].Policies["gray"]; *p.Share != 0 || p.Epoch != 1 {
		t.Errorf("a hard abort leaves %+v", p)
	}
	if _, err := (AbortGray{App: "mobile", Policy: "ranges", Expect: "buckets [[0 99]]"}).On(doc, Operational{}); err != nil {
		t.Errorf("a gray of buckets: %v", err)
	}
	for code, g := range map[string]AbortGray{
		"unknown_app":     {App: "x", Policy: "gray", Expect: "500"},
		"unknown_policy":  {App: "mobile", Policy: "x", Expect: "500"},
		"no_gray":         {App: "mobile", Policy: "rest", Expect: "500"},
		"expect_mismatch": {App: "mobile", Policy: "gray", Expect: "501"},
	} {
		if _, err := g.On(doc, Operational{}); fault.CodeOf(err) != code {
			t.Errorf("%+v: %v, want %s", g, err, code)
		}
	}
	if _, err := (AbortGray{App: "mobile", Policy: "gray", Expect: "0"}).On(doc, soft); fault.CodeOf(err) != "no_change" {
		t.Errorf("aborted twice: %v", err)
	}
}

// A ramp is aborted like any share, by what the screen shows of it, and a hold at 0
// outlives publications until it is released.
func TestAbortHoldsARamp(t *testing.T) {
	t.Parallel()
	doc := nightDocument(t)
	const shown = "ramp 0 to 5000, 2027-01-01T01:00:00Z to 2027-01-02T01:00:00Z"
	if got := Position(doc.app("mobile").policy("ramped").Then.Share); got != shown {
		t.Fatalf("the position is %q, want %q", got, shown)
	}
	held, err := AbortGray{App: "mobile", Policy: "ramped", Expect: shown}.On(doc, Operational{})
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range []bool{false, true} {
		carried, problems := held.Carry(doc, doc, release)
		share := Apply(doc, carried)[0].policy("ramped").Then.Share
		if release != (share.Ramp != nil) || release != (len(problems) == 1) || !release && *share.Of != 0 {
			t.Errorf("released %v: %+v, %v", release, share, problems)
		}
	}
	longer := clone(*doc)
	longer.app("mobile").policy("ramped").Then.Share.Ramp.To = 6000
	if _, problems := held.Carry(doc, &longer, false); len(problems) != 1 || !strings.Contains(problems[0].Detail, "ramp 0 to 6000") {
		t.Errorf("another ramp under the hold: %v", problems)
	}
}

// A ramp whose time has come warns when it is written, and one that is over always does.
func TestCheckWarnsOfRampsInThePast(t *testing.T) {
	t.Parallel()
	doc := nightDocument(t)
	ramp := doc.app("mobile").policy("ramped").Then.Share.Ramp
	for _, c := range []struct {
		name     string
		now      time.Time
		previous *Document
		says     string
	}{
		{"to come", ramp.Start.Add(-time.Hour), nil, ""},
		{"begun", ramp.Start.Add(12 * time.Hour), nil, "has passed: the share is 2500 of 10000 at once"},
		{"begun before this publication", ramp.Start.Add(12 * time.Hour), doc, ""},
		{"over", ramp.End, doc, "is over: the share is 5000; write of: 5000"},
	} {
		warnings, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: c.now, Previous: c.previous})
		if err != nil {
			t.Fatal(err)
		}
		if said := slices.ContainsFunc(warnings, func(p fault.Problem) bool {
			return strings.Contains(p.Path, "ramp") && (c.says == "" || strings.Contains(p.Detail, c.says))
		}); said != (c.says != "") {
			t.Errorf("%s: %v", c.name, warnings)
		}
	}
}

func TestBucketMovesOfARamp(t *testing.T) {
	t.Parallel()
	night := nightDocument(t).app("mobile").policy("ramped").Then.Share.Ramp
	ramp := policy.Action{Share: &policy.Share{Region: "b", Ramp: night}}
	toA := policy.Action{Region: "a"}
	from, to := Configuration{Document: gray(share("b", 0), toA)}, Configuration{Document: gray(ramp, toA)}
	if got := BucketMoves(from, to); len(got) != 1 || got[0].String() != "mobile/gray: 5000 of 10000 buckets move next policy → b by 2027-01-02T01:00:00Z" {
		t.Errorf("in the end: %v", got)
	}
	half := night.Start.Add(night.End.Sub(night.Start) / 2)
	if got := BucketMovesAt(from, to, half); len(got) != 1 || got[0].Buckets != 2500 || !got[0].By.IsZero() {
		t.Errorf("half way: %v", got)
	}
	if got := BucketMovesAt(from, to, night.Start); len(got) != 0 {
		t.Errorf("at its start: %v", got)
	}
	if got := BucketMoves(to, to); len(got) != 0 {
		t.Errorf("no change: %v", got)
	}
}

// The walk before a release is used meets a ramp at its end, so the guard of the
// edge counts everybody whom it will move.
func TestBigRampsNeedApproval(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.serving(t, nil)
	ramped := func(to int, approve bool) *Manifest {
		return next(b.first, func(d *Document, _ *Operational, c *Change) {
			start := madeAt()
			app := d.app("corporate")
			app.Policies = []policy.Policy{{Key: "slowly", MatchAll: true, Then: policy.Action{
				Share: &policy.Share{Region: "gz", Ramp: &policy.Ramp{From: 0, To: to, Start: start, End: start.AddDate(0, 0, 7)}}}}}
			app.Otherwise = policy.Action{Split: pieces("bj", 10_000)}
			app.Regions[1].State = domain.Active
			c.Approve.BigMove = approve
		})
	}
	before := next(b.first, func(d *Document, _ *Operational, c *Change) {
		d.app("corporate").Otherwise, c.Approve.BigMove = policy.Action{Split: pieces("bj", 10_000)}, true
	})
	b.accept(t, k, before)
	b.first = before
	wantCode(t, k.Accept(t.Context(), b.sign(ramped(5_000, false)), b.blobs, "test"), "big_move")
	wantCode(t, k.Accept(t.Context(), b.sign(ramped(10_000, false)), b.blobs, "test"), "big_move")
	b.accept(t, k, ramped(5_000, true))
}
