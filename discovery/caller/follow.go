package caller

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/signed"
)

const (
	// failOver spreads the callers of a node that went over the others: a third of
	// them a second.
	failOver = 3 * time.Second
	// firstBackoff is wide because everybody loses control in the same second: spread
	// over 10 s, a second sees a tenth of them.
	firstBackoff = 10 * time.Second
	maxBackoff   = 16 * time.Second
	// pace bounds the questions while there is news, and tooSoon is how early a node
	// may say that there is none. One that does so sooner would be asked in a circle.
	pace    = 50 * time.Millisecond
	tooSoon = time.Second
	// spread keeps callers that were answered together from asking together for ever.
	spread = 100 * time.Millisecond
)

// place is where we are in what a control node tells.
type place struct {
	epoch   string
	version uint64
}

// errRefused is a release of rules that is not believed.
var errRefused = errors.New("rules are refused")

// follow asks control nodes, one at a time, until ctx ends. It begins with any of
// them, so that callers are spread over all.
func (c *Caller) follow(ctx context.Context) {
	nodes := c.opt.Control
	at := rand.IntN(len(nodes))
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		news, err := c.question(ctx, at)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errRefused): // it would be sent again at once
			failures = 0
			pause(ctx, tooSoon)
		case err == nil && news:
			failures = 0
			pause(ctx, pace)
		case err == nil:
			failures = 0
			pause(ctx, max(tooSoon-time.Since(began), rand.N(spread)))
		default:
			failures++
			at = (at + 1) % len(nodes)
			c.lost(ctx, err, failures)
		}
	}
}

// lost notes a question that failed, and waits before the next one.
func (c *Caller) lost(ctx context.Context, err error, failures int) {
	c.current.Store(-1)
	c.troubles.note("control", err)
	c.mu.Lock()
	if errors.Is(err, errEpoch) {
		c.place = place{} // everything anew
	}
	started := c.heard.any()
	c.mu.Unlock()
	nodes := len(c.opt.Control)
	if failures == nodes {
		closeOnce(c.passed)
	}
	switch {
	case failures >= nodes:
		pause(ctx, backoff(failures-nodes+1))
	case started:
		pause(ctx, rand.N(failOver))
	}
}

// backoff is how long to wait after so many rounds in which nobody answered:
// anything up to a limit that doubles.
func backoff(rounds int) time.Duration {
	limit := maxBackoff
	if rounds == 1 {
		limit = firstBackoff
	}
	return rand.N(limit)
}

// question asks a node once and takes over what it says. News is whether it said anything.
func (c *Caller) question(ctx context.Context, at int) (news bool, err error) {
	c.mu.Lock()
	q := wire.Ask{Caller: c.opt.ID, Service: c.opt.Service, Home: c.opt.Self, Services: c.opt.Services,
		Epoch: c.place.epoch, Version: c.place.version, Number: c.book.number}
	c.mu.Unlock()
	t, err := c.ask(ctx, c.opt.Control[at], q)
	if err != nil {
		return false, err
	}
	c.current.Store(int64(at))
	c.troubles.note("control", nil)
	err = c.take(t, q)
	return t.Full || len(t.Services) > 0 || t.Rules != nil, err
}

// take takes an answer over: lists always, rules if they can be believed.
func (c *Caller) take(t *wire.Tables, q wire.Ask) error {
	var set rules.Set
	var mark signed.Mark
	var refused error
	if t.Rules != nil {
		set, mark, refused = c.verify(t.Rules)
		c.troubles.note("rules", refused)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.heard.control.IsZero()
	c.heard.control = time.Now()
	c.place = place{t.Epoch, t.Version}
	c.takeLists(t, first)
	switch {
	case t.Rules != nil && refused == nil && mark.Number > c.mark.Number:
		c.takeRules(set, mark, t.Rules)
	case t.Rules == nil && !t.Unread && !c.book.known && q.Number == 0:
		c.book.known = true // control has none
		c.soil()
	}
	closeOnce(c.answered)
	if refused != nil {
		return fmt.Errorf("%w: %w", errRefused, refused)
	}
	return nil
}

// verify checks signature and number of a release. What is in use already is fine.
func (c *Caller) verify(s *rules.Signed) (rules.Set, signed.Mark, error) {
	c.mu.Lock()
	known := c.mark
	c.mu.Unlock()
	mark := signed.Mark{Number: s.Number, Seq: 1, Digest: sha256.Sum256(s.Manifest)}
	set, err := rules.Verify(*s, c.opt.Trust, c.opt.Deployment, c.opt.Self.Region)
	if err == nil && mark != known {
		err = mark.After(known)
	}
	if err != nil {
		return rules.Set{}, mark, fmt.Errorf("release %d of rules: %w", s.Number, err)
	}
	return set, mark, nil
}

// takeRules takes a verified set into use. c.mu is held.
func (c *Caller) takeRules(set rules.Set, mark signed.Mark, s *rules.Signed) {
	changed, all := c.book.turn(set, mark.Number)
	c.mark, c.book.signed = mark, s
	c.metrics.number.Set(float64(mark.Number))
	c.log.Info("rules are in use", "number", mark.Number, "rules", len(set.Rules), "changed", len(changed), "direct", set.Direct)
	if all {
		c.soil()
	}
	if len(changed) > 0 {
		c.soil(changed...)
	}
	signal(c.copying)
}

// takeLists takes over what changed. c.mu is held.
func (c *Caller) takeLists(t *wire.Tables, first bool) {
	if t.Full {
		for _, name := range c.opt.Services {
			if _, there := t.Services[name]; !there {
				c.learn(name, told{full: true, partial: t.Partial, first: first})
			}
		}
		for name, l := range c.lists {
			if _, there := t.Services[name]; there {
				continue
			}
			c.learn(name, told{full: true, partial: t.Partial, first: first})
			if len(l.carried) == 0 && len(c.opt.Services) == 0 {
				c.forget(name)
			}
		}
	}
	for name, s := range t.Services {
		if s.Gone && len(c.opt.Services) == 0 {
			c.forget(name)
			continue
		}
		c.learn(name, told{Service: s, full: t.Full, partial: t.Partial, first: first})
	}
	for name, said := range t.Loads {
		if l := c.lists[name]; l != nil {
			c.feel(name, l, said)
		}
	}
	if !t.Full {
		c.settle(t.Partial)
	}
}

// closeOnce is for channels that one goroutine closes.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// pause waits d and reports true, or reports false as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
