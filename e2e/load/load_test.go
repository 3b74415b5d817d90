package load

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a server does with its requests is counted as what it is.
func TestOutcomesAreCounted(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			panic(http.ErrAbortHandler) // the connection ends
		}
	}))
	defer s.Close()
	r := Load{Addrs: []string{strings.TrimPrefix(s.URL, "http://")}, Rate: 400, For: time.Second, Conns: 8}.Run(t.Context())
	if r.Sent != 400 || r.Served != 100 || r.Shed != 100 || r.Failed != 200 || len(r.Failures) == 0 {
		t.Errorf("%s %v", r, r.Failures)
	}
}

// A server that stalls is charged for the requests that waited meanwhile.
func TestAStallIsNotSpared(t *testing.T) {
	t.Parallel()
	const stall = 300 * time.Millisecond
	var once atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if once.CompareAndSwap(false, true) {
			<-time.After(stall)
		}
	}))
	defer s.Close()
	r := Load{Addrs: []string{strings.TrimPrefix(s.URL, "http://")}, Rate: 200, For: time.Second, Conns: 1}.Run(t.Context())
	// One connection: all that were due in the stall waited for its rest, half of it at the median.
	if late := r.Quantile(0.85); r.Failed > 0 || late < stall/4 {
		t.Errorf("%s, p85 %s; a stall of %s was hidden", r, late, stall)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	r := Load{Addrs: []string{"127.0.0.1:1"}, Rate: 10, For: time.Second}.Run(t.Context())
	if r.Failed != 10 || r.Served != 0 || r.Quantile(0.99) != 0 {
		t.Errorf("%s", r)
	}
}
