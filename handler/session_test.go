package handler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// splitOf is an action that gives sh this many buckets and hf the rest.
func splitOf(sh int) policy.Action {
	hf := policy.Whole - sh
	return policy.Action{Split: []policy.Share{{Region: "sh", Of: &sh}, {Region: "hf", Of: &hf}}}
}

// domainsOf are the domains that a session of a region may be sent to.
var domainsOf = map[string][]string{"sh": {"wapabst.a.com.cn", "wapabst2.a.com.cn"}, "hf": {"wapcdst.b.com.cn"}}

// churn are the edits between which TestNoSessionMovesUnderChurn alternates:
// none of them may move a session, and all of them move new ones.
func churn() []func(*release.Document) {
	return []func(*release.Document){
		nil,
		func(d *release.Document) { d.Apps[0].Otherwise = splitOf(1000) },
		func(d *release.Document) { // the two endpoints of sh change places
			d.Apps[0].Otherwise = splitOf(9000)
			d.Apps[0].Regions[0].Endpoints[0].State = domain.Standby
			d.Apps[0].Regions[0].Endpoints[1].State = domain.Serving
		},
		func(d *release.Document) {
			d.Apps[0].Otherwise = splitOf(5000)
			d.Apps[0].Regions[1].State = domain.Draining
		},
		func(d *release.Document) { // other policies, regions in another order
			app := &d.Apps[0]
			app.Name = "Renamed"
			app.Policies = []policy.Policy{{Key: "everybody", MatchAll: true, Then: policy.Action{Region: "hf"}}}
			app.Otherwise = splitOf(2500)
			slices.Reverse(app.Regions)
		},
	}
}

// TestNoSessionMovesUnderChurn is E03: 1,000 sessions of 20 requests each, to
// two replicas that swap among five releases meanwhile, each on its own: no
// session changes its region.
func TestNoSessionMovesUnderChurn(t *testing.T) {
	t.Parallel()
	const workers, sessions, requests, swapEvery = 4, 250, 20, 32
	a := newFixture(t)
	b := newReplica(t, a.dir, func(o *Options) { o.Now = a.clock })
	replicas := []*fixture{a, b}
	snaps := make([][]*release.Snapshot, len(replicas))
	var seen [5]atomic.Int64 // answers by release
	for i, edit := range churn() {
		p := a.publish(t, 412+uint64(i), edit)
		for n, r := range replicas {
			snaps[n] = append(snaps[n], r.load(t, p))
			r.current.Store(snaps[n][i])
		}
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(w)))
			home, token := make([]string, sessions), make([]string, sessions)
			for range requests {
				a.now.Add(int64(10 * time.Second))
				for s := range sessions {
					if random.IntN(swapEvery) == 0 {
						n := random.IntN(len(replicas))
						replicas[n].current.Store(snaps[n][random.IntN(len(snaps[n]))])
					}
					got, ok := replicas[random.IntN(len(replicas))].try(t, "/route",
						"X-Device-Id", fmt.Sprintf("e03-%d-%d", w, s), "X-Session-Token", token[s])
					if !ok {
						return
					}
					seen[got.Release-412].Add(1)
					if home[s] == "" {
						home[s] = got.Region
					}
					if got.Region != home[s] || !slices.Contains(domainsOf[got.Region], got.Domain) {
						t.Errorf("session %d-%d began in %s and release %d sends it to %s, %s", w, s, home[s], got.Release, got.Region, got.Domain)
					}
					token[s] = got.Session
				}
			}
		})
	}
	all.Wait()
	for i := range seen {
		if seen[i].Load() < 100 {
			t.Errorf("release %d answered %d requests, too few to show anything", 412+i, seen[i].Load())
		}
	}
	for _, r := range replicas {
		r.wantMetric(t, `dispatch_bad_inputs_total{kind="session"} 0`)
		r.wantMetric(t, `dispatch_bad_inputs_total{kind="stale_session"} 0`)
	}
	newcomersMove(t, a, snaps[0])
}

// newcomersMove holds that the releases do differ for those without a session.
func newcomersMove(t *testing.T, f *fixture, snaps []*release.Snapshot) {
	t.Helper()
	moved := 0
	for i := range 100 {
		regions := map[string]bool{}
		for _, s := range snaps {
			f.current.Store(s)
			regions[f.ask(t, "/route", "X-Device-Id", fmt.Sprint("e03-new-", i)).Region] = true
		}
		if len(regions) > 1 {
			moved++
		}
	}
	if moved < 50 {
		t.Errorf("the releases give only %d of 100 new devices different regions", moved)
	}
}

// TestReplicasAgree is E18: three replicas read the same key files and compile
// the same release by themselves. The same device gets the same answer from each
// of 1,000 rounds, whichever of them is asked from whichever peer, and each takes
// the tokens of the others.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	const rounds = 1000
	first := newFixture(t)
	p := first.publish(t, 413, nil)
	replicas := []*fixture{first, newReplica(t, first.dir), newReplica(t, first.dir)}
	for _, r := range replicas {
		r.current.Store(r.load(t, p))
	}
	random := rand.New(rand.NewPCG(18, 0))
	peer := func() string {
		return fmt.Sprintf("203.0.%d.%d:%d", random.IntN(256), random.IntN(256), 1024+random.IntN(60000))
	}
	same := func(a, b answer) bool {
		return a.Region == b.Region && a.Domain == b.Domain && slices.Equal(a.Alternates, b.Alternates) &&
			a.Release == b.Release && a.Record == b.Record
	}
	var always answer // of the device that asks in every round
	regions := map[string]int{}
	for i := range rounds {
		for _, device := range []string{"e18", fmt.Sprint("e18-", i)} {
			var want answer
			for _, n := range random.Perm(len(replicas)) {
				fresh := replicas[n].ask(t, "/route", "X-Device-Id", device, "peer", peer())
				if want.Domain == "" {
					want = fresh
				}
				kept := replicas[n].ask(t, "/route", "X-Device-Id", device, "X-Session-Token", want.Session, "peer", peer())
				if !same(fresh, want) || !same(kept, want) {
					t.Fatalf("%s at replica %d: %+v new, %+v with a token; another replica said %+v", device, n, fresh, kept, want)
				}
				want.Session = kept.Session
			}
			regions[want.Region]++
			if device != "e18" {
				continue
			}
			if i == 0 {
				always = want
			}
			if !same(want, always) {
				t.Fatalf("round %d: %+v, the first said %+v", i, want, always)
			}
		}
	}
	if len(regions) != 2 {
		t.Errorf("all devices are in %v", regions)
	}
	for _, r := range replicas {
		r.wantMetric(t, `dispatch_bad_inputs_total{kind="session"} 0`)
	}
}

