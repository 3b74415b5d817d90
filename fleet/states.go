package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// recheckEvery is how often Await looks at what nobody announces: this node
	// itself, and replicas that fall silent.
	recheckEvery = 250 * time.Millisecond
	// lookApart is the least time between two looks of Await, so that thousands of
	// replicas that come at once are not each a walk over all.
	lookApart = 2 * time.Millisecond
)

// codeStale is the code of a refusal because a newer release is in use, which is no fault.
const codeStale = "stale"

// Members is everybody: this node if it serves, those who ask, and the silent
// ones. offered says which number a replica should serve, 0 if that is not known.
// An id is there twice while two processes use it.
func (r *Roster) Members(offered func(replica string) uint64) []Member {
	list := r.list()
	head := uint64(0)
	for _, m := range list {
		head = max(head, offered(m.ID))
	}
	members := make([]Member, 0, len(list))
	for _, m := range list {
		m.State = m.state(offered(m.ID), head)
		members = append(members, m.Member)
	}
	return members
}

func (m *seenMember) state(offered, head uint64) State {
	switch {
	case !m.live:
		return Silent
	case m.refuses(offered):
		return Refusing
	case head > 0 && m.Number > head:
		return Ahead
	case m.Number < offered || m.Number == 0:
		return Behind
	}
	return Current
}

// refuses says whether the replica has refused a release of this number that it
// does not serve, or its records, or another release of its own number.
func (m *seenMember) refuses(number uint64) bool {
	return m.Refusal != nil && m.Refusal.Number == number && m.Number <= number && m.Refusal.Code != codeStale
}

// Await waits until a release is served or refused by everybody who is not
// silent, or by the one replica that only names, or until ctx ends, and says who
// serves it then. This node must have taken the release into use before.
func (r *Roster) Await(ctx context.Context, number uint64, only string) Acknowledgement {
	start := r.opt.Now()
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		changed := r.Changed()
		ack, last, waiting := r.acknowledged(number, only)
		ack.After = max(last.Sub(start), 0).Seconds()
		if !waiting {
			return ack
		}
		select {
		case <-changed:
			pause(ctx, lookApart)
		case <-tick.C:
		case <-ctx.Done():
			return ack
		}
	}
}

// acknowledged is how far a release has come, since when, and whether waiting can
// bring it further.
func (r *Roster) acknowledged(number uint64, only string) (ack Acknowledgement, last time.Time, waiting bool) {
	for _, m := range r.list() {
		if only != "" && m.ID != only || only == "" && !m.live {
			continue
		}
		ack.Of++
		if m.Number >= number {
			ack.Replicas++
			if m.reached.After(last) {
				last = m.reached
			}
			continue
		}
		refused := m.refuses(number)
		waiting = waiting || !refused
		ack.Lagging = append(ack.Lagging, Lag{Replica: m.ID, Number: m.Number, Why: m.why(refused, r.opt.Now())})
	}
	if only != "" && ack.Of == 0 {
		ack.Of, waiting = 1, true
		ack.Lagging = []Lag{{Replica: only, Why: "this node does not know it"}}
	}
	return ack, last, waiting
}

// why says what keeps the replica from serving a release.
func (m *seenMember) why(refused bool, now time.Time) string {
	switch {
	case refused:
		return "refused: " + m.Refusal.Code + ": " + m.Refusal.Reason
	case !m.live:
		return fmt.Sprintf("has not asked for %.0f s", now.Sub(m.Seen).Seconds())
	}
	for _, s := range m.Sources {
		if !s.OK && s.Problem != "" {
			return "has not taken it yet; " + s.Name + ": " + s.Problem
		}
	}
	return "has not taken it yet"
}

// Canary is who shall serve the next release before the others: of those that
// serve what most serve and are not this node, the one with the smallest id,
// one without a refusal and without an override if there is one. Neither excludes
// a replica: a source that brings forgeries to all would else end all canaries.
// Within SilentAfter of a start replicas that Memory has seen lately count too,
// so that a restart is no way around the canary.
func (r *Roster) Canary() (id string, ok bool) {
	list := slices.DeleteFunc(r.list(), func(m seenMember) bool {
		return m.self || m.twin || m.Role == "control" || m.Number == 0 || !m.live && !r.expected(m)
	})
	number := mostServed(list)
	for _, blemished := range []bool{false, true} {
		for _, m := range list {
			if m.Number == number && (m.Refusal != nil || m.Override != nil) == blemished {
				return m.ID, true
			}
		}
	}
	return "", false
}

// expected says whether a replica that has not asked since this node started was
// there shortly before. Wall clocks are compared here; a wrong one costs a canary
// that is stopped, or a release without one.
func (r *Roster) expected(m seenMember) bool {
	return r.opt.Now().Sub(r.started) < SilentAfter && r.started.Sub(m.Seen) < saveEvery+SilentAfter
}

// mostServed is the number that most serve, the higher one of two. One replica
// that reports a wild number thus stands alone.
func mostServed(list []seenMember) uint64 {
	votes := map[uint64]int{}
	for _, m := range list {
		votes[m.Number]++
	}
	best := uint64(0)
	for number, n := range votes {
		if cmp.Or(cmp.Compare(n, votes[best]), cmp.Compare(number, best)) > 0 {
			best = number
		}
	}
	return best
}

// Format is the lowest manifest format that a replica seen in the last 24 h
// reads, 0 if there was none.
func (r *Roster) Format() int {
	now, lowest := r.opt.Now(), 0
	for _, m := range r.list() {
		if m.Format > 0 && now.Sub(m.Seen) < forgetAfter && (lowest == 0 || m.Format < lowest) {
			lowest = m.Format
		}
	}
	return lowest
}
