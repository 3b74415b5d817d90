//go:build !race

package fleet

// The race detector keeps a shadow of all memory, so what is held is measured without it.

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

// e63: ten million distinct sessions leave nothing behind in our memory. Redis
// bounds its own; what does not fit into the queue is dropped and counted.
func TestTenMillionSessionsLeaveNothing(t *testing.T) {
	server := testenv.StartRedis(t, "--maxmemory", "32mb", "--maxmemory-policy", "allkeys-lru")
	m := newSessionMapAt(t, server.URL(), patient)
	stop := start(t, m.Run)
	token := strings.Repeat("t", 150)
	churn := func(from, to int) {
		var clients sync.WaitGroup
		for c := range 4 {
			clients.Go(func() {
				for i := from + c; i < to; i += 4 {
					if i%1000 < 4 { // a look-up takes 1,000 times as long as a put
						m.Get(context.Background(), sessionKey(i))
					}
					m.Put(sessionKey(i), token, time.Minute)
				}
			})
		}
		clients.Wait()
		eventually(t, 30*time.Second, func() bool { return counted(m.written)+counted(m.dropped) == float64(to) })
	}
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	churn(0, 1_000_000)
	warm := heap()
	churn(1_000_000, 10_000_000)
	if now := heap(); now > warm+4<<20 {
		t.Errorf("9 million sessions more: %d kB became %d kB", warm>>10, now>>10)
	}
	if counted(m.written) < 10_000 || counted(m.failures)+counted(m.timeouts) > 0 {
		t.Errorf("written %v, dropped %v, failed %v", counted(m.written), counted(m.dropped), counted(m.failures)+counted(m.timeouts))
	}
	t.Logf("written %v, dropped %v", counted(m.written), counted(m.dropped))
	stop()
}
