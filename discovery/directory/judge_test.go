package directory

import (
	"context"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
)

// reportOf is what the process behind an entry says of itself.
func reportOf(in discovery.Instance) wire.Report {
	return wire.Report{ID: in.ID, Service: in.Service, Address: in.Address, Started: in.Started}
}

// reporting sends the report now and every 10 s until the returned function ends it.
func reporting(d *Directory, in discovery.Instance) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			d.report([]wire.Report{reportOf(in)})
			if !pause(ctx, wire.ReportEvery) {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// started is an instance with a start.
func started(service string, n int, when time.Time) discovery.Instance {
	in := at(service, n)
	in.Started = when
	return in
}

// A19: one element of the fingerprint at a time speaks against an entry; approved, it
// takes traffic. Entries that fit, or that nobody reports about, always do.
func TestOneElementOfTheFingerprint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		report func(in discovery.Instance) discovery.Instance // of the process, for the entry
		why    string                                         // empty: nothing is wrong
	}{
		"fits":    {func(in discovery.Instance) discovery.Instance { return in }, ""},
		"started": {func(in discovery.Instance) discovery.Instance { in.Started = in.Started.Add(time.Minute); return in }, "started: registered as 2000-01-01T00:00:00.000Z, but orders-10.0.0.2:8080 reports 2000-01-01T00:01:00.000Z"},
		"host": {func(in discovery.Instance) discovery.Instance { in.Address.Host = "10.9.9.9"; return in },
			"address: registered at 10.0.0.2:8080, but orders-10.0.0.2:8080 reports from 10.9.9.9:8080"},
		"port": {func(in discovery.Instance) discovery.Instance { in.Address.Port++; return in }, "address: registered at 10.0.0.2:8080, but orders-10.0.0.2:8080 reports from 10.0.0.2:8081"},
		"id": {func(in discovery.Instance) discovery.Instance { in.ID = "other"; return in },
			"address: 10.0.0.2:8080 is where other of orders reports from"},
		"another process, of another service": {func(in discovery.Instance) discovery.Instance {
			in.ID, in.Service, in.Started = "other", "pay", in.Started.Add(time.Minute)
			return in
		}, "address: 10.0.0.2:8080 is where other of pay reports from"},
		"another name of the process": {func(in discovery.Instance) discovery.Instance { in.ID, in.Service = "other", "pay"; return in }, ""},
		"less than a millisecond": {func(in discovery.Instance) discovery.Instance {
			in.Started = in.Started.Add(999 * time.Microsecond)
			return in
		}, ""},
		"start unknown to itself":  {func(in discovery.Instance) discovery.Instance { in.Started = time.Time{}; return in }, ""},
		"nobody reports about it":  {func(in discovery.Instance) discovery.Instance { return at("pay", 9) }, ""},
		"same id in another place": {func(in discovery.Instance) discovery.Instance { x := at("pay", 9); x.ID = in.ID; return x }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book, memory := newBook("consul"), newShelf()
				entry := started("orders", 1, time.Now())
				book.write("orders", entry, at("orders", 2))
				d, end := follow(t, memory, book)
				defer end()
				defer reporting(d, c.report(entry))()
				time.Sleep(14 * time.Second)
				if v, _ := d.View(); len(v.Queue) != 0 || addresses(v, "orders") != "10.0.0.2:8080 10.0.0.3:8080" {
					t.Fatalf("within the grace: %+v", v.Queue)
				}
				time.Sleep(4 * time.Second)
				v, _ := d.View()
				if c.why == "" {
					if len(v.Queue) != 0 || strings.Contains(addresses(v, "orders"), "!") {
						t.Fatalf("queue %+v", v.Queue)
					}
					return
				}
				if addresses(v, "orders") != "10.0.0.2:8080!suspicious 10.0.0.3:8080" || len(v.Queue) != 1 || v.Queue[0].Why != c.why {
					t.Fatalf("orders %q, queue %+v", addresses(v, "orders"), v.Queue)
				}
				if q := v.Queue[0]; q.ID != entry.ID || q.Address != entry.Address || !q.Started.Equal(entry.Started) || q.Service != "orders" || q.Registry != "consul" || q.Since.IsZero() {
					t.Errorf("queue %+v", q)
				}
				time.Sleep(time.Minute)
				if v, _ := d.View(); len(v.Queue) != 1 || v.Queue[0].Since.Sub(v.At) > -time.Minute {
					t.Errorf("a minute later: %+v", v.Queue)
				}
				memory.do(func() {
					memory.verdicts = []Verdict{{Fingerprint: v.Queue[0].Fingerprint, Service: "orders", Accept: true}}
				})
				d.Recheck()
				synctest.Wait()
				time.Sleep(2 * buildPace)
				if v, _ := d.View(); len(v.Queue) != 0 || strings.Contains(addresses(v, "orders"), "!") {
					t.Errorf("accepted: orders %q, queue %+v", addresses(v, "orders"), v.Queue)
				}
			})
		})
	}
}

