package discovery

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// probeTimeout is what a caller gives a connection, too.
	probeTimeout = 500 * time.Millisecond
	probeWidth   = 32 // connections at a time
)

// prober asks instances themselves whether they live.
type prober struct{ dialer }

// pulse is what a probe found.
type pulse uint8

const (
	unknown pulse = iota // the probe could not be made here
	alive
	dead
)

// all probes the instances side by side; the answers are in their order.
func (p prober) all(ctx context.Context, instances []Instance) []pulse {
	pulses := make([]pulse, len(instances))
	slots := make(chan struct{}, probeWidth)
	var probes sync.WaitGroup
	for i, in := range instances {
		slots <- struct{}{}
		probes.Go(func() {
			pulses[i] = p.one(ctx, in.Address)
			<-slots
		})
	}
	probes.Wait()
	return pulses
}

func (p prober) one(ctx context.Context, a Address) pulse {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := p.DialContext(ctx, "tcp", a.String())
	switch {
	case err == nil:
		_ = conn.Close() // it was opened to be closed
		return alive
	case errors.Is(ctx.Err(), context.Canceled) || ownFault(err):
		return unknown
	default:
		return dead
	}
}

// ownFault says whether a call failed for want of something here.
func ownFault(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EPERM, syscall.ENETUNREACH, syscall.ENETDOWN} {
		if errors.Is(err, errno) {
			return true
		}
	}
	name, ok := errors.AsType[*net.DNSError](err)
	return ok && !name.IsNotFound
}
