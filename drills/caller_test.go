package drills

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/grpccall"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/httpcall"
)

// callerPart calls a service at a fixed rate, whatever becomes of the calls, and
// writes down each of them and each pick.
type callerPart struct {
	Service  string
	Registry string
	RPC      bool          `json:",omitempty"` // by gRPC; Service is the one that speaks it
	Rate     int           // calls a second
	Deadline time.Duration `json:",omitempty"` // of each call; 0: it has none of its own
	Blind    bool          `json:",omitempty"` // tell nobody how calls end: the layer off
	Samples  string        // the file, written at the end
	Control  *controlled   `json:",omitempty"` // whose tables it follows; nil: the registry's
}

// event is a line of Samples.
type event struct {
	Kind    string // pick: an instance was chosen for an attempt; call: one has ended
	At      time.Time
	Address string // of the pick
	Outcome string // of the call: served, or why not
	Took    time.Duration
}

// events are written down by many.
type events struct {
	mu  sync.Mutex
	all []event
}

func (e *events) add(ev event) {
	e.mu.Lock()
	e.all = append(e.all, ev)
	e.mu.Unlock()
}

// noting is a caller whose picks are written down.
type noting struct {
	*caller.Caller
	events *events
	blind  bool
}

// Pick implements guard.Caller.
func (n noting) Pick(ctx context.Context, service string) (caller.Pick, error) {
	p, err := n.Caller.Pick(ctx, service)
	n.note(p, err)
	return p, err
}

// PickOther implements guard.Caller.
func (n noting) PickOther(ctx context.Context, service string, not *discovery.Instance) (caller.Pick, error) {
	p, err := n.Caller.PickOther(ctx, service, not)
	n.note(p, err)
	return p, err
}

// Done implements guard.Caller.
func (n noting) Done(ctx context.Context, p *caller.Pick, o caller.Outcome) {
	if !n.blind {
		n.Caller.Done(ctx, p, o)
	}
}

func (n noting) note(p caller.Pick, err error) {
	if err == nil {
		n.events.add(event{Kind: "pick", At: time.Now(), Address: p.Instance.Address.String()})
	}
}

func (p *callerPart) play(ctx context.Context, log *slog.Logger) error {
	source, err := discovery.Open(p.Registry, discovery.Options{Log: log})
	if err != nil {
		return err
	}
	defer source.Close()
	opt := caller.Options{Self: home("v1"), Registry: source, Services: []string{p.Service}, Log: log}
	if err := p.Control.options(&opt); err != nil {
		return err
	}
	c, err := caller.New(opt)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { _ = c.Run(ctx) }) // it ends with ctx
	if err := c.Ready(ctx); err != nil {
		return err
	}
	written := &events{}
	call, closeAll, err := p.client(noting{c, written, p.Blind})
	if err != nil {
		return err
	}
	defer closeAll()
	fmt.Println(ready)
	openLoop(ctx, p.Rate, func() { written.add(p.one(ctx, call)) })
	return written.write(p.Samples)
}

// client is how the part calls once.
func (p *callerPart) client(c noting) (call func(context.Context) error, closeAll func(), err error) {
	if p.RPC {
		conn, err := grpc.NewClient("dispatch:///"+p.Service, append(grpccall.DialOptions(c), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			return nil, nil, err
		}
		client := health.NewHealthClient(conn)
		return func(ctx context.Context) error {
			_, err := client.Check(ctx, &health.HealthCheckRequest{})
			return err
		}, func() { _ = conn.Close() }, nil
	}
	client := &http.Client{Transport: httpcall.New(c, nil)}
	return func(ctx context.Context) error { return get(ctx, client, "http://"+p.Service+"/") }, client.CloseIdleConnections, nil
}

// get is a call by HTTP; an answer of 5xx is an error.
func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it is read to its end
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		return errors.New("status " + strconv.Itoa(resp.StatusCode))
	}
	return nil
}

// one makes a call and says how it went.
func (p *callerPart) one(ctx context.Context, call func(context.Context) error) event {
	limited := ctx
	if p.Deadline > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, p.Deadline)
		defer cancel()
	}
	begin := time.Now()
	err := call(limited)
	return event{Kind: "call", At: begin, Outcome: outcome(ctx, err), Took: time.Since(begin)}
}

// served is the outcome of a call that got what it wanted.
const served = "served"

// outcome is one word for how a call ended.
func outcome(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return served
	case ctx.Err() != nil:
		return "ended" // with this process: it says nothing
	case isOpen(err):
		return "open"
	}
	text := strings.ToLower(err.Error())
	for _, known := range []struct{ in, word string }{
		{"deadline", "deadline"}, {"timeout", "deadline"}, {"refused", "refused"}, {"reset", "reset"}, {"eof", "reset"}, {"status 5", "failed"},
	} {
		if strings.Contains(text, known.in) {
			return known.word
		}
	}
	return strings.Map(func(r rune) rune { // one field of a line
		if r == ' ' || r == '\n' {
			return '_'
		}
		return r
	}, text)
}

func isOpen(err error) bool {
	_, ok := errors.AsType[*guard.Open](err)
	return ok
}

// openLoop begins so many calls a second until ctx ends, and waits for the last.
func openLoop(ctx context.Context, rate int, call func()) {
	var calls sync.WaitGroup
	defer calls.Wait()
	begin, every := time.Now(), time.Second/time.Duration(rate)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := time.Duration(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			calls.Go(call)
			timer.Reset(time.Until(begin.Add(n * every)))
		}
	}
}

// write puts all into a file, one a line.
func (e *events) write(path string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, ev := range e.all {
		_, _ = fmt.Fprintln(w, ev.Kind, ev.At.UnixNano(), ev.Address+"/"+ev.Outcome, ev.Took.Nanoseconds()) // Flush tells
	}
	return errors.Join(w.Flush(), f.Close())
}

// readEvents reads what a caller wrote.
func readEvents(t testing.TB, path string) (all []event) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		var ev event
		var at, took int64
		var both string
		if _, err := fmt.Sscan(line, &ev.Kind, &at, &both, &took); err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		ev.Address, ev.Outcome, _ = strings.Cut(both, "/")
		ev.At, ev.Took = time.Unix(0, at), time.Duration(took)
		all = append(all, ev)
	}
	return all
}
