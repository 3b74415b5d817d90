package directory

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
)

// processor is the time that this process has used.
func processor(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap is what is in use after collecting.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// C16: 17 services of 8 instances, 200 events a second for 10 minutes, while callers
// ask for all and for one service. Time is virtual, the work is not. No event is lost:
// whoever follows ends with what the registry has.
func TestTwoHundredEventsASecond(t *testing.T) {
	const services, each, perSecond, seconds = 17, 8, 200, 600 / slowdown
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		name := func(i int) string { return fmt.Sprint("service-", i%services) }
		lists := map[string][]discovery.Instance{}
		for i := range services {
			lists[name(i)] = many(name(i), each)
			book.write(name(i), lists[name(i)]...)
		}
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		callers := map[string]*followed{"all": {}, "one": {names: []string{name(3)}}}
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for _, c := range callers {
			all.Go(func() { c.follow(ctx, t, s) })
		}
		before, used := heap(), processor(t)
		for i := range perSecond * seconds {
			list := append([]discovery.Instance{}, lists[name(i)]...)
			in := &list[i/services%each]
			weight := i
			in.Weight = &weight
			lists[name(i)] = list
			book.write(name(i), list...)
			time.Sleep(time.Second / perSecond)
		}
		took := processor(t) - used
		settle()
		after := heap()
		cancel()
		all.Wait()
		share := float64(took) / float64(seconds*time.Second) * 100
		t.Logf("%d events: %.2f %% of a core with registry and callers, heap from %d to %d KB, answers %d and %d",
			perSecond*seconds, share, before>>10, after>>10, callers["all"].answers, callers["one"].answers)
		if share > 5*slowdown {
			t.Errorf("%.1f %% of a core, at most 5 are allowed", share)
		}
		for service, list := range lists {
			for who, c := range callers {
				got, asked := c.lists[service]
				if asked != (who == "all" || service == name(3)) {
					t.Errorf("who asks for %s knows %s: %v", who, service, asked)
				}
				for i := range list {
					if asked && got[i].Share() != list[i].Share() {
						t.Errorf("who asks for %s lost event %d of %s", who, list[i].Share(), service)
					}
				}
			}
		}
	})
}

// followed is a caller that keeps asking.
type followed struct {
	names   []string
	lists   map[string][]discovery.Instance
	answers int
}

func (f *followed) follow(ctx context.Context, t *testing.T, s *Server) {
	next := wire.Ask{Services: f.names}
	f.lists = map[string][]discovery.Instance{}
	for ctx.Err() == nil {
		got := ask(t, s, next)
		next = after(got, f.names...)
		f.answers++
		for name, service := range got.Services {
			if service.Gone {
				delete(f.lists, name)
			} else {
				f.lists[name] = service.Instances
			}
		}
	}
}

// T61: environments, and whole services, that come and go leave nothing behind.
func TestTenThousandFeatureEnvironments(t *testing.T) {
	const rounds, each = 100 / slowdown, 100
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		for i := range 100 {
			book.write(fmt.Sprint("s", i), many(fmt.Sprint("s", i), 20)...)
		}
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		time.Sleep(recentFor + time.Minute)
		ask(t, s, wire.Ask{})
		before := heap()
		round := func(r int) time.Duration {
			start := processor(t)
			envs := many("orders", each)
			for i := range envs {
				envs[i].Env = fmt.Sprintf("feature-%d-%d", r, i)
				book.write("pay-"+envs[i].Env, at("pay-"+envs[i].Env, i))
			}
			book.write("orders", envs...)
			settle()
			v, _ := d.View()
			if got := len(v.Values("env")); got != each+1 {
				t.Fatalf("round %d has %d environments", r, got)
			}
			book.write("orders")
			for _, in := range envs {
				book.write("pay-" + in.Env)
				book.tear("pay-" + in.Env)
			}
			time.Sleep(3 * namesEvery)
			synctest.Wait()
			return processor(t) - start
		}
		first, last := time.Duration(0), time.Duration(0)
		for r := range rounds {
			if took := round(r); r < 10 {
				first += took
			} else if r >= rounds-10 {
				last += took
			}
		}
		book.tear("orders")
		time.Sleep(recentFor + 2*time.Minute)
		ask(t, s, wire.Ask{})
		after := heap()
		v, _ := d.View()
		t.Logf("%d environments: heap from %d to %d KB; ten rounds took %s at first and %s at last", rounds*each, before>>10, after>>10, first, last)
		if len(v.Services) != 100 || after > before+before/10 {
			t.Errorf("%d services and %d KB are left, it began with 100 and %d KB", len(v.Services), after>>10, before>>10)
		}
		if slowdown == 1 && last > 3*first {
			t.Errorf("rounds took %s at first and %s at last", first, last)
		}
	})
}

// A09, T45, T46: a thousand starts and stops, half of them against a registry that is
// away, leave no goroutine and no heap behind.
func TestThousandStartsAndStops(t *testing.T) {
	goroutines, before := runtime.NumGoroutine(), heap()
	synctest.Test(t, startAndStop)
	after := heap()
	t.Logf("%d goroutines before and %d after, heap from %d to %d KB", goroutines, runtime.NumGoroutine(), before>>10, after>>10)
	if n := runtime.NumGoroutine(); n > goroutines {
		text := make([]byte, 1<<16)
		t.Errorf("%d goroutines are left\n%s", n-goroutines, text[:runtime.Stack(text, true)])
	}
	if after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d KB", before>>10, after>>10)
	}
}

func startAndStop(t *testing.T) {
	memory := newShelf()
	for i := range 1000 {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		if i%2 == 1 {
			book.problem = errors.New("away")
		}
		d, end := follow(t, memory, book)
		s := serve(t, d, nil)
		if i%2 == 0 {
			ask(t, s, wire.Ask{})
		}
		s.Stop()
		end()
	}
}

// T34: a directory that ends leaves its lists to those who still read.
func TestListsOutliveRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", many("orders", 3)...)
		d, end := follow(t, nil, book)
		settle()
		end()
		v, _ := d.View()
		if got := strings.Count(addresses(v, "orders"), ":"); got != 3 || len(ask(t, serve(t, d, nil), wire.Ask{}).Services) != 1 {
			t.Errorf("%d instances are left", got)
		}
	})
}
