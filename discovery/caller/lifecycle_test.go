package caller

import (
	"context"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
)

// T45, T46, A09: 1,000 starts and stops over real connections leave neither
// goroutines nor memory. It does not run beside other tests: it measures both.
func TestStartsAndStopsLeaveNothing(t *testing.T) {
	n := newNode(t)
	n.list("orders", instances(20, "orders", "prod", "v1")...)
	n.publish(1, rule("orders", "v1"))
	server := httptest.NewServer(n)
	defer server.Close()
	opt := options(n)
	opt.Control = []string{server.URL}
	once := func(down bool) {
		opt := opt
		if down {
			opt.Control = []string{"http://127.0.0.1:1"}
		}
		c, err := New(opt)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		if down {
			<-c.passed
		} else {
			ready(t, c)
			if _, err := c.Pick(Keep(ctx), "orders"); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		once(false)
	}
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	for i := range 1000 {
		once(i%4 == 3)
	}
	n.mu.Lock()
	n.batches, n.asks = nil, nil
	n.mu.Unlock()
	server.CloseClientConnections()
	deadline := time.After(10 * time.Second)
	for runtime.NumGoroutine() > goroutines+2 {
		select {
		case <-deadline:
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		case <-time.After(20 * time.Millisecond):
		}
	}
	grown := heapInUse() - heap
	t.Logf("1,000 starts and stops: %d goroutines (%d before), heap %+d KB", runtime.NumGoroutine(), goroutines, grown>>10)
	if grown > 5<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// T34: a caller that ends publishes nothing; calls in flight, and later ones, find
// what was there.
func TestEndLeavesTables(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.list("orders", instances(5, "orders", "prod", "v1")...)
		c, err := New(options(n))
		if err != nil {
			t.Fatal(err)
		}
		c.transport = one(n)
		end := run(t, c)
		ready(t, c)
		_, _, changed := c.Candidates("orders")
		end()
		select {
		case <-changed:
			t.Error("the end was told as a change")
		default:
		}
		if got := picks(t.Context(), c, "orders", 1000); len(got) != 5 {
			t.Errorf("after the end: %v", got)
		}
		if err := c.Run(t.Context()); err == nil {
			t.Error("it runs twice")
		}
	})
}

// Picks, switches and changes of lists and rules may all meet (with -race).
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.list("orders", instances(8, "orders", "prod", route.Base)...)
	n.publish(1, rule("orders", route.Base))
	server := httptest.NewServer(n)
	defer server.Close()
	opt := options(n)
	opt.Control, opt.Dir = []string{server.URL}, t.TempDir()
	c := started(t, nil, opt)
	ready(t, c)
	var group sync.WaitGroup
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				p, err := c.Pick(Keep(ctx), "orders")
				if err != nil {
					t.Error(err)
					return
				}
				_, _, _ = c.Explain(p.ID())
			}
		})
	}
	group.Go(func() {
		for i := uint64(2); ctx.Err() == nil; i++ {
			n.publish(i, rule("orders", route.Base))
			n.list("orders", instances(1+int(i%8), "orders", "prod", route.Base)...)
			c.SetDirect(i%3 == 0)
			c.SetIsolate(i%5 == 0)
			_, _, changed := c.Candidates("orders")
			select {
			case <-changed:
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	group.Wait()
}

// Memory of a caller of one service of 1,000 instances beside 200 rules: under 8 MB (A51).
func TestMemory(t *testing.T) {
	var set rules.Set
	for i := range 200 {
		set.Rules = append(set.Rules, rule([]string{"orders", "stock"}[min(i, 1)], "v1"))
	}
	before := heapInUse()
	c := filled(t, Options{}, set, instances(1000, "orders", "prod", "v1"))
	grown := heapInUse() - before
	t.Logf("a caller of 1,000 instances and 200 rules: %.2f MB", float64(grown)/(1<<20))
	if grown > 8<<20 {
		t.Errorf("%d bytes", grown)
	}
	runtime.KeepAlive(c)
}

// A registry that is away at the start is waited for (T47).
func TestRegistryThatComesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := registryFile(t, mixed()...)
		source, err := discovery.Open("static:"+path, discovery.Options{})
		if err != nil {
			t.Fatal(err)
		}
		edit(t, path, func([]byte) []byte { return []byte("instances: [\n") })
		c := started(t, nil, Options{Self: home(), Registry: source, Services: []string{"orders"}})
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		if err := c.Ready(ctx); err == nil {
			t.Fatal("ready without a list")
		}
		writeRegistry(t, path, mixed()...)
		ready(t, c)
		if got := among(picks(t.Context(), c, "orders", 1000)); got != direct {
			t.Errorf("picks went to %s", got)
		}
	})
}
