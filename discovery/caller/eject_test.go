package caller

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/outlier"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

// farm is instances that calls and dials find well or not.
type farm struct {
	mu     sync.Mutex // guards the rest
	dead   map[string]Outcome
	dials  map[string]int
	atOnce map[string]int // dials of an address under way
	fault  error          // of this process, that ends all dials
	most   int
}

func newFarm() *farm {
	return &farm{dead: map[string]Outcome{}, dials: map[string]int{}, atOnce: map[string]int{}}
}

// set makes calls to an address end so; dials fail where calls are Unreachable.
func (f *farm) set(address string, o Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead[address] = o
}

// lack makes dials end with a fault of this process; nil: with none.
func (f *farm) lack(fault error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *farm) dial(_ context.Context, address string) error {
	f.mu.Lock()
	f.dials[address]++
	f.atOnce[address]++
	f.most = max(f.most, f.atOnce[address])
	o, fault := f.dead[address], f.fault
	f.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.atOnce[address]--
	if fault != nil {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", fault)}
	}
	if o == Unreachable {
		return errors.New("connection refused")
	}
	return nil
}

func (f *farm) dialed(address string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials[address]
}

// call picks, and says how the call ended.
func (f *farm) call(t *testing.T, c *Caller, ctx context.Context, service string) Pick {
	t.Helper()
	p, err := c.Pick(ctx, service)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	o := f.dead[p.Instance.Address.String()]
	f.mu.Unlock()
	c.Done(ctx, &p, o)
	return p
}

// farmed is a caller of a farm, over artificial time.
func farmed(t *testing.T, opt func(*Options), all ...discovery.Instance) (*Caller, *farm, *node) {
	t.Helper()
	n, f := newNode(t), newFarm()
	n.list(all[0].Service, all...)
	o := options(n)
	if opt != nil {
		opt(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.transport, c.dial = one(n), f.dial
	run(t, c)
	ready(t, c)
	return c, f, n
}

// serve makes so many calls, one each pause, and counts them by address.
func serve(t *testing.T, c *Caller, f *farm, times int, pause time.Duration) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for range times {
		counts[f.call(t, c, t.Context(), "orders").Instance.Address.String()]++
		time.Sleep(pause)
	}
	return counts
}

// C10, A42, T16: one that refuses is out within 2 s at five calls a second, and takes
// nothing while its peers do; it is let back by a dial, on trial first.
func TestRefusedIsPutOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log logged
		registry := prometheus.NewRegistry()
		all := instances(5, "orders", "prod", "v1")
		bad := all[2].Address.String()
		c, f, _ := farmed(t, func(o *Options) { o.Log, o.Metrics = log.logger(), registry }, all...)
		f.set(bad, Unreachable)
		began := time.Now()
		for f.call(t, c, t.Context(), "orders").Instance.Address.String() != bad {
			time.Sleep(200 * time.Millisecond)
		}
		first := time.Now()
		for metric(t, registry, "dispatch_discovery_ejected", "unreachable") == 0 {
			if time.Since(first) > 2*time.Second {
				t.Fatal("it is not out")
			}
			time.Sleep(200 * time.Millisecond)
			f.call(t, c, t.Context(), "orders")
		}
		out := time.Now()
		t.Logf("the first call failed after %v, out %v later", first.Sub(began), out.Sub(first))
		time.Sleep(2 * coalesce)
		if got := serve(t, c, f, 100, 200*time.Millisecond); got[bad] != 0 || len(got) != 4 {
			t.Errorf("while it is out: %v", got)
		}
		f.set(bad, Answered)
		time.Sleep(time.Until(out.Add(31 * time.Second)))
		got := picks(t.Context(), c, "orders", 5000)
		if part := float64(got[bad]) / 5000; part < 0.01 || part > 0.045 { // 10 of 410
			t.Errorf("on trial it has %.3f", part)
		}
		serve(t, c, f, 1000, 10*time.Millisecond)
		got = picks(t.Context(), c, "orders", 5000)
		if part := float64(got[bad]) / 5000; part < 0.17 || part > 0.23 {
			t.Errorf("after its trial it has %.3f", part)
		}
		for name, want := range map[string]float64{"dispatch_discovery_ejected": 0, "dispatch_discovery_ejections_total": 1, "dispatch_discovery_dials_failed_total": 2} {
			if got := metric(t, registry, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if metric(t, registry, "dispatch_discovery_outcomes_total", "answered") < 1000 || metric(t, registry, "dispatch_discovery_outcomes_total", "unreachable") < 1 {
			t.Error("outcomes are not counted")
		}
		text := log.String()
		for _, want := range []string{"takes no calls from here", "kind=unreachable", "instance=" + bad, "of=orders", "until=", "takes its calls again"} {
			if strings.Count(text, want) < 1 {
				t.Errorf("the log lacks %q:\n%s", want, text)
			}
		}
		if strings.Count(text, "takes no calls from here") != 1 {
			t.Errorf("one line for one ejection:\n%s", text)
		}
	})
}

