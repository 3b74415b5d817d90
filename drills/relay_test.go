package drills

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// relay passes what comes to l on to an address, until the test ends.
func relay(t testing.TB, l net.Listener, to string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var open sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = l.Close() // ends the loop below
		open.Wait()
	})
	open.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { passOn(ctx, from, to) })
		}
	})
}

// passOn copies both ways until either end closes, or ctx ends: the far end may be cut off.
func passOn(ctx context.Context, from net.Conn, to string) {
	defer func() { _ = from.Close() }()
	on, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	closeBoth := func() {
		_ = from.Close()
		_ = on.Close()
	}
	defer context.AfterFunc(ctx, closeBoth)()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, on) // either end may close
		closeBoth()
	})
	_, _ = io.Copy(on, from) // either end may close
	closeBoth()
	back.Wait()
}
