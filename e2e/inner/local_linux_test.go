package inner

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

// door is the way to one registry; it counts who comes.
type door struct {
	net.Listener
	came atomic.Int64
	open sync.WaitGroup
}

// newDoor passes connections on from an address to a registry, until the test ends.
func newDoor(t *testing.T, address, registry string) *door {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must(t, err)
	d := &door{Listener: l}
	d.open.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			d.came.Add(1)
			d.open.Go(func() { pass(in, registry) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); d.open.Wait() }) // hops have ended by then
	return d
}

// pass copies both ways until one side ends.
func pass(in net.Conn, registry string) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", registry)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
	_, _ = io.Copy(out, in)
	_ = out.Close()
	back.Wait()
}

// B21: services of two regions have the same configuration, word for word. What the
// registry's name means is their region's matter, and nobody asks the other one.
func TestEachRegionAsksItsOwnRegistry(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not run: only root can give a process an /etc/hosts of its own")
		return
	}
	_, port, err := net.SplitHostPort(freeAddr(t))
	must(t, err)
	regions := []string{"cn-hangzhou", "cn-shanghai"}
	doors, hops := map[string]*door{}, map[string][]*hop{}
	hosts := map[string]string{}
	for i, region := range regions {
		address := fmt.Sprintf("127.0.%d.1", i+1)
		doors[region] = newDoor(t, net.JoinHostPort(address, port), testenv.NewConsul(t, "").Addr)
		hosts[region] = filepath.Join(t.TempDir(), "hosts")
		must(t, os.WriteFile(hosts[region], []byte(address+" registry.test\n"), 0o600))
	}
	for i, region := range regions {
		for _, server := range []string{"shop", "order"} {
			h := launch(t, place{server: server, region: region, env: "prod", hosts: hosts[region]}, "-registry", "consul://registry.test:"+port, "-calls", "order.api")
			hops[region] = append(hops[region], h)
		}
		registered(t, hops[region]...)
		for _, other := range regions[i+1:] {
			if n := doors[other].came.Load(); n > 0 {
				t.Errorf("%s has started alone, and the registry of %s had %d connections", region, other, n)
			}
		}
	}
	asked := doors[regions[0]].came.Load()
	for _, region := range regions {
		shop, order := hops[region][0], hops[region][1]
		within(t, 10*time.Second, func() error { // the list comes when the registry tells of it
			got, err := shop.ask(t.Context(), url.Values{"path": {"order.api"}})
			if err != nil {
				return err
			}
			if last := got.Places[len(got.Places)-1]; last.Region != region || last.Address != order.addr {
				t.Errorf("%s: the call ended at %+v", region, last)
			}
			return nil
		})
		if counts, errs := shop.calls(t, 200, "order.api"); len(errs) > 0 || counts["prod v1"] != 200 {
			t.Errorf("%s: calls went to %v, failed with %v", region, counts, errs)
		}
	}
	if asked == 0 || doors[regions[1]].came.Load() == 0 {
		t.Errorf("nobody came to %d and %d", asked, doors[regions[1]].came.Load())
	}
}