// A table is swapped within 50 ms, and a bit for compiling.
func TestOutAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := instances(5, "orders", "prod", "v1")
		bad := all[0].Address.String()
		c, f, _ := farmed(t, nil, all...)
		time.Sleep(time.Second)
		f.set(bad, Failed)
		failed := 0
		for failed < 20 {
			if f.call(t, c, t.Context(), "orders").Instance.Address.String() == bad {
				failed++
			}
		}
		time.Sleep(coalesce)
		synctest.Wait()
		if got := picks(t.Context(), c, "orders", 1000); got[bad] != 0 {
			t.Errorf("T71: after 20 failures of 20: %v", got)
		}
	})
}

// A process that hangs keeps accepting connections; one that is cut off does not.
// Each is out within 4.5 s of the first call that hangs.
func TestSilentIsPutOut(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		dial Outcome
		kind string
	}{{"cut off", Unreachable, "unreachable"}, {"hangs", Silent, "failing"}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				all := instances(2, "orders", "prod", "v1")
				bad := all[0].Address.String()
				c, f, _ := farmed(t, func(o *Options) { o.Metrics = registry }, all...)
				f.set(bad, row.dial)
				began := time.Now()
				var calls sync.WaitGroup
				for time.Since(began) < 4500*time.Millisecond {
					calls.Go(func() { // five calls a second to it, each of which ends after 3 s
						for {
							p, err := c.Pick(t.Context(), "orders")
							if err != nil {
								t.Error(err)
								return
							}
							if p.Instance.Address.String() == bad {
								time.Sleep(3 * time.Second)
								c.Done(t.Context(), &p, Silent)
								return
							}
							if metric(t, registry, "dispatch_discovery_ejected", row.kind) == 1 {
								return
							}
						}
					})
					if metric(t, registry, "dispatch_discovery_ejected", row.kind) == 1 {
						break
					}
					time.Sleep(200 * time.Millisecond)
				}
				t.Logf("out after %v", time.Since(began))
				if metric(t, registry, "dispatch_discovery_ejected", row.kind) != 1 {
					t.Error("it is not out after 4.5 s")
				}
				calls.Wait()
			})
		})
	}
}

// T81, A42: of eight that fail at least half stay; when all are unreachable they all
// serve, and explain says so. No pick leaves the coordinates.
func TestAllAreBad(t *testing.T) {
	t.Parallel()
	for o, least := range map[Outcome]int{Failed: 4, Unreachable: 8} {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := append(instances(8, "orders", "prod", "v1"), instance("orders", "10.9.0.1:80", "test", "v1"))
				c, f, _ := farmed(t, nil, all...)
				for _, in := range all {
					f.set(in.Address.String(), o)
				}
				serve(t, c, f, 2000, 5*time.Millisecond)
				got := picks(t.Context(), c, "orders", 2000)
				if len(got) != least || got["10.9.0.1:80"] > 0 {
					t.Errorf("picks go to %v", got)
				}
				p := f.call(t, c, t.Context(), "orders")
				if p.Single() {
					t.Error("one of eight is called single")
				}
				_, e, err := c.Explain(p.ID())
				if err != nil || e.Panic != (o == Unreachable) {
					t.Errorf("explain: panic %v, %v", e.Panic, err)
				}
			})
		})
	}
}

