package guard

import (
	"context"
	"sync"
	"testing"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
)

// instances is a Caller over a list, that takes what it is told.
type instances struct {
	all []discovery.Instance

	mu       sync.Mutex // guards the rest
	next     int
	outcomes []caller.Outcome
	refused  int
}

func (i *instances) Pick(context.Context, string) (caller.Pick, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.all) == 0 {
		return caller.Pick{}, &route.NoMatch{Service: "order-core"}
	}
	i.next++
	return caller.Pick{Choice: route.Choice{Instance: &i.all[i.next%len(i.all)]}}, nil
}

func (i *instances) PickOther(ctx context.Context, service string, not *discovery.Instance) (caller.Pick, error) {
	for range 16 {
		if p, err := i.Pick(ctx, service); err != nil || p.Instance.Address != not.Address {
			return p, err
		}
	}
	return i.Pick(ctx, service)
}

func (i *instances) Done(_ context.Context, _ *caller.Pick, o caller.Outcome) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.outcomes = append(i.outcomes, o)
}

func (i *instances) Refused(context.Context, string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refused++
	return "abc-1"
}

func (i *instances) Lane(context.Context) route.Query { return route.Query{} }

// servers are n instances of order-core.
func servers(n int) *instances {
	i := &instances{}
	for at := range n {
		i.all = append(i.all, discovery.Instance{Service: "order-core", Address: discovery.Address{Host: "10.0.0.1", Port: uint16(at + 1)}})
	}
	return i
}

// made is a Guard of these instances.
func made(t testing.TB, i *instances, opt Options) *Guard {
	t.Helper()
	g, err := New(i, opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// attempts makes one call whose attempts all end in this way, and returns why there
// was no other.
func attempts(g *Guard, ctx context.Context, o caller.Outcome) (n int, err error) {
	call, err := g.Begin(ctx, "order-core")
	if err != nil {
		return 0, err
	}
	defer call.End()
	for {
		if err := call.Next(ctx); err != nil {
			return call.Attempts, err
		}
		call.Done(ctx, o, call.Took())
		if o == caller.Answered || o == caller.Canceled {
			return call.Attempts, nil
		}
	}
}

func TestACallIsTriedAtAnotherInstanceOnce(t *testing.T) {
	t.Parallel()
	n, err := attempts(made(t, servers(3), Options{}), t.Context(), caller.Unreachable)
	if n != 2 || err != UsedUp {
		t.Errorf("%d attempts, %v", n, err)
	}
}