// X17: a plain restart is no ghost, whichever of registry and report is first, and
// whichever node the new process reports to. The entry of the old process, if it
// stays, is one.
// After a restart the reports of both processes are shared for half a minute, in any
// order: that of the one which started last counts.
// T11's other side: what vanished with most others and still accepts connections is
// handed out as a last resort, unless another registry has it.
func TestVanishedAreALastResort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := newBook("consul"), newBook("nacos")
		all := []discovery.Instance{at("orders", 1), at("orders", 2), at("orders", 3)}
		first.write("orders", slices.Clone(all)...)
		d, end := follow(t, nil, first, second)
		defer end()
		s := serve(t, d, nil)
		settle()
		first.drop("orders", slices.Clone(all[:1]), slices.Clone(all[1:]))
		settle()
		got := ask(t, s, wire.Ask{}).Services["orders"]
		if len(got.Instances) != 3 || len(got.Scale) != 2 || got.Scale[all[1].ID] != (route.Scale{Why: route.Vanished}) {
			t.Fatalf("callers get %+v", got)
		}
		v, _ := d.View()
		if n := v.Match("orders", rules.Selector{Cluster: all[0].Cluster, Region: all[0].Region, Env: all[0].Env}, all[0].Version); n != 1 {
			t.Errorf("rules match %d instances", n)
		}
		second.write("orders", at("orders", 2))
		time.Sleep(5 * time.Second) // its names are looked at every 2 s
		if got := ask(t, s, wire.Ask{}).Services["orders"]; len(got.Instances) != 3 || len(got.Scale) != 1 {
			t.Errorf("with the other registry callers get %+v", got)
		}
		first.drop("orders", slices.Clone(all[:1]), nil)
		settle()
		if got := ask(t, s, wire.Ask{}).Services["orders"]; len(got.Instances) != 2 || len(got.Scale) != 0 {
			t.Errorf("after its probe failed callers get %+v", got)
		}
	})
}

func TestNewestStartCounts(t *testing.T) {
	t.Parallel()
	old := reportOf(started("orders", 1, time.Unix(1000, 0)))
	fresh := reportOf(started("orders", 1, time.Unix(2000, 0)))
	for _, all := range [][]wire.Report{{old, fresh}, {fresh, old}} {
		r := &reports{by: map[key]told{}}
		r.share(all, time.Unix(3000, 0), time.Unix(3000, 0))
		if got := r.by[key{"orders", old.ID}]; !got.Started.Equal(fresh.Started) {
			t.Errorf("of %v, the process started %s counts", all, got.Started)
		}
	}
}

