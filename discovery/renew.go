package discovery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// releaseLost is what the entry of a lost lease may cost before the next is made.
	releaseLost = time.Second
	// maxLeft leases that could not be released are released again at the end; there
	// is one for each agent that was left at most.
	maxLeft = 8
)

// held is one instance and its lease. keep alone uses lease and left until Run releases.
type held struct {
	in    Instance
	lease Lease
	left  []Lease // lost, and not released yet

	mu       sync.Mutex // guards the rest
	failures int        // renewals in a row that failed
	problem  error
}

// keep renews one lease until ctx ends, or until it is lost and that is the end.
func (r *Registration) keep(ctx context.Context, h *held) error {
	tick := time.NewTicker(RenewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := r.renew(ctx, h)
		if ctx.Err() != nil {
			return nil
		}
		r.note(h, err)
		if r.endWhenLost && h.lost() {
			return fmt.Errorf("renew %s: %w: %w", h.in.ID, ErrLost, err)
		}
	}
}

// renew renews the lease. One that has run out is given up instead: callers have
// left, and the registry may have handed the id to another. Then the instance is
// entered from the start, with all its checks.
func (r *Registration) renew(ctx context.Context, h *held) error {
	if !h.lost() {
		ctx, cancel := context.WithTimeout(ctx, renewTimeout)
		defer cancel()
		return h.lease.Renew(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	releasing, done := context.WithTimeout(ctx, releaseLost)
	left := h.lease.Release(releasing)
	done()
	lease, err := r.source.Register(ctx, h.in)
	if err != nil {
		return fmt.Errorf("register again: %w", err)
	}
	if left != nil && len(h.left) < maxLeft {
		h.left = append(h.left, h.lease)
	}
	h.lease = lease
	return nil
}

func (h *held) lost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures >= lostAfter
}

// release removes the entry, and those that were left behind.
func (h *held) release(ctx context.Context) error {
	errs := []error{h.lease.Release(ctx)}
	for _, lease := range h.left {
		errs = append(errs, lease.Release(ctx))
	}
	return errors.Join(errs...)
}

// note keeps and logs how a renewal went.
func (r *Registration) note(h *held, err error) {
	h.mu.Lock()
	before := h.failures
	h.problem = err
	if h.failures++; err == nil {
		h.failures = 0
	}
	now := h.failures
	h.mu.Unlock()
	log := r.log.With("of", h.in.Service, "id", h.in.ID)
	switch {
	case err == nil && before >= lostAfter:
		log.Info("registered again; callers warm it up first", "lost", before, "warming_until", time.Now().Add(warmUp).UTC().Format(time.RFC3339))
	case err == nil && before > 0:
		log.Info("registration is renewed again", "lost", before)
	case now == 1:
		log.Warn("registration was not renewed", "err", err)
	case now == lostAfter:
		log.Error("registration has run out; callers no longer find this instance", "err", err)
	}
}

// Problem is why an instance of ours may be unknown to callers; nil if none is.
func (r *Registration) Problem() error {
	var errs []error
	for _, h := range r.held {
		h.mu.Lock()
		errs = append(errs, h.problem)
		h.mu.Unlock()
	}
	return errors.Join(errs...)
}
