package caller

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
)

// A11, T75, T76, T78: a new instance gets nothing for 30 s, then its part grows for
// 30 s, whatever its clock says and although all weights are equal.
func TestWarmUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		started time.Duration // from now
		weight  *int          // of all
	}{
		{"equal default weights, T78", 0, nil},
		{"weight 1, T75", 0, new(1)},
		{"its clock is an hour ahead, T76", time.Hour, nil},
		{"its clock is an hour behind, T76", -time.Hour, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, log := newNode(t), &logged{}
				old := instances(4, "orders", "prod", "v1")
				for i := range old {
					old[i].Weight = c.weight
				}
				n.list("orders", old...)
				opt := options(n)
				opt.Log = log.logger()
				k := started(t, one(n), opt)
				ready(t, k)
				if got := picks(t.Context(), k, "orders", 1000); len(got) != 4 {
					t.Errorf("those of the first table do not all serve: %v", got)
				}
				fresh := instance("orders", "10.1.0.1:80", "prod", "v1")
				fresh.Started, fresh.Weight = time.Now().Add(c.started), c.weight
				n.list("orders", append(old, fresh)...)
				time.Sleep(500 * time.Millisecond) // between two ticks
				if !strings.Contains(log.String(), "instances are warming") || !strings.Contains(log.String(), "until=") {
					t.Errorf("log:\n%s", log)
				}
				const draws = 20_000
				before := 0.0
				for second := 1; second <= 65; second++ {
					time.Sleep(time.Second)
					share := float64(picks(t.Context(), k, "orders", draws)["10.1.0.1:80"]) / draws
					age := float64(second) + 0.5 // at most; the table is up to a second older
					switch {
					case age < 30 && share != 0:
						t.Fatalf("after %.1f s its share is %v", age, share)
					case age > 32 && share == 0:
						t.Fatalf("after %.1f s it has none", age)
					case age > 61 && math.Abs(share-0.2) > 0.02:
						t.Fatalf("after %.1f s its share is %v, fair is 0.2", age, share)
					case age > 30 && age < 60:
						warm := (age - 30) / 30
						if want := warm / (4 + warm); math.Abs(share-want) > 0.025 {
							t.Fatalf("after %.1f s its share is %v, want about %v", age, share, want)
						}
					}
					if share < before-0.02 {
						t.Fatalf("its share fell from %v to %v", before, share)
					}
					before = share
				}
				tables := k.tables.Load()
				time.Sleep(time.Minute)
				if made := k.tables.Load() - tables; made > 0 {
					t.Errorf("%d tables were made although nobody warms", made)
				}
			})
		})
	}
}

func TestWarmthBySecond(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]int{0: 0, 29999 * time.Millisecond: 0, 30 * time.Second: 33, 30999 * time.Millisecond: 33,
		31 * time.Second: 66, 45 * time.Second: 533, 58999 * time.Millisecond: 966, 59 * time.Second: 1000, time.Hour: 1000} {
		if got := warmth(age); got != want {
			t.Errorf("at %v: %d thousandths, want %d", age, got, want)
		}
	}
}

// What vanished from the registry and still accepts connections serves when nobody
// else would.
func TestVanishedServeLast(t *testing.T) {
	t.Parallel()
	all := instances(3, "orders", "prod", "v1")
	told := listOf(discovery.Snapshot{Instances: all[:1], LastResort: all[1:]})
	in := route.Input{Service: "orders", Home: home(), Instances: told.Instances, Scale: told.Scale}
	for draw := range uint64(1000) {
		choice, err := route.Compile(in).Pick(route.Query{}, draw<<50)
		if err != nil || choice.Instance.ID != all[0].ID {
			t.Fatalf("picked %v, %v", choice.Instance, err)
		}
	}
	told = listOf(discovery.Snapshot{Instances: instances(1, "orders", "test", "v1"), LastResort: all[1:]})
	in.Instances, in.Scale = told.Instances, told.Scale
	if e := route.Compile(in).Explain(route.Query{}, 1); e.Chosen == "" || !e.AllCold {
		t.Errorf("with nobody else in prod: %+v", e)
	}
}

// An agent of Consul keeps its own IDs: a new machine with the ID of the others warms
// alone, and those that were there do not begin again.
func TestOneIDOnEveryMachine(t *testing.T) {
	t.Parallel()
	machine := func(host string) discovery.Instance {
		in := instances(1, "orders", "prod", "v1")[0]
		in.ID, in.Address.Host = "orders", host
		return in
	}
	began := time.Now()
	l := &list{instances: distinct([]discovery.Instance{machine("10.0.0.1")})}
	l.see(true, began)
	l.instances = distinct([]discovery.Instance{machine("10.0.0.1"), machine("10.0.0.2")})
	if fresh := l.see(false, began); fresh != 1 {
		t.Errorf("%d are new", fresh)
	}
	scale := l.scale(began.Add(time.Second))
	if len(scale) != 1 || scale[l.instances[1].ID].Why != route.Warming || l.instances[0].ID == l.instances[1].ID {
		t.Errorf("%+v of %+v", scale, l.instances)
	}
}