// T80: the only instance is never out; what failed can say that it is single.
func TestSingleStays(t *testing.T) {
	t.Parallel()
	for _, o := range []Outcome{Failed, Unreachable, Silent} {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := instances(1, "orders", "prod", "v1")
				c, f, _ := farmed(t, nil, append(all, instance("orders", "10.9.0.1:80", "test", "v1"))...)
				f.set(all[0].Address.String(), o)
				if got := serve(t, c, f, 500, 10*time.Millisecond); got[all[0].Address.String()] != 500 {
					t.Errorf("%v", got)
				}
				p := f.call(t, c, t.Context(), "orders")
				if !p.Single() || p.Step != 1 {
					t.Errorf("%+v", p.Choice)
				}
				if other, err := c.PickOther(t.Context(), "orders", p.Instance); err != nil || other.Instance.Address != p.Instance.Address {
					t.Errorf("%+v, %v", other, err)
				}
			})
		})
	}
}

// A version that cannot be reached gives its calls to the fallback, whole; one whose
// answers are failures keeps an instance, and with it all calls: the fallback has no part.
func TestFallbackTakesOver(t *testing.T) {
	t.Parallel()
	for o, want := range map[Outcome]map[string]int{Unreachable: {"v1": 1}, Failed: {"v2": 1}} {
		synctest.Test(t, func(t *testing.T) {
			all := []discovery.Instance{instance("orders", "10.0.0.1:80", "prod", "v2"), instance("orders", "10.0.0.2:80", "prod", "v2"), instance("orders", "10.0.0.3:80", "prod", "v1")}
			r := rule("orders", "v2")
			r.Fallback = &rules.Fallback{Version: "v1", Weight: 0}
			c, f, n := farmed(t, nil, all...)
			n.publish(1, r)
			time.Sleep(time.Second)
			f.set("10.0.0.1:80", o)
			f.set("10.0.0.2:80", o)
			serve(t, c, f, 500, 5*time.Millisecond)
			by := map[string]map[string]bool{} // addresses by version
			for range 500 {
				p, err := c.Pick(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				if by[p.Instance.Version] == nil {
					by[p.Instance.Version] = map[string]bool{}
				}
				by[p.Instance.Version][p.Instance.Address.String()] = true
			}
			got := map[string]int{}
			for version, addresses := range by {
				got[version] = len(addresses)
			}
			if !maps.Equal(got, want) {
				t.Errorf("%v: so many of each version serve: %v, want %v", o, got, want)
			}
		})
	}
}

// T21: whoever is out stays so when the registry flaps, for a service too; a restart
// at its address begins anew, and who is not in the list is not dialled.
func TestRegistryLetsNobodyBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := instances(3, "orders", "prod", "v1")
		bad := all[0].Address.String()
		c, f, n := farmed(t, nil, all...)
		f.set(bad, Unreachable)
		serve(t, c, f, 50, 50*time.Millisecond)
		flap := func(away func(), back func()) {
			away()
			time.Sleep(3 * time.Second)
			before := f.dialed(bad)
			time.Sleep(2 * time.Minute)
			if f.dialed(bad) != before {
				t.Error("it was dialled while it was not in the list")
			}
			back()
			time.Sleep(3 * time.Second)
		}
		list := func() { n.list("orders", all...) }
		flap(func() { n.list("orders", all[1:]...) }, list)
		if got := picks(t.Context(), c, "orders", 500); got[bad] > 0 || len(got) != 2 {
			t.Errorf("after its registry flapped: %v", got)
		}
		flap(func() {
			n.change(func() { n.put("orders", wire.Service{Gone: true}) })
		}, list)
		if got := picks(t.Context(), c, "orders", 500); got[bad] > 0 || len(got) != 2 {
			t.Errorf("after its service flapped: %v", got)
		}
		f.set(bad, Answered)
		all[0].Started = all[0].Started.Add(time.Hour)
		list()
		time.Sleep(coldFor + rampFor + 3*time.Second)
		if got := picks(t.Context(), c, "orders", 500); len(got) != 3 {
			t.Errorf("after it restarted and warmed: %v", got)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.most > 1 {
			t.Errorf("%d dials of an address at a time", f.most)
		}
	})
}

