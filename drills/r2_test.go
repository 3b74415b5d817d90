package drills

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// bench is a service of one instance, and a client whose breaker has seen nothing.
// Its calls are not idempotent, so that each is one attempt.
type bench struct {
	*testing.T
	client  *http.Client
	faults  func(faults)
	reached func() int64 // calls that the service has had
}

// R2, C02, C17: the breaker opens on errors and on slowness, and closes after three
// probes. In small the service is a function and time is virtual; in full both are real.
func TestR2Breaker(t *testing.T) {
	var lines sync.Map
	t.Run("scripts", func(t *testing.T) {
		for name, script := range map[string]func(bench) string{"errors": errorsR2, "slow": slowR2, "share": shareR2} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if *full {
					lines.Store(name, script(realBench(t)))
					return
				}
				synctest.Test(t, func(t *testing.T) { lines.Store(name, script(memoryBench(t))) })
			})
		}
	})
	for _, name := range []string{"errors", "slow", "share"} {
		if line, ok := lines.Load(name); ok {
			figure(t, "R2", "breaker, %s: %s", pick("virtual time", "real sockets"), line)
		}
	}
}

// realBench is a process, reached by sockets.
func realBench(t *testing.T) bench {
	address := freeAddr(t)
	start(t, "server", part{Server: &serverPart{Service: "r2", Listen: address, Version: "v1"}})
	c := connect(t, roster(t, instance(t, "r2", address, "v1")), "r2")
	return bench{t, webClient(t, c, nil), func(f faults) { setFaults(t, address, f) }, func() int64 { return countsOf(t, address).Calls }}
}

// memoryBench is a server without sockets.
func memoryBench(t *testing.T) bench {
	s := &server{}
	s.faults.Store(&faults{})
	c := connect(t, roster(t, instance(t, "r2", "127.0.0.1:1", "v1")), "r2")
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: req}
		if s.fault(req.Context(), s.calls.Add(1)) {
			resp.StatusCode = http.StatusServiceUnavailable
		}
		return resp, req.Context().Err()
	})
	return bench{t, webClient(t, c, base), func(f faults) { s.faults.Store(&f) }, s.calls.Load}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// call calls once and says how it went.
func (b bench) call(ctx context.Context) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://r2/", nil)
	must(b, err)
	resp, err := b.client.Do(req)
	if err != nil {
		return outcome(ctx, err)
	}
	_ = resp.Body.Close() // nothing in it is needed
	if resp.StatusCode != http.StatusOK {
		return "failed"
	}
	return served
}

// load calls rate times a second, for so long or until the breaker is open, and says
// whether it is, and when it was.
func (b bench) load(rate int, long time.Duration) (opened bool, after time.Duration) {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), long)
	defer stop()
	begin := time.Now()
	var once sync.Once
	openLoop(ctx, rate, func() {
		// Calls outlive the load, so that each counts for what it is.
		if b.call(b.Context()) == "open" {
			once.Do(func() { opened, after = true, time.Since(begin); stop() })
		}
	})
	return opened, after
}

// errorsR2: 60 % errors open within 5 s; for 30 s nobody is let through; then three
// of 10,000 are.
func errorsR2(b bench) string {
	if opened, _ := b.load(100, 2*time.Second); opened {
		b.Fatal("open although all is well")
	}
	b.faults(faults{Fail: 60})
	opened, after := b.load(100, 10*time.Second)
	if !opened || after > 5*time.Second {
		b.Fatalf("60 %% errors: open %v, after %s; limit 5 s", opened, after)
	}
	since := time.Now() // at most a call later than the breaker opened
	before := b.reached()
	b.faults(faults{Slow: 100, Wait: 400 * time.Millisecond}) // healed; probes take a while, so that all ask meanwhile
	if opened, _ := b.load(100, time.Second); !opened || b.reached() != before {
		b.Fatalf("open: %v, %d calls came through", opened, b.reached()-before)
	}
	pass(b, time.Until(since.Add(29*time.Second)))
	if got := b.call(b.Context()); got != "open" {
		b.Errorf("after 29 s a call is %s", got)
	}
	pass(b, time.Until(since.Add(30*time.Second)))
	var all sync.WaitGroup
	var good, refused atomic.Int64
	for range 10_000 {
		all.Go(func() {
			switch b.call(b.Context()) {
			case served:
				good.Add(1)
			case "open":
				refused.Add(1)
			}
		})
	}
	all.Wait()
	probes := b.reached() - before
	if probes != 3 || good.Load() != 3 || refused.Load() != 9_997 {
		b.Errorf("of 10,000 at the 30th second %d came through, %d were served, %d refused; want 3, 3, 9,997", probes, good.Load(), refused.Load())
	}
	b.faults(faults{})
	if opened, _ := b.load(100, time.Second); opened {
		b.Error("not closed after three probes")
	}
	return "60 % errors open after " + short(after) + " (limit 5 s); of 10,000 calls in the 30th second 3 go through and close it"
}

// slowR2: one in twenty takes 801 ms, for 10 s or for 9 s.
func slowR2(b bench) string {
	slow := faults{Slow: 5, Wait: 801 * time.Millisecond}
	b.faults(slow)
	if opened, after := b.load(100, 9*time.Second); opened {
		b.Errorf("801 ms for 9 s opened it after %s", after)
	}
	b.faults(faults{})
	if opened, _ := b.load(100, 8*time.Second); opened {
		b.Error("801 ms for 9 s opened it afterwards")
	}
	b.faults(slow)
	opened, after := b.load(100, 15*time.Second)
	if !opened || after < 10*time.Second || after > 13*time.Second {
		b.Errorf("801 ms for 10 s: open %v, after %s", opened, after)
	}
	return "801 ms for 9 s do not open, for 10 s do, after " + short(after)
}

// shareR2: half of the calls fail, or one more of a hundred; one after the other, so
// that they end in their order, and within one window, where half is exactly half.
func shareR2(b bench) string {
	run := func(fail int) bool {
		b.faults(faults{Fail: fail})
		for range 200 {
			if b.call(b.Context()) == "open" {
				return true
			}
			pass(b, 10*time.Millisecond)
		}
		return false
	}
	for range 3 {
		if run(50) {
			b.Fatal("50 % errors opened it")
		}
		b.faults(faults{})
		pass(b, 6*time.Second) // nothing is left in the window
	}
	if !run(51) {
		b.Error("51 % errors did not open it")
	}
	return "51 % errors open, 50 % do not"
}