func TestWhoWarms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		three := instances(3, "orders", "prod", "v1")
		n.list("orders", three...)
		c := started(t, one(n), options(n))
		ready(t, c)
		serve := func() int { return len(picks(t.Context(), c, "orders", 1000)) }
		list := func(all ...discovery.Instance) int {
			n.list("orders", all...)
			time.Sleep(2 * time.Second)
			return serve()
		}
		restarted := three[0]
		restarted.Started = restarted.Started.Add(time.Hour)
		if got := list(restarted, three[1], three[2]); got != 2 {
			t.Errorf("%d serve; a process that restarted is a new one and warms", got)
		}
		time.Sleep(time.Minute + 2*time.Second)
		if got := list(restarted, three[1]); got != 2 {
			t.Errorf("%d serve after one left", got)
		}
		if got := list(restarted, three[1], three[2]); got != 3 {
			t.Errorf("%d serve; the same process came back, and is warm", got)
		}
		n.change(func() { n.epoch = "e2" }) // a control node starts: nobody is new
		time.Sleep(2 * time.Second)
		if got := serve(); got != 3 {
			t.Errorf("%d serve after a control node restarted", got)
		}
		n.list("stock", instances(3, "stock", "prod", "v1")...)
		time.Sleep(2 * time.Second)
		if got := len(picks(t.Context(), c, "stock", 1000)); got != 3 {
			t.Errorf("%d serve; where all are new, all serve", got)
		}
		p, err := c.Pick(Keep(t.Context()), "stock")
		if err != nil {
			t.Fatal(err)
		}
		if _, e, err := c.Explain(p.ID()); err != nil || !e.AllCold {
			t.Errorf("explain: %+v, %v", e, err)
		}
	})
}

// Of what control lowers and what warming lowers, the lower one counts; what a
// person isolated stays isolated, warm or not (T22, T53).
func TestScalesMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		l := list{instances: instances(5, "orders", "prod", "v1"), seen: map[fingerprint]sighting{}}
		id := func(i int) string { return l.instances[i].ID }
		for i, age := range []time.Duration{10 * time.Second, 45 * time.Second, 45 * time.Second, 10 * time.Second} {
			l.seen[fingerprintOf(&l.instances[i])] = sighting{since: now.Add(-age)}
		}
		l.seen[fingerprintOf(&l.instances[4])] = sighting{}
		l.told = wire.Service{Scale: map[string]route.Scale{
			id(1): {Thousandths: 800, Why: route.Hot},
			id(2): {Thousandths: 100, Why: route.Hot},
			id(3): {Thousandths: 0, Why: route.Isolated},
			id(4): {Thousandths: 500, Why: route.Hot},
		}}
		got := l.scale(now)
		for i, want := range []route.Scale{{Thousandths: 0, Why: route.Warming}, {Thousandths: 533, Why: route.Warming},
			{Thousandths: 100, Why: route.Hot}, {Thousandths: 0, Why: route.Isolated}, {Thousandths: 500, Why: route.Hot}} {
			if got[id(i)] != want {
				t.Errorf("instance %d: %+v, want %+v", i, got[id(i)], want)
			}
		}
		if len(l.told.Scale) != 4 {
			t.Error("what control told was changed")
		}
	})
}

// T61: instances that come and go leave nothing behind.
func TestSightingsAreForgotten(t *testing.T) {
	t.Parallel()
	l := list{}
	now := time.Now()
	l.instances = instances(2, "orders", "prod", "v1")
	l.instances[1].Started = time.Time{}
	l.see(true, now)
	for i := range 2000 {
		now = now.Add(time.Second)
		fresh := instance("orders", "10.1.0.1:80", "prod", "v1")
		fresh.Started = now
		l.instances = []discovery.Instance{fresh}
		l.see(false, now)
		if most := int(rememberFor/time.Second) + 3; len(l.seen) > most {
			t.Fatalf("after %d instances %d are remembered, at most %d", i, len(l.seen), most)
		}
	}
	two := instances(2, "orders", "prod", "v1")
	two[1].Started = time.Time{}
	l.instances = two
	if fresh := l.see(false, now); fresh != 2 {
		t.Errorf("%d are new; both were gone for long", fresh)
	}
	l.instances = nil
	l.see(false, now.Add(time.Second))
	l.instances = two
	if fresh := l.see(false, now.Add(2*time.Second)); fresh != 1 {
		t.Errorf("%d are new; of one nobody knows when it started", fresh)
	}
}
