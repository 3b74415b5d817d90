package drills

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/httpcall"
)

// limitT92 is how much more than the calls may arrive when all are tried again.
const limitT92 = 0.20

// storm is a load on servers that fail.
type storm struct {
	calls   int64 // all that were asked for
	refused int64 // of them, by the breaker
	arrived int64 // at the servers
}

func (s storm) extra() float64 { return float64(s.arrived)/float64(s.calls) - 1 }

// T92: with two retries a call, an outage adds at most a fifth to the load. In a total
// one the breaker ends it at once; where two of five calls fail, it stays closed, and
// the budget alone holds.
func TestT92OutageIsNotAmplified(t *testing.T) {
	var rows [][]string
	for _, c := range []struct {
		name string
		fail int // of 100
	}{{"total outage", 100}, {"40 % of calls fail", 40}} {
		s := raise(t, c.fail, func(addresses []string) func(context.Context) error { return guarded(t, addresses) })
		rows = append(rows, []string{c.name, strconv.FormatInt(s.calls, 10), strconv.FormatInt(s.refused, 10), strconv.FormatInt(s.arrived, 10)})
		figure(t, "T92", "%s, retries 2, %d calls a second: %d calls, %d refused, %d arrived: %+.1f %% (limit 20 %%)", c.name, rateT92(), s.calls, s.refused, s.arrived, 100*s.extra())
		if s.extra() > limitT92 || s.arrived == 0 || (s.refused > 0) != (c.fail == 100) {
			t.Errorf("%s: %d calls became %d", c.name, s.calls, s.arrived)
		}
	}
	keep(t, "T92", []string{"outage", "calls", "refused", "arrived"}, rows)
}

// Retries without a budget and a breaker triple the load.
func TestT92NeedsABudget(t *testing.T) {
	s := raise(t, 100, func(addresses []string) func(context.Context) error {
		var n atomic.Int64
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
		t.Cleanup(client.CloseIdleConnections)
		return func(ctx context.Context) (err error) {
			for range 3 {
				if err = get(ctx, client, "http://"+addresses[n.Add(1)%int64(len(addresses))]+"/"); err == nil {
					return nil
				}
			}
			return err
		}
	})
	figure(t, "T92", "the same with the layer off: %d calls, %d arrived: %+.0f %%", s.calls, s.arrived, 100*s.extra())
	if s.extra() <= limitT92 {
		t.Error("T92 passes with the layer off: it shows nothing")
	}
}

func rateT92() int { return pick(500, 1_000) }

// raise puts a load on four servers that fail so many of 100 calls.
func raise(t *testing.T, fail int, client func(addresses []string) func(context.Context) error) (s storm) {
	var addresses []string
	for i := range 4 {
		p := &serverPart{Service: "t92", Listen: freeAddr(t), Version: "v1"}
		start(t, "server-"+strconv.Itoa(i), part{Server: p})
		setFaults(t, p.Listen, faults{Fail: fail})
		addresses = append(addresses, p.Listen)
	}
	call := client(addresses)
	ctx, stop := context.WithTimeout(t.Context(), pick(3*time.Second, 20*time.Second))
	defer stop()
	var calls, refused atomic.Int64
	openLoop(ctx, rateT92(), func() {
		calls.Add(1)
		if isOpen(call(t.Context())) {
			refused.Add(1)
		}
	})
	s.calls, s.refused = calls.Load(), refused.Load()
	for _, address := range addresses {
		s.arrived += countsOf(t, address).Calls
	}
	return s
}

// guarded calls with two retries. No call is slow: a machine that is busy must not
// open the breaker where failures do not.
func guarded(t *testing.T, addresses []string) func(context.Context) error {
	var listed []discovery.Instance
	for _, address := range addresses {
		listed = append(listed, instance(t, "t92", address, "v1"))
	}
	g, err := guard.New(connect(t, roster(t, listed...), "t92"), guard.Options{Default: guard.Settings{Retries: 2, Slow: time.Minute}})
	must(t, err)
	client := &http.Client{Transport: httpcall.NewGuarded(g, nil)}
	t.Cleanup(client.CloseIdleConnections)
	return func(ctx context.Context) error { return get(ctx, client, "http://t92/") }
}
