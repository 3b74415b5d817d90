package discovery

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// T46: 10,000 sources that are opened, fail and are closed leave no memory behind.
func TestFailedSourcesLeaveNoMemory(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close() // nobody listens there now
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, kind := range []string{"consul", "nacos"} {
		cycle := func() {
			source, err := Open(kind+"://"+nobody, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			if _, err := source.Services(context.Background()); err == nil {
				t.Fatal("somebody answered")
			}
		}
		for range 100 {
			cycle()
		}
		before := heap()
		for range 10_000 {
			cycle()
		}
		if after := heap(); after > before+5<<20 {
			t.Errorf("%s: the heap grew from %d to %d bytes", kind, before, after)
		}
	}
}

// Full jitter: anything between nothing and a limit that doubles to a cap.
func TestBackoff(t *testing.T) {
	t.Parallel()
	for failures, limit := range map[int]time.Duration{0: firstBackoff, 1: firstBackoff, 2: 2 * firstBackoff, 3: maxBackoff, 100: maxBackoff, 1 << 40: maxBackoff} {
		var low, high time.Duration = limit, 0
		for range 1000 {
			d := backoff(failures)
			low, high = min(low, d), max(high, d)
		}
		if high > limit || high < limit*9/10 || low > limit/10 {
			t.Errorf("after %d failures: %s to %s, want all of 0 to %s", failures, low, high, limit)
		}
	}
}

func TestPauseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	if !pause(ctx, 0) || !pause(ctx, time.Millisecond) {
		t.Error("a pause reports an end that was none")
	}
	cancel()
	if pause(ctx, 0) || pause(ctx, time.Hour) {
		t.Error("a pause reports no end")
	}
}

// A caller finds the instances of a service by its name, and follows them.
func ExampleWatcher() {
	path := filepath.Join(os.TempDir(), fmt.Sprint("discovery-example-", os.Getpid(), ".yaml"))
	text := `instances:
  - {service: order-core, address: "10.1.0.7:8080", cluster: production, region: cn-hangzhou, env: prod, version: v2.3.1}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.Remove(path) }()

	source, err := Open("static:"+path, Options{}) // or consul://127.0.0.1:8500
	if err != nil {
		fmt.Println(err)
		return
	}
	defer source.Close()
	watcher, err := NewWatcher(source, "order-core", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- watcher.Run(ctx) }()

	_, changed := watcher.Current()
	<-changed
	list, _ := watcher.Current()
	for _, in := range list.Instances {
		fmt.Println(in.ID, in.Address, in.Region, in.Version, in.Share())
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// order-core-10.1.0.7-8080 10.1.0.7:8080 cn-hangzhou v2.3.1 100
	// <nil>
}
