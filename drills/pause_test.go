package drills

import (
	"context"
	"fmt"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/internal/testenv"
)

// pauseC13 is how long a network may be away without anybody losing a lease.
const pauseC13 = 5 * time.Second

// C13: the network of every instance is away for 5 s, and the registry removes nobody.
func TestC13PauseRemovesNobody(t *testing.T) {
	t.Parallel()
	if !namespaces(t) {
		return
	}
	const hosts = 3
	n := newNetwork(t, hosts)
	relay(t, n.listen(t, 8500), testenv.Consul(t))
	for i := 1; i <= hosts; i++ {
		p := &serverPart{Service: "c13", Listen: n.host(i) + ":8080", Registry: "consul://" + hub + ":8500", Version: "v1"}
		start(t, fmt.Sprintf("server-%d", i), part{Server: p}, n.inside(i)...)
	}
	source, err := discovery.Open("consul://"+testenv.Consul(t), discovery.Options{})
	must(t, err)
	t.Cleanup(source.Close)
	w, err := discovery.NewWatcher(source, "c13", nil)
	must(t, err)
	during(t, func(ctx context.Context) { _ = w.Run(ctx) }) // it ends with ctx
	within(t, 10*time.Second, func() error {
		if s, _ := w.Current(); len(s.Instances) != hosts {
			return fmt.Errorf("%d of %d are listed", len(s.Instances), hosts)
		}
		return nil
	})
	before, _ := w.Current()
	pauses := pick(1, 10)
	for range pauses {
		for i := 1; i <= hosts; i++ {
			n.cut(t, i)
		}
		pass(t, pauseC13)
		for i := 1; i <= hosts; i++ {
			n.mend(t, i)
		}
		pass(t, discovery.DefaultTTL-pauseC13+time.Second) // a lease that was not renewed has ended now
	}
	now, _ := w.Current()
	figure(t, "C13", "%d times %s without a network: %d of %d instances listed, the list changed %d times (limit 0)", pauses, pauseC13, len(now.Instances), hosts, now.Version-before.Version)
	if now.Version != before.Version {
		t.Errorf("the list changed: %+v", now.Instances)
	}
}
