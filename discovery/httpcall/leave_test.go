package httpcall

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/testenv"
)

var full = flag.Bool("full", false, "the full figures: 20 runs of leaving under load")

// T28, A13: a server that is told to end under load deregisters, serves on, drains
// and stops: no call fails. On a real Consul, 3 times at once, 20 times with -full.
func TestLeavingUnderLoad(t *testing.T) {
	t.Parallel()
	runs := 3
	if *full {
		runs = 20
	}
	source, err := discovery.Open("consul://"+testenv.Consul(t), discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			leaveUnderLoad(t, source, fmt.Sprint("order-core-", run))
		})
	}
}

func leaveUnderLoad(t *testing.T, source discovery.Source, service string) {
	stays, leaves := begin(t, source, service), begin(t, source, service)
	c := callerIn(t, source, service, "prod", route.Query{})
	await(t, "both are found", func() bool { all, _, _ := c.Candidates(service); return len(all) == 2 })
	client := clientOf(t, New(c, nil))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	var calls, failed atomic.Int64
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "http://"+service+"/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				calls.Add(1)
				resp, err := client.Do(req) // POST: net/http does not try it again
				if err != nil {
					failed.Add(1)
					t.Error(err)
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	await(t, "both serve", func() bool { return stays.served.Load() > 20 && leaves.served.Load() > 20 })
	started := time.Now()
	if err := leaves.end(); err != nil {
		t.Error(err)
	}
	if took := time.Since(started); took < discovery.DefaultLinger {
		t.Errorf("it served on for %s only", took)
	}
	before := stays.served.Load()
	await(t, "the other serves on", func() bool { return stays.served.Load() > before+20 })
	stop()
	load.Wait()
	if failed.Load() != 0 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
	if err := stays.end(); err != nil {
		t.Error(err)
	}
}

// process is a server that registers itself, as its main would.
type process struct {
	served atomic.Int64
	end    func() error
}

// begin starts one.
func begin(t *testing.T, source discovery.Source, service string) *process {
	t.Helper()
	p := &process{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select { // some calls are in work at any time
		case <-time.After(5 * time.Millisecond):
		case <-r.Context().Done():
		}
		p.served.Add(1)
	})}
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(l) }()

	in := instance(t, service, "prod", l.Addr().String())
	in.ID = ""
	reg, err := discovery.Register(t.Context(), source, discovery.RegisterOptions{Force: true}, in)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() { left <- reg.RunThen(ctx, server.Shutdown) }()
	p.end = sync.OnceValue(func() error {
		cancel()
		err := <-left
		if served := <-serving; served != http.ErrServerClosed {
			t.Error(served)
		}
		return err
	})
	t.Cleanup(func() { _ = p.end() })
	return p
}

// await waits for something that happens by itself.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after 20 s still not: %s", what)
		}
	}
}