// TestAnEditOfSharesMovesNewSessionsOnly is e61: 80/20 becomes 50/50.
func TestAnEditOfSharesMovesNewSessionsOnly(t *testing.T) {
	t.Parallel()
	const ids = 10_000
	f := newFixture(t)
	split := func(number uint64, sh int) {
		f.current.Store(f.snapshotOf(t, number, func(d *release.Document) { d.Apps[0].Otherwise = splitOf(sh) }))
	}
	// newSessions begins one session an id and holds the share of sh within 4 sigma.
	newSessions := func(prefix string, share float64) []answer {
		answers, sh := make([]answer, ids), 0.0
		for i := range answers {
			if answers[i] = f.ask(t, "/route", "X-Device-Id", fmt.Sprint(prefix, i)); answers[i].Region == "sh" {
				sh++
			}
		}
		if sigma := math.Sqrt(ids * share * (1 - share)); math.Abs(sh-ids*share) > 4*sigma {
			t.Errorf("%.0f of %d new sessions are in sh, want %.0f ± %.0f", sh, ids, ids*share, 4*sigma)
		}
		return answers
	}
	split(413, 8000)
	old := newSessions("old-", 0.8)
	stays := func(id, times int) {
		for range times {
			was := old[id]
			old[id] = f.ask(t, "/route", "X-Device-Id", fmt.Sprint("old-", id), "X-Session-Token", was.Session)
			if old[id].Region != was.Region {
				t.Errorf("session %d moved from %s to %s at release %d", id, was.Region, old[id].Region, old[id].Release)
			}
		}
	}
	stays(0, 100)
	split(414, 5000)
	moved := 0
	for id := range 1000 {
		if f.ask(t, "/route", "X-Device-Id", fmt.Sprint("old-", id)).Region != old[id].Region {
			moved++
		}
		stays(id, 1)
	}
	stays(0, 100)
	if moved < 200 { // of the 80 % in sh, 30 % of all leave
		t.Errorf("without their tokens only %d of 1,000 would have moved", moved)
	}
	newSessions("new-", 0.5)
}

// TestALoginMovesNobody is e22: the user id appears on the second call. A bucket
// by device is the same as before; one by user waits until the token ends.
func TestALoginMovesNobody(t *testing.T) {
	t.Parallel()
	for _, by := range []policy.BucketBy{policy.ByDevice, policy.ByUser} {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) {
				app := &d.Apps[0]
				app.BucketBy, app.Policies, app.Otherwise = by, nil, splitOf(5000)
			}))
			apart := 0 // users whose own bucket is elsewhere than where the session began
			for i := range 200 {
				f.now.Store(0)
				device := []string{"X-Device-Id", fmt.Sprint("e22-", i), "peer", "10.0.0.5:1"}
				login := append(device, "X-User-Id", fmt.Sprint("user-", i))
				before := f.ask(t, "/route", device...)
				if a := f.ask(t, "/route", append(login, "X-Session-Token", before.Session)...); a.Region != before.Region {
					t.Errorf("login %d moved a session from %s to %s", i, before.Region, a.Region)
				}
				anew := f.ask(t, "/route", login...)
				if anew.Region != before.Region {
					apart++
				}
				f.now.Store(int64(time.Hour))
				if a := f.ask(t, "/route", append(login, "X-Session-Token", before.Session)...); a.Region != anew.Region {
					t.Errorf("login %d: an ended token led to %s, want %s", i, a.Region, anew.Region)
				}
			}
			if by == policy.ByDevice && apart != 0 || by == policy.ByUser && apart < 50 {
				t.Errorf("by %s, %d of 200 logins would have moved without a token", by, apart)
			}
		})
	}
}

// TestASwapHoldsForEveryLaterRequest is e52 within one process: a request that
// begins after the pointer was stored has the new release. None is kept anywhere.
func TestASwapHoldsForEveryLaterRequest(t *testing.T) {
	t.Parallel()
	const workers, requests = 4, 500
	f := newFixture(t)
	next := f.snapshotOf(t, 413, func(d *release.Document) { d.Apps[0].Otherwise = policy.Action{Region: "hf"} })
	var stored atomic.Bool
	var before atomic.Int64
	warm := make(chan struct{})
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for later := 0; later < requests; {
				after := stored.Load()
				a, _ := f.try(t, "/route", "X-Device-Id", fmt.Sprintf("e52-%d-%d", w, later))
				if !after {
					if before.Add(1) == 100 {
						close(warm)
					}
					continue
				}
				if later++; a.Release != 413 || a.Region != "hf" {
					t.Errorf("a request after the swap: release %d, region %s", a.Release, a.Region)
				}
			}
		})
	}
	<-warm
	f.current.Store(next)
	stored.Store(true)
	all.Wait()
}
