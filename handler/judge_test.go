package handler

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// moreToHefei is bank.yaml with another split, a new list member and an app that is gone.
func moreToHefei(d *release.Document) {
	d.Apps[0].Policies[0].Then.Region = "hf" // staff
	*d.Apps[0].Otherwise.Split[0].Of, *d.Apps[0].Otherwise.Split[1].Of = 3000, 7000
	d.Apps = d.Apps[:1]
	*d.Lists[0].IDs = append(*d.Lists[0].IDs, "d-7")
}

// traffic asks as many clients do: some come back with their session, some are on
// lists, some have no id.
func (f *fixture) traffic(tb testing.TB, n int) {
	tb.Helper()
	for i := range n {
		headers := []string{"X-Device-Id", fmt.Sprintf("d-%d", 990+i), "X-Platform", "ios"}
		switch {
		case i%10 == 1:
			headers = nil
		case i%7 == 0:
			headers = []string{"X-User-Id", fmt.Sprintf("u-%d", i)}
		case i%3 == 0:
			headers = append(headers, "X-Session-Token", f.ask(tb, "/route", headers...).Session)
		}
		f.ask(tb, []string{"/route", "/route?app=corporate"}[i%2], headers...)
	}
}

// The verdict is what one gets who tries every request that was asked, one by one.
func TestAVerdictIsWhatTryingAllSays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.traffic(t, 300)
	base := f.current.Load()
	draft := f.snapshotOf(t, 413, moreToHefei)
	f.at(10 * time.Minute)
	v := f.handler.Judge(t.Context(), base, draft)
	if v.Problem != "" || v.Each != 1 || v.Since != 10*time.Minute || len(v.Apps) != 2 {
		t.Fatalf("verdict %+v", v)
	}
	want := map[string]*fleet.AppVerdict{}
	examples := map[string]map[string]bool{}
	all := f.handler.sample.take(f.clock())
	if len(all.refs) < 300 {
		t.Fatalf("%d requests are remembered", len(all.refs))
	}
	for n := range all.refs {
		app, req := all.at(n)
		w := want[app]
		if w == nil {
			w = &fleet.AppVerdict{App: app, Before: map[string]uint64{}, After: map[string]uint64{}, Later: map[string]uint64{}}
			want[app], examples[app] = w, map[string]bool{}
		}
		decided := func(s *release.Snapshot, session bool) string {
			served, asked := s.Apps[app], req
			if served == nil {
				return ""
			}
			if !session {
				asked.Session = policy.Session{}
			}
			if d := served.Table.Decide(&asked); d.Region >= 0 {
				return served.Table.Regions()[d.Region].Key
			}
			return ""
		}
		from, to := decided(base, true), decided(draft, true)
		w.Sampled++
		w.Before[from]++
		w.After[to]++
		later := to
		if from != to {
			w.Moved++
			if slices.Contains([]string{"d-1001", "d-1002", "d-7"}, req.Device) || req.User == "vip-1" {
				w.Listed++
			}
			if req.Device != "" {
				examples[app][f.key.Hash(whitelist.Device, req.Device).String()] = true
			} else if req.User != "" {
				examples[app][f.key.Hash(whitelist.User, req.User).String()] = true
			}
		} else if a, b := decided(base, false), decided(draft, false); req.Session.Region != "" && a != b {
			w.Held++
			later = b
		}
		w.Later[later]++
	}
	var moved, held uint64
	for _, got := range v.Apps {
		w := want[got.App]
		var moves uint64
		for _, m := range got.Moves {
			moves += m.N
		}
		moved, held = moved+got.Moved, held+got.Held
		if got.Sampled != w.Sampled || got.Moved != w.Moved || got.Listed != w.Listed || got.Held != w.Held || moves != got.Moved ||
			!maps.Equal(got.Before, w.Before) || !maps.Equal(got.After, w.After) || !maps.Equal(got.Later, w.Later) {
			t.Errorf("got %+v, want %+v", got, *w)
		}
		if len(got.Examples) > judgeExamples || got.Moved > 50 && len(got.Examples) < judgeExamples {
			t.Errorf("%d examples", len(got.Examples))
		}
		for _, e := range got.Examples {
			if !examples[got.App][e] {
				t.Errorf("example %s does not move", e)
			}
		}
	}
	if moved == 0 || held == 0 || want["mobile"].Listed == 0 {
		t.Errorf("%d moved and %d held: the test tries nothing", moved, held)
	}
	if text := fmt.Sprintf("%+v", v); strings.Contains(text, "d-1001") || strings.Contains(text, "u-7") {
		t.Error("an id left its replica")
	}
}

func TestATrialUnderTheSameRulesMovesNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if v := f.handler.Judge(t.Context(), f.current.Load(), f.current.Load()); v.Problem != "" || len(v.Apps) != 0 {
		t.Errorf("without a request: %+v", v)
	}
	f.traffic(t, 50)
	for _, a := range f.handler.Judge(t.Context(), f.current.Load(), f.snapshotOf(t, 413, nil)).Apps {
		if a.Moved != 0 || a.Held != 0 || a.Sampled == 0 || !reflect.DeepEqual(a.Before, a.After) || len(a.Examples) != 0 {
			t.Errorf("verdict %+v", a)
		}
	}
}

// Ids are tried as the draft spells them.
func TestATrialSpellsIdsAsTheDraft(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask(t, "/route", "X-Device-Id", "D-1001")
	v := f.handler.Judge(t.Context(), f.current.Load(), f.snapshotOf(t, 413, func(d *release.Document) {
		for i := range d.Apps {
			d.Apps[i].IDCase = release.CaseFold
		}
	}))
	if len(v.Apps) != 1 || v.Apps[0].After["sh"] != 1 { // it is d-1001 of the staff now
		t.Errorf("verdict %+v", v)
	}
}

func TestATrialEndsWithItsTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.traffic(t, 20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v := f.handler.Judge(ctx, f.current.Load(), f.current.Load()); v.Problem == "" {
		t.Errorf("verdict %+v", v)
	}
}

// BenchmarkJudge is a trial on a full sample, with its pauses.
func BenchmarkJudge(b *testing.B) {
	f := newFixture(b)
	for i := range sampleRequests - 1 {
		f.ask(b, "/route", "X-Device-Id", fmt.Sprintf("d-%d", i), "X-Platform", "ios")
	}
	base, draft := f.current.Load(), f.snapshotOf(b, 413, moreToHefei)
	for b.Loop() {
		if v := f.handler.Judge(b.Context(), base, draft); v.Apps[0].Sampled != sampleRequests-1 {
			b.Fatal(v)
		}
	}
}