// One of eight that nobody reaches, and that were all hot, is let back on trial: it
// stays among those that serve last, or it would get all calls.
func TestHotDoesNotHideATrial(t *testing.T) {
	t.Parallel()
	all := instances(8, "orders", "prod", "v1")
	l := &list{instances: all, watch: &watch{service: "orders", outliers: outlier.New[fingerprint]()}, heat: heat{of: map[fingerprint]reading{}}}
	now := time.Now()
	var there []outlier.Listed[fingerprint]
	for i := range all {
		f := fingerprintOf(&all[i])
		there = append(there, outlier.Listed[fingerprint]{Key: f, At: outlier.Place{Coordinates: all[i].Coordinates}})
		l.heat.of[f] = reading{part: 28}
	}
	for _, seen := range l.watch.outliers.See(there, now) {
		for range 3 {
			l.watch.outliers.Note(seen, Unreachable, now)
		}
	}
	keys, _ := l.watch.outliers.Due(8, now)
	for _, k := range keys {
		l.watch.outliers.Dialed(k, false, now)
	}
	now = now.Add(time.Minute)
	l.watch.outliers.Due(8, now)
	l.watch.outliers.Dialed(keys[0], true, now)
	counts, table := map[string]int{}, route.Compile(route.Input{Service: "orders", Home: home(), Instances: all, Scale: l.scale(now)})
	for range 8000 {
		choice, err := table.Pick(route.Query{}, rand.Uint64())
		if err != nil {
			t.Fatal(err)
		}
		counts[choice.Instance.ID]++
	}
	for id, n := range counts {
		if len(counts) != 8 || n > 1300 {
			t.Fatalf("%s has %d of 8000, lowered are %v", id, n, l.scale(now))
		}
	}
}

// Whoever stays out changes nothing: no table is made of it.
func TestTermsMakeNoTables(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := instances(8, "orders", "prod", "v1")
		registry := prometheus.NewRegistry()
		c, f, _ := farmed(t, func(o *Options) { o.Metrics = registry }, all...)
		for _, in := range all[:4] {
			f.set(in.Address.String(), Unreachable)
		}
		serve(t, c, f, 400, 10*time.Millisecond)
		before, terms := c.tables.Load(), metric(t, registry, "dispatch_discovery_ejections_total")
		time.Sleep(time.Hour)
		if metric(t, registry, "dispatch_discovery_ejected", "unreachable") != 4 || metric(t, registry, "dispatch_discovery_ejections_total") < terms+40 {
			t.Fatal("they are not out for the hour")
		}
		if made := c.tables.Load() - before; made > 0 {
			t.Errorf("an idle hour made %d tables", made)
		}
	})
}

// A process that has no file descriptors left puts nobody out for it.
func TestOwnFaultsPutNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log logged
		registry := prometheus.NewRegistry()
		all := instances(3, "orders", "prod", "v1")
		c, f, n := farmed(t, func(o *Options) { o.Log, o.Metrics = log.logger(), registry }, all[:2]...)
		f.call(t, c, t.Context(), "orders")
		f.set(all[0].Address.String(), Unreachable)
		f.set(all[2].Address.String(), Unreachable)
		f.lack(syscall.EMFILE)
		n.list("orders", all...)
		serve(t, c, f, 50, time.Second)
		if got := metric(t, registry, "dispatch_discovery_ejected") + metric(t, registry, "dispatch_discovery_dials_failed_total"); got != 0 {
			t.Errorf("%v are out, or dials that were not made are counted", got)
		}
		if made := f.dialed(all[0].Address.String()); made < 20 || made > 60 {
			t.Errorf("%d dials in 50 s", made)
		}
		if text := log.String(); strings.Count(text, "kind=dial") != 1 || !strings.Contains(text, "too many open files") {
			t.Errorf("the log says:\n%s", text)
		}
		f.lack(nil)
		time.Sleep(5 * time.Second)
		if got := metric(t, registry, "dispatch_discovery_ejected", "unreachable"); got != 2 {
			t.Errorf("when dials can be made again %v are out", got)
		}
	})
}