func TestRestartIsNoGhost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ entry, report time.Duration }{
		"entry first":           {0, 10 * time.Second},
		"report first":          {10 * time.Second, 0},
		"together":              {0, 0},
		"the entry never comes": {time.Hour, 0},
	} {
		for _, elsewhere := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					book, memory := newBook("consul"), newShelf()
					old, fresh := started("orders", 1, time.Now()), started("orders", 1, time.Now().Add(time.Hour))
					book.write("orders", old)
					d, end := follow(t, memory, book)
					defer end()
					stop := reporting(d, old)
					time.Sleep(5 * time.Minute)
					stop()
					entry := time.AfterFunc(c.entry, func() { book.write("orders", fresh) })
					defer entry.Stop()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() {
						pause(ctx, c.report)
						for ctx.Err() == nil {
							if elsewhere {
								memory.put(reportOf(fresh))
							} else {
								d.report([]wire.Report{reportOf(fresh)})
							}
							pause(ctx, wire.ReportEvery)
						}
					}()
					queued := 0
					for range 50 {
						time.Sleep(time.Second)
						v, _ := d.View()
						queued = max(queued, len(v.Queue))
					}
					if want := 0; c.entry == time.Hour {
						if want = 1; queued != want {
							t.Errorf("the entry of the old process: %d in the queue, want %d", queued, want)
						}
					} else if queued != want {
						t.Errorf("%d in the queue after a plain restart", queued)
					}
				})
			})
		}
	}
}

func TestGhostLeavesTheQueueWhenItFits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		now := time.Now()
		old, fresh := started("orders", 1, now), started("orders", 1, now.Add(time.Minute))
		book.write("orders", old)
		d, end := follow(t, memory, book)
		defer end()
		stop := reporting(d, fresh)
		time.Sleep(20 * time.Second)
		if v, _ := d.View(); len(v.Queue) != 1 {
			t.Fatalf("queue %+v", v.Queue)
		}
		stop()
		time.Sleep(2 * time.Minute)
		if v, _ := d.View(); len(v.Queue) != 1 {
			t.Error("a ghost left the queue because the process that spoke against it fell silent")
		}
		book.write("orders", fresh)
		settle()
		if v, _ := d.View(); len(v.Queue) != 0 || addresses(v, "orders") != "10.0.0.2:8080" {
			t.Errorf("after it registered again: %+v", v.Queue)
		}
	})
}

// An instance that two registries name may report under the ID of either.
func TestReportUnderTheIDOfAnotherRegistry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nacos, consul, memory := newBook("nacos"), newBook("consul"), newShelf()
		known, named := started("orders", 1, time.Now()), at("orders", 1)
		named.ID = "10.0.0.2#8080#DEFAULT"
		nacos.write("orders", named)
		consul.write("orders", known)
		d, end := follow(t, memory, nacos, consul)
		defer end()
		cpu := 12.5
		for range 6 {
			r := reportOf(known)
			r.Load.CPU = &cpu
			d.report([]wire.Report{r})
			time.Sleep(wire.ReportEvery)
		}
		v, _ := d.View()
		in := v.Services[0].Instances[0]
		if len(v.Queue) != 0 || in.ID != named.ID || in.Load.CPU == nil || *in.Load.CPU != cpu {
			t.Errorf("queue %+v, instance %+v", v.Queue, in)
		}
	})
}

// Without shared state nothing is called a ghost, and what was one stays one.
func TestNoGhostsWithoutMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, fresh := started("orders", 1, time.Now()), started("orders", 1, time.Now().Add(time.Hour))
		book := newBook("consul")
		book.write("orders", old)
		d, end := follow(t, nil, book)
		defer end()
		defer reporting(d, fresh)()
		time.Sleep(time.Minute)
		if v, _ := d.View(); len(v.Queue) != 0 || strings.Contains(addresses(v, "orders"), "!") {
			t.Errorf("queue %+v", v.Queue)
		}
	})
}

func TestMemoryAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		now := time.Now()
		one, two := started("orders", 1, now), started("orders", 2, now)
		other1, other2 := started("orders", 1, now.Add(time.Hour)), started("orders", 2, now.Add(time.Hour))
		book.write("orders", one, two)
		memory.verdicts = []Verdict{{Fingerprint: Fingerprint{ID: "gone"}, Service: "orders", Isolate: true}}
		d, end := follow(t, memory, book)
		defer end()
		defer reporting(d, other1)()
		time.Sleep(20 * time.Second)
		memory.do(func() { memory.problem = errors.New("database is away") })
		time.Sleep(sharedFor)
		defer reporting(d, other2)()
		time.Sleep(time.Minute)
		v, _ := d.View()
		if addresses(v, "orders") != "10.0.0.2:8080!suspicious 10.0.0.3:8080" || len(v.Isolated) != 1 {
			t.Errorf("orders %q, isolated %+v", addresses(v, "orders"), v.Isolated)
		}
		saves := 0
		memory.do(func() { memory.problem, saves = nil, memory.saves })
		time.Sleep(30 * time.Second)
		if v, _ := d.View(); addresses(v, "orders") != "10.0.0.2:8080!suspicious 10.0.0.3:8080!suspicious" {
			t.Errorf("when it is back: %q", addresses(v, "orders"))
		}
		memory.do(func() {
			if _, there := memory.reports[shelfKey(reportOf(other2))]; memory.saves <= saves || !there {
				t.Errorf("reports were not saved when it came back: %+v", memory.reports)
			}
		})
	})
}

// T22, T53: isolation holds whatever the instance registers, until it is lifted.
func TestIsolationSurvivesRegistrations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		one := started("orders", 1, time.Now())
		book.write("orders", one, at("orders", 2))
		d, end := follow(t, memory, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		first := ask(t, s, wire.Ask{})
		_, changed := d.View()
		isolate := Verdict{Fingerprint: Fingerprint{one.ID, one.Address, one.Started}, Service: "orders", Isolate: true, By: "a", At: time.Now()}
		memory.do(func() { memory.verdicts = []Verdict{isolate} })
		d.Recheck()
		asked := time.Now()
		got := ask(t, s, after(first)) // waits for it
		if scale := got.Services["orders"].Scale; time.Since(asked) > 2*buildPace || len(scale) != 1 || scale[one.ID].Thousandths != 0 || scale[one.ID].Why != "isolated" {
			t.Errorf("after %s callers get %+v", time.Since(asked), scale)
		}
		<-changed
		for range 3 {
			one.Started = one.Started.Add(time.Minute)
			book.write("orders", one, at("orders", 2))
			book.write("orders", at("orders", 2))
			settle()
			one.Address.Port++
			book.write("orders", one, at("orders", 2))
			settle()
			if v, _ := d.View(); !strings.Contains(addresses(v, "orders"), "!isolated") || len(v.Isolated) != 1 {
				t.Fatalf("it came back as %q", addresses(v, "orders"))
			}
		}
		for name, lift := range map[string][]Verdict{"gone": nil, "lifted": {isolate, {Fingerprint: isolate.Fingerprint, Service: "orders", At: time.Now()}}} {
			memory.do(func() { memory.verdicts = lift })
			settle()
			if v, _ := d.View(); strings.Contains(addresses(v, "orders"), "!") || len(v.Isolated) != 0 {
				t.Errorf("%s: orders %q, isolated %+v", name, addresses(v, "orders"), v.Isolated)
			}
			memory.do(func() { memory.verdicts = []Verdict{isolate} })
			settle()
		}
	})
}

