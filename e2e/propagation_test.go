package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"dispatch.example/dispatch/e2e/load"
	"dispatch.example/dispatch/e2e/topology"
)

// P1: a swap reaches the last of six edges within a second with Redis and by the
// long poll alone, and within 7 s by polling when both nudges are lost. A sample
// is the last edge, from when the operator sends the swap to its first new answer.
func TestP01ASwapReachesTheLastEdge(t *testing.T) {
	for _, mode := range []struct {
		name  string
		opt   topology.Options
		lose  func(t *testing.T, top *topology.Topology) // nudges
		swaps int
		limit time.Duration
		at    float64 // quantile
	}{
		{"with Redis", topology.Options{}, nil, pick(20, 200), time.Second, 0.99},
		{"long poll alone", topology.Options{NoRedis: true}, nil, pick(20, 200), time.Second, 0.99},
		{"both nudges lost", topology.Options{Links: true}, loseNudges, pick(3, 20), 7 * time.Second, 1},
	} {
		t.Run(mode.name, func(t *testing.T) {
			mode.opt.Edges, mode.opt.NoProxy = 3, true
			top := start(t, mode.opt)
			if mode.lose != nil {
				mode.lose(t, top)
			}
			var last []time.Duration
			for range mode.swaps {
				last = append(last, swapAndWait(t, top))
			}
			slices.Sort(last)
			worst := last[min(len(last)-1, int(mode.at*float64(len(last))))]
			figure(t, "P1", "%s: %d swaps to the last of %d edges: p50 %s, p99 %s, limit %s", mode.name, len(last), len(top.Edges),
				ms(last[len(last)/2]), ms(worst), mode.limit)
			if worst > mode.limit {
				t.Errorf("publish to served: %s, limit %s; all: %v", worst, mode.limit, last)
			}
		})
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// swapAndWait swaps and returns when the last edge has the new release.
func swapAndWait(t *testing.T, top *topology.Topology) time.Duration {
	t.Helper()
	head, err := top.Head(t.Context())
	must(t, err)
	served := make([]time.Time, len(top.Edges))
	errs := make([]error, len(top.Edges))
	var watch sync.WaitGroup
	begin := time.Now()
	for i, edge := range top.Edges {
		watch.Go(func() {
			errs[i] = top.WaitEdge(t.Context(), edge, head+1)
			served[i] = time.Now()
		})
	}
	_, err = top.Swap(t.Context())
	watch.Wait()
	must(t, err)
	for _, err := range errs {
		must(t, err)
	}
	return slices.MaxFunc(served, time.Time.Compare).Sub(begin)
}

// loseNudges leaves only the poll: no edge reaches a control node, and Redis
// takes releases but publishes nothing.
func loseNudges(t *testing.T, top *topology.Topology) {
	t.Helper()
	for _, edge := range top.Edges {
		for _, link := range edge.Links[1:] {
			link.Cut()
		}
	}
	client := redis.NewClient(&redis.Options{Addr: top.RedisAddr()})
	defer client.Close()
	must(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "-publish").Err())
}

// The second half of P1: answers do not get slower while releases change. One edge
// of the six is asked, on a processor of its own, as an edge is: six that compile
// at once on two processors would measure the machine.
func TestP01AnswersStayFastDuringSwaps(t *testing.T) {
	keepOff(t, 0)
	top := start(t, topology.Options{Edges: 3, NoProxy: true, Apart: true})
	hurry(t)
	window := load.Load{Addrs: []string{top.Edges[0].Public}, Rate: 300, For: pick(2*time.Second, 20*time.Second)}
	var idle, swapping []time.Duration
	for range 6 { // the first pair is warm-up
		quiet := window.Run(t.Context())
		ctx, stop := context.WithCancel(t.Context())
		swaps := make(chan error, 1)
		go func() { swaps <- swapUntil(ctx, top) }()
		busy := window.Run(t.Context())
		stop()
		must(t, <-swaps)
		if quiet.Failed+busy.Failed > 0 {
			t.Errorf("failed answers: %v %v", quiet.Failures, busy.Failures)
		}
		idle, swapping = append(idle, quiet.Quantile(0.99)), append(swapping, busy.Quantile(0.99))
	}
	a, b := median(idle[1:]), median(swapping[1:])
	figure(t, "P1", "p99 of /route: idle %s, during swaps %s (%.2f times; limit 1.2 times, or 1 ms more)", ms(a), ms(b), float64(b)/float64(a))
	// The limit is not met: a swap takes an edge about 6 ms of its processor, twice a
	// second, and an answer that comes meanwhile waits. The small form finds only
	// answers that wait for the change itself.
	if limit := pick(a+20*time.Millisecond, max(a*12/10, a+time.Millisecond)); b > limit {
		t.Errorf("p99 %s during swaps, %s idle, limit %s", b, a, limit)
	}
}

// swapUntil swaps twice a second until ctx ends.
func swapUntil(ctx context.Context, top *topology.Topology) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := top.Swap(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// keepOff keeps this process, and whatever it starts until the test ends, off one
// processor. Without a second one there is nowhere to go.
func keepOff(t *testing.T, processor int) {
	t.Helper()
	var before unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &before))
	others := before
	if others.Clear(processor); others.Count() == 0 {
		return
	}
	move := func(to *unix.CPUSet) {
		eachThread(t, func(id int) error { return unix.SchedSetaffinity(id, to) })
	}
	move(&others)
	t.Cleanup(func() { move(&before) })
}

// hurry lets this process run before those that it has started, so that what it
// measures is not its own wait for a processor. Who may not do so measures that too.
func hurry(t *testing.T) {
	t.Helper()
	nice := func(n int) {
		eachThread(t, func(id int) error {
			if err := unix.Setpriority(unix.PRIO_PROCESS, id, n); !errors.Is(err, unix.EACCES) {
				return err
			}
			return nil
		})
	}
	nice(-10)
	t.Cleanup(func() { nice(0) })
}

func eachThread(t *testing.T, do func(id int) error) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	must(t, err)
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		must(t, err)
		if err := do(id); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			t.Fatal(err)
		}
	}
}