// D10: a laptop enters an address that only itself reaches. It is found out while it
// would be warmed up, and no call goes there.
func TestWhoNobodyReachesGetsNoCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := instances(3, "orders", "prod", "v1")
		c, f, n := farmed(t, nil, all[:2]...)
		serve(t, c, f, 10, 50*time.Millisecond)
		laptop := all[2].Address.String()
		f.set(laptop, Unreachable)
		n.list("orders", all...)
		if got := serve(t, c, f, 2000, 50*time.Millisecond); got[laptop] > 0 || len(got) != 2 {
			t.Errorf("calls went to %v", got)
		}
		if f.dialed(laptop) < 3 {
			t.Errorf("it was dialled %d times", f.dialed(laptop))
		}
		f.set(laptop, Answered)
		if got := serve(t, c, f, 4000, 50*time.Millisecond); len(got) != 3 {
			t.Errorf("when it can be reached calls go to %v", got)
		}
	})
}

// A caller in prod dials no newcomer of the test env: it can never pick one, and a
// firewall may be between.
func TestNobodyIsDialledWhereNobodyIsPicked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		all := instances(3, "orders", "prod", "v1")
		far := []discovery.Instance{instance("orders", "10.9.0.1:80", "test", "v1"), instance("orders", "10.9.0.2:80", "test", "v1")}
		c, f, n := farmed(t, func(o *Options) { o.Metrics = registry }, all[0], all[1], far[0])
		serve(t, c, f, 20, 50*time.Millisecond)
		f.set(far[1].Address.String(), Unreachable)
		n.list("orders", append(all, far...)...)
		serve(t, c, f, 1000, 100*time.Millisecond)
		if got := f.dialed(far[1].Address.String()); got != 0 {
			t.Errorf("it was dialled %d times", got)
		}
		if f.dialed(all[2].Address.String()) != 1 || metric(t, registry, "dispatch_discovery_ejected") != 0 {
			t.Errorf("prod's newcomer was dialled %d times", f.dialed(all[2].Address.String()))
		}
	})
}

// The only one that takes calls is never out as failing, whatever takes none beside it.
func TestTheOnlyOneThatServesStays(t *testing.T) {
	t.Parallel()
	zero := 0
	for name, idle := range map[string]func(*discovery.Instance) string{
		"drained":    func(in *discovery.Instance) string { in.Weight = &zero; return "" },
		"isolated":   func(*discovery.Instance) string { return route.Isolated },
		"suspicious": func(*discovery.Instance) string { return route.Suspicious },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := instances(3, "orders", "prod", "v1")
				registry := prometheus.NewRegistry()
				c, f, n := farmed(t, func(o *Options) { o.Metrics = registry }, all...)
				later := slices.Clone(all)
				scale := map[string]route.Scale{}
				for i := range later[1:] {
					if why := idle(&later[i+1]); why != "" {
						scale[later[i+1].ID] = route.Scale{Why: why}
					}
				}
				n.change(func() { n.put("orders", wire.Service{Instances: later, Scale: scale}) })
				time.Sleep(time.Second)
				f.set(all[0].Address.String(), Failed)
				if got := serve(t, c, f, 100, 10*time.Millisecond); len(got) != 1 || metric(t, registry, "dispatch_discovery_ejected") != 0 {
					t.Errorf("calls go to %v; %v are out", got, metric(t, registry, "dispatch_discovery_ejected"))
				}
				n.list("orders", all...)
				time.Sleep(time.Second)
				serve(t, c, f, 300, 10*time.Millisecond)
				if metric(t, registry, "dispatch_discovery_ejected") != 1 {
					t.Error("when others take calls again it is not out")
				}
			})
		})
	}
}

// A service that is gone for good is forgotten.
func TestWatchesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := instances(2, "orders", "prod", "v1")
		c, f, n := farmed(t, nil, all...)
		f.set(all[0].Address.String(), Unreachable)
		serve(t, c, f, 50, 50*time.Millisecond)
		n.change(func() { n.put("orders", wire.Service{Gone: true}) })
		time.Sleep(11 * time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.watches) > 0 {
			t.Errorf("%d watches", len(c.watches))
		}
	})
}