// An ID that is told apart by its address stays isolated when it is alone again, and
// the other way round.
func TestIsolationFollowsTheListedID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		one, two := at("orders", 1), at("orders", 2)
		one.ID, two.ID = "orders", "orders"
		book.write("orders", one, two)
		memory.verdicts = []Verdict{{Fingerprint: Fingerprint{ID: "orders@10.0.0.2:8080", Address: one.Address}, Service: "orders", Isolate: true}}
		d, end := follow(t, memory, book)
		defer end()
		settle()
		if v, _ := d.View(); addresses(v, "orders") != "10.0.0.2:8080!isolated 10.0.0.3:8080" {
			t.Errorf("of two: %q", addresses(v, "orders"))
		}
		book.write("orders", one)
		settle()
		if v, _ := d.View(); addresses(v, "orders") != "10.0.0.2:8080!isolated" {
			t.Errorf("alone: %q", addresses(v, "orders"))
		}
	})
}

func TestRefusedLeavesTheQueueAndStaysOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		old, fresh := started("orders", 1, time.Now()), started("orders", 1, time.Now().Add(time.Minute))
		book.write("orders", old)
		d, end := follow(t, memory, book)
		defer end()
		defer reporting(d, fresh)()
		time.Sleep(20 * time.Second)
		v, _ := d.View()
		refuse := Verdict{Fingerprint: v.Queue[0].Fingerprint, Service: "orders", Refuse: true, At: time.Now()}
		memory.do(func() { memory.verdicts = []Verdict{refuse} })
		settle()
		if v, _ := d.View(); len(v.Queue) != 0 || len(v.Isolated) != 1 || addresses(v, "orders") != "10.0.0.2:8080!suspicious" {
			t.Errorf("refused: orders %q, queue %+v, isolated %+v", addresses(v, "orders"), v.Queue, v.Isolated)
		}
		book.write("orders", fresh) // another process, which fits
		settle()
		if v, _ := d.View(); addresses(v, "orders") != "10.0.0.2:8080" {
			t.Errorf("the next process: %q", addresses(v, "orders"))
		}
	})
}

// A10: load is known for ReportLives, and unknown is absent, not 0.
func TestLoadExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", many("orders", 2)...)
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		first := ask(t, s, wire.Ask{})
		cpu, zero := 42.0, int64(0)
		r := reportOf(at("orders", 1))
		r.Load = discovery.Load{CPU: &cpu, Connections: &zero}
		if w := send(s, wire.ReportsPath, []wire.Report{r}); w.Code != 204 {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		asked := time.Now()
		got := ask(t, s, after(first))
		load := got.Loads["orders"]
		if waited := time.Since(asked); waited < wire.HoldFor || got.Services != nil || len(load) != 1 || *load[r.ID].CPU != cpu || *load[r.ID].Connections != 0 || load[r.ID].Memory != nil {
			t.Errorf("after %s: %+v", waited, got)
		}
		if full := ask(t, s, wire.Ask{}).Services["orders"]; *full.Load[r.ID].CPU != cpu || len(full.Load) != 1 {
			t.Errorf("full answer: %+v", full.Load)
		}
		if v, _ := d.View(); *v.Services[0].Instances[1].Load.CPU != cpu || v.Services[0].Instances[0].Load != (discovery.Load{}) {
			t.Errorf("view: %+v", v.Services[0].Instances)
		}
		time.Sleep(ReportLives)
		synctest.Wait()
		got = ask(t, s, after(got))
		if load, told := got.Loads["orders"]; !told || len(load) != 0 {
			t.Errorf("after it expired: %+v", got)
		}
		if v, _ := d.View(); v.Services[0].Instances[1].Load != (discovery.Load{}) {
			t.Errorf("view: %+v", v.Services[0].Instances[1])
		}
	})
}

func TestReportsReachOtherNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		book.write("orders", at("orders", 1))
		a, endA := follow(t, memory, book)
		defer endA()
		b, endB := follow(t, memory, book)
		defer endB()
		settle()
		cpu := 5.0
		r := reportOf(at("orders", 1))
		r.Load.CPU = &cpu
		a.report([]wire.Report{r})
		time.Sleep(reportsEvery + 2*memoryEvery)
		synctest.Wait()
		if v, _ := b.View(); v.Services[0].Instances[0].Load.CPU == nil {
			t.Error("the other node knows no load")
		}
		stamp := func(d *Directory) time.Time { return d.tables.by["orders"].load[r.ID].Heard }
		if heard := stamp(b); heard.IsZero() || !heard.Equal(stamp(a)) {
			t.Errorf("the other node heard it at %s, this one at %s: a caller of both would count it twice", heard, stamp(a))
		}
		memory.do(func() { clear(memory.reports) }) // they expired
		time.Sleep(reportsEvery + 2*memoryEvery)
		synctest.Wait()
		for name, d := range map[string]*Directory{"the node itself": a, "the other": b} {
			if v, _ := d.View(); v.Services[0].Instances[0].Load.CPU != nil {
				t.Errorf("%s still knows a load that expired", name)
			}
		}
	})
}

// A report that has come here since Memory was read is newer than what it said.
func TestNewestReportCounts(t *testing.T) {
	t.Parallel()
	r, now := newReports(), time.Now()
	old, fresh := reportOf(started("orders", 1, now)), reportOf(started("orders", 1, now.Add(time.Hour)))
	is := func(want wire.Report) bool {
		got, _ := r.of("orders", registered{id: old.ID})
		return got.Started.Equal(want.Started)
	}
	r.hear(fresh, now, false)
	if r.share([]wire.Report{old}, now.Add(1), now.Add(2)); !is(fresh) {
		t.Error("a report that was not saved yet gave way to an older one")
	}
	r.keep([]wire.Report{fresh}, now.Add(3))
	r.hear(fresh, now.Add(6), true)
	if r.share([]wire.Report{old}, now.Add(5), now.Add(7)); !is(fresh) {
		t.Error("a report that came while Memory was read gave way")
	}
	if r.share([]wire.Report{old}, now.Add(8), now.Add(9)); !is(old) {
		t.Error("what was told to another node since then does not count")
	}
	r.hear(fresh, now.Add(20), false)
	if r.keep([]wire.Report{old}, now.Add(15)); len(r.unsaved()) != 1 {
		t.Error("a report that came while an older one was saved counts as saved")
	}
}

// Callers count reports: one that says what the last one said is another one.
func TestEqualReportsAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		got, full := ask(t, s, wire.Ask{}), 100.0
		r := reportOf(at("orders", 1))
		r.Load.CPU = &full
		var last time.Time
		for range 5 {
			d.report([]wire.Report{r})
			time.Sleep(loadPace + lookAgain)
			synctest.Wait()
			got = ask(t, s, after(got))
			heard := got.Loads["orders"][r.ID].Heard
			if !heard.After(last) {
				t.Fatalf("a report heard at %s after one of %s", heard, last)
			}
			last = heard
		}
		time.Sleep(loadPace + lookAgain)
		synctest.Wait()
		if got = ask(t, s, after(got)); got.Loads != nil {
			t.Errorf("without another report callers are told %+v", got.Loads)
		}
	})
}

// Callers are told loads as often as they are reported, people at once.
func TestLoadsArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		got, answers := ask(t, s, wire.Ask{}), 0
		for i := range 60 {
			cpu := float64(i)
			r := reportOf(at("orders", 1))
			r.Load.CPU = &cpu
			d.report([]wire.Report{r})
			time.Sleep(lookAgain + buildPace)
			if v, _ := d.View(); *v.Services[0].Instances[0].Load.CPU != cpu {
				t.Fatalf("people see %v after a second, want %g", *v.Services[0].Instances[0].Load.CPU, cpu)
			}
			if next := d.tables.since(got.Epoch, got.Version, nil); next.loads != nil {
				answers++
				got.Version = next.head.Version
			}
		}
		if answers < 5 || answers > 7 {
			t.Errorf("callers were told %d times in a minute, want 6", answers)
		}
	})
}
