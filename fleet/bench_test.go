package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/release"
)

// cpu is what the process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWatch is one release on its way to all replicas of this process, over
// loopback HTTP: from Board.Offer to the last Keeper that serves it, and to the
// last acknowledgement in the Roster. Compiling for every replica is in the time,
// as it is not on machines of their own.
func BenchmarkWatch(b *testing.B) {
	for _, replicas := range []int{10, 100} {
		b.Run(fmt.Sprint(replicas), func(b *testing.B) {
			bank, c := newBank(b, 5000), newControl(b, nil)
			keepers := make([]*release.Keeper, replicas)
			for i := range keepers {
				keepers[i] = bank.keeper(nil)
				f := must(NewFollower(FollowerOptions{Keeper: keepers[i], Self: Replica{ID: fmt.Sprintf("r%03d", i), Boot: "1", Role: "edge"}}))
				f.Use([]Source{c.source("a")})
				run(b, f.Run)
			}
			c.offer(b, bank, bank.now())
			c.everybody(b, 1, replicas)
			var served, acknowledged []time.Duration
			began := cpu()
			for b.Loop() {
				changed := make([]<-chan struct{}, replicas)
				for i, k := range keepers {
					changed[i] = k.Changed()
				}
				s := bank.next(nil)
				start := time.Now()
				c.offer(b, bank, s)
				for _, ch := range changed {
					<-ch
				}
				served = append(served, time.Since(start))
				c.everybody(b, s.Number, replicas)
				acknowledged = append(acknowledged, time.Since(start))
			}
			used := cpu() - began
			b.ReportMetric(quantile(served, 0.5), "ms-served-p50")
			b.ReportMetric(quantile(served, 0.99), "ms-served-p99")
			b.ReportMetric(quantile(acknowledged, 0.99), "ms-acknowledged-p99")
			b.ReportMetric(float64(used.Microseconds())/float64(b.N*replicas), "cpu-us/replica")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// everybody waits until all replicas have acknowledged a release.
func (c *control) everybody(tb testing.TB, number uint64, replicas int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	for {
		ack := c.roster.Await(ctx, number, "")
		if ack.Replicas == replicas {
			return
		}
		if ctx.Err() != nil {
			tb.Fatalf("acknowledged %+v", ack)
		}
	}
}

func quantile(d []time.Duration, q float64) float64 {
	slices.Sort(d)
	return float64(d[int(q*float64(len(d)-1))].Microseconds()) / 1000
}

// BenchmarkControl is what one release costs a control node for each replica,
// without the network: read the report, note it, wait, wake up and answer.
func BenchmarkControl(b *testing.B) {
	for _, replicas := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(replicas), func(b *testing.B) {
			bank, registry := newBank(b, 5000), prometheus.NewRegistry()
			board, roster := NewBoard(), must(NewRoster(RosterOptions{}))
			server := must(NewServer(ServerOptions{Board: board, Roster: roster, Token: testToken, Registry: registry}))
			s := bank.now()
			offer := func() {
				if err := board.Offer(b.Context(), Offer{All: s}, bank.blobs); err != nil {
					b.Fatal(err)
				}
			}
			offer()
			before, waiting := inUse(), 0.0
			var used time.Duration
			var answers []*httptest.ResponseRecorder
			for b.Loop() {
				var asking sync.WaitGroup
				answers = answers[:0]
				began := cpu()
				for i := range replicas {
					report := must(json.Marshal(Report{Replica: Replica{ID: fmt.Sprintf("r%04d", i), Boot: "1"}, Number: s.Number, Seq: 1, Digest: release.DigestOf(s.Manifest)}))
					r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, watchPath+"?wait=9s", bytes.NewReader(report))
					r.Header.Set("Authorization", "Bearer "+testToken)
					w := httptest.NewRecorder()
					answers = append(answers, w)
					asking.Go(func() { server.ServeHTTP(w, r) })
				}
				eventually(b, 10*time.Second, func() bool { return metric(b, registry, "dispatch_fleet_waiting_requests", "") == float64(replicas) })
				used += cpu() - began
				waiting = inUse() - before
				s = bank.next(nil)
				began = cpu()
				offer()
				asking.Wait()
				used += cpu() - began
			}
			b.ReportMetric(float64(used.Microseconds())/float64(b.N*replicas), "cpu-us/replica")
			b.ReportMetric(max(waiting, 0)/float64(replicas)/1024, "KiB-waiting/replica")
			b.ReportMetric(float64(answers[0].Body.Len()), "bytes-sent/replica")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// inUse is the heap and the stacks in use after a collection.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