// Calls that end after their service went leave no gauge behind.
func TestNobodyIsOutOfAServiceThatWent(t *testing.T) {
	t.Parallel()
	for _, later := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			all := instances(3, "orders", "prod", "v1")
			c, f, n := farmed(t, func(o *Options) { o.Metrics = registry }, all...)
			f.set(all[0].Address.String(), Failed)
			serve(t, c, f, 300, time.Millisecond)
			var open []Pick
			for range 300 {
				p, err := c.Pick(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				if p.Instance.Address == all[1].Address {
					open = append(open, p)
				}
			}
			if metric(t, registry, "dispatch_discovery_ejected") != 1 {
				t.Fatal("nobody is out")
			}
			f.set(all[1].Address.String(), Unreachable)
			n.change(func() { n.put("orders", wire.Service{Gone: true}) })
			time.Sleep(later)
			for i := range open {
				c.Done(t.Context(), &open[i], Unreachable)
			}
			time.Sleep(5 * time.Second)
			if got := metric(t, registry, "dispatch_discovery_ejected"); got != 0 {
				t.Errorf("%v after the service went: %v are out", later, got)
			}
			n.list("orders", all...)
			time.Sleep(time.Second)
			if got := metric(t, registry, "dispatch_discovery_ejected"); got == 0 {
				t.Error("it is back, and who was out is not shown")
			}
		})
	}
}

// Addresses of the configuration are counted and never put out.
func TestOverridesStay(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	self := home()
	self.Env = "test"
	c := filled(t, Options{Self: self, Overrides: []string{"orders@10.8.0.1:80;10.8.0.2:80"}, Metrics: registry}, rules.Set{}, instances(2, "orders", "test", "v1"))
	for range 200 {
		p, err := c.Pick(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		c.Done(t.Context(), &p, Unreachable)
		other, err := c.PickOther(t.Context(), "orders", p.Instance)
		if err != nil || other.Instance.Address == p.Instance.Address || other.ID() == "" {
			t.Fatalf("%+v, %v", other, err)
		}
	}
	if got := picks(t.Context(), c, "orders", 500); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := metric(t, registry, "dispatch_discovery_outcomes_total", "unreachable"); got != 200 {
		t.Errorf("%v are counted", got)
	}
}

// PickOther avoids the address, is one pick, and can be made again.
func TestPickOther(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	c := filled(t, Options{Metrics: registry}, rules.Set{}, instances(2, "orders", "prod", "v1"))
	not := instances(2, "orders", "prod", "v1")[0] // another copy of it
	for range 1000 {
		p, err := c.PickOther(Keep(t.Context()), "orders", &not)
		if err != nil || p.Instance.Address == not.Address {
			t.Fatalf("%+v, %v", p, err)
		}
		r, e, err := c.Explain(p.ID())
		if err != nil || e.Chosen != r.Chosen || r.Chosen != p.Instance.Address.String() {
			t.Fatalf("%+v, %+v, %v", r, e, err)
		}
	}
	if got := metric(t, registry, "dispatch_discovery_picks_total"); got != 1000 {
		t.Errorf("%v picks are counted", got)
	}
	if p, err := c.PickOther(t.Context(), "unknown", &not); err == nil || p.ID() == "" {
		t.Errorf("%+v, %v", p, err)
	}
}

// All calls that did not go well are recorded, with how they ended, also when their
// table is out of use by then.
func TestEndsAreRecorded(t *testing.T) {
	t.Parallel()
	all := instances(3, "orders", "prod", "v1")
	c := filled(t, Options{Sample: 1 << 30}, rules.Set{}, all)
	ctx := WithLane(t.Context(), route.Query{Person: "li"})
	for _, o := range []Outcome{Answered, Canceled, Failed, Unreachable, Silent} {
		p, err := c.Pick(ctx, "orders")
		if err != nil || p.ID() != "" {
			t.Fatalf("%q, %v", p.ID(), err)
		}
		c.mu.Lock()
		c.soil("orders")
		c.mu.Unlock()
		c.compileDirty()
		c.Done(ctx, &p, o)
		if p.ID() == "" != (o == Answered || o == Canceled) {
			t.Errorf("%v: recorded as %q", o, p.ID())
		}
		if p.ID() == "" {
			continue
		}
		r, e, err := c.Explain(p.ID())
		if err != nil || r.Outcome != o.String() || r.Lane.Person != "li" || e.Chosen != r.Chosen || r.Chosen != p.Instance.Address.String() {
			t.Errorf("%v: %+v, %+v, %v", o, r, e, err)
		}
	}
	p, err := c.Pick(Keep(ctx), "orders")
	if err != nil {
		t.Fatal(err)
	}
	id := p.ID()
	c.Done(ctx, &p, Failed)
	if r, _, err := c.Explain(id); err != nil || p.ID() != id || r.Outcome != "failed" {
		t.Errorf("%+v, %v", r, err)
	}
	c.Done(ctx, &Pick{}, Failed)
	none, _ := c.Pick(ctx, "unknown")
	c.Done(ctx, &none, Failed)
}

// A call that was not made is recorded, all of them, and counted.
func TestRefused(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	c := filled(t, Options{Metrics: registry}, rules.Set{}, instances(2, "orders", "prod", "v1"))
	ctx := WithLane(t.Context(), route.Query{Person: "li"})
	for range 100 {
		r, _, err := c.Explain(c.Refused(ctx, "orders"))
		if err == nil || !strings.Contains(err.Error(), "breaker") || r.Reason != route.ByBreaker || r.Chosen != "" || r.Service != "orders" || r.Lane.Person != "li" {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if got := metric(t, registry, "dispatch_discovery_picks_total", "breaker"); got != 100 {
		t.Errorf("%v are counted", got)
	}
	if c.Refused(ctx, "unknown") == "" {
		t.Error("no record of a service without a table")
	}
}

// Without Run nobody is dialled.
func TestWithoutRunNothingDials(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{}, rules.Set{}, instances(2, "orders", "prod", "v1"))
	c.dial = func(context.Context, string) error { t.Error("dialled"); return nil }
	for range 100 {
		p, err := c.Pick(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		c.Done(t.Context(), &p, Unreachable)
	}
}

// Over real connections: one listener that is closed, and one that hears nothing.
func TestRealDials(t *testing.T) {
	t.Parallel()
	listen := func() *net.TCPListener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // it may be closed already
		return l.(*net.TCPListener)
	}
	good, closed := listen(), listen()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	full := fullListener(t)
	for name, bad := range map[string]string{"refused": closed.Addr().String(), "silent": full} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := registryFile(t, instance("orders", good.Addr().String(), "prod", "v1"), instance("orders", bad, "prod", "v1"))
			source, err := discovery.Open("static:"+path, discovery.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c := started(t, nil, Options{Self: home(), Registry: source, Services: []string{"orders"}})
			ready(t, c)
			began := time.Now()
			for {
				p, err := c.Pick(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				if p.Instance.Address.String() == bad {
					if err := dialTCP(t.Context(), bad); err == nil {
						t.Fatal("it accepts connections")
					}
					c.Done(t.Context(), &p, Unreachable)
				}
				if got := picks(t.Context(), c, "orders", 64); got[bad] == 0 {
					break
				}
				select {
				case <-time.After(200 * time.Millisecond):
				case <-t.Context().Done():
				}
				if time.Since(began) > 20*time.Second {
					t.Fatal("it is not out")
				}
			}
			t.Logf("out after %v", time.Since(began))
		})
	}
}

// fullListener is an address that lets connections wait until they give up: its
// backlog is full.
func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := fullSocket()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fd.close)
	for range 8 {
		d := net.Dialer{Timeout: 200 * time.Millisecond}
		conn, err := d.DialContext(t.Context(), "tcp", fd.address)
		if err != nil {
			return fd.address
		}
		t.Cleanup(func() { _ = conn.Close() }) // it holds a place in the backlog
	}
	t.Fatal("the backlog does not fill up")
	return ""
}

// The way of nearly all calls: well under 100 ns, and nothing allocated.
func TestDoneAllocatesNothing(t *testing.T) {
	c := filled(t, Options{Sample: 1 << 30}, rules.Set{}, instances(1000, "orders", "prod", "v1"))
	p, err := c.Pick(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { c.Done(t.Context(), &p, Answered) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDone(b *testing.B) {
	c := filled(b, Options{Sample: 1 << 30}, rules.Set{}, instances(20, "orders", "prod", "v1"))
	var all []Pick
	for range 512 {
		p, err := c.Pick(b.Context(), "orders")
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, p)
	}
	ctx := b.Context()
	b.Run("answered", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			c.Done(ctx, &all[i%len(all)], Answered)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				p := all[i%len(all)]
				c.Done(ctx, &p, Answered)
			}
		})
	})
}
