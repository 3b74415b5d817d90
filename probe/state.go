package probe

import (
	"context"
	"strings"
	"time"
)

// The words of State.State.
const (
	Unknown = "unknown"
	Up      = "up"
	Down    = "down"
)

// DanglingCNAME begins the problem of a host that is an alias of a name which does
// not exist: whoever registers that name answers for the host.
const DanglingCNAME = "dangling_cname"

// Shot is one probe.
type Shot struct {
	At      time.Time
	OK      bool
	Millis  int
	Problem string    // why not, for people; it begins with a word of ours
	Expires time.Time // of the certificate; zero: none was seen
}

// State is what a prober knows of a host.
type State struct {
	Host    string
	State   string    // Unknown, Up or Down
	Since   time.Time // when it came into the state
	Last    time.Time // of the last probe
	Problem string    // of the last probe, if it failed
	Expires time.Time // of the certificate
	Recent  []Shot    // the last five, newest first
}

// Dangling says whether the host is an alias of a name that does not exist.
func (s State) Dangling() bool { return strings.HasPrefix(s.Problem, DanglingCNAME) }

// host is a State and the successes (above 0) or failures (below 0) since it changed
// its mind last.
type host struct {
	State
	streak int
	warned time.Time // the end of the certificate that was warned of
}

// Sight is what one round saw: it tells a prober that is to be distrusted from hosts
// that are down.
type Sight struct{ hosts, answered, standing, failing int }

// Add notes a host, the state that it had, and whether it answered.
func (s *Sight) Add(state string, ok bool) {
	s.hosts++
	if ok {
		s.answered++
	}
	if state == Up {
		s.standing++
		if !ok {
			s.failing++
		}
	}
}

// Suspect says whether more than half of the hosts that were up fail, or nothing at
// all answers.
func (s Sight) Suspect() bool {
	return s.failing*2 > s.standing || s.answered == 0 && s.hosts > 0
}

// judge puts the shots of a round into the states.
func (p *Prober) judge(ctx context.Context, hosts []string, shots []Shot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.opt.Now()
	var sight Sight
	known := make(map[string]*host, len(hosts))
	for i, name := range hosts {
		h := p.known[name]
		if h == nil {
			h = &host{State: State{Host: name, State: Unknown, Since: now}}
		}
		known[name] = h
		sight.Add(h.State.State, shots[i].OK)
	}
	p.known = known // hosts that nobody names any more are forgotten
	suspect := sight.Suspect()
	p.suspect(ctx, suspect, sight)
	for i, name := range hosts {
		shots[i].At = now
		h := known[name]
		p.warn(ctx, h, shots[i])
		h.note(shots[i])
		if before := h.State.State; !suspect && h.turn(shots[i].OK, now) {
			p.changed(ctx, h, before)
		}
	}
}

// note keeps a shot.
func (h *host) note(s Shot) {
	h.Last, h.Problem = s.At, s.Problem
	if !s.Expires.IsZero() {
		h.Expires = s.Expires
	}
	h.Recent = append([]Shot{s}, h.Recent[:min(len(h.Recent), keptShots-1)]...)
}

// turn counts a shot and says whether the state changed.
func (h *host) turn(ok bool, now time.Time) bool {
	switch {
	case ok:
		h.streak = max(h.streak, 0) + 1
	default:
		h.streak = min(h.streak, 0) - 1
	}
	next := h.State.State
	if h.streak >= UpAfter {
		next = Up
	}
	if h.streak <= -DownAfter {
		next = Down
	}
	if next == h.State.State {
		return false
	}
	h.State.State, h.Since = next, now
	return true
}

func (p *Prober) suspect(ctx context.Context, now bool, s Sight) {
	switch {
	case now && !p.distrusted:
		p.opt.Log.WarnContext(ctx, "most hosts fail at once: this prober is distrusted, states stay what they were", "answer", s.answered, "of", s.hosts,
			"try", "look at this node's own network and DNS; nothing acts by itself meanwhile")
	case !now && p.distrusted:
		p.opt.Log.InfoContext(ctx, "hosts answer again: this prober is trusted")
	}
	p.distrusted = now
}

func (p *Prober) changed(ctx context.Context, h *host, before string) {
	if h.State.State == Down {
		p.opt.Log.WarnContext(ctx, "a host is down", "host", h.Host, "was", before, "why", h.Problem)
		return
	}
	p.opt.Log.InfoContext(ctx, "a host is up", "host", h.Host, "was", before)
}

// warn says once what somebody must mend before it hurts.
func (p *Prober) warn(ctx context.Context, h *host, s Shot) {
	if strings.HasPrefix(s.Problem, DanglingCNAME) && !h.Dangling() {
		p.opt.Log.WarnContext(ctx, "a host is an alias of a name that does not exist: whoever registers that name answers for it", "host", h.Host,
			"why", s.Problem, "try", "remove the alias from the zone, or register the name again; no document that sends people there can be published")
	}
	if left := s.Expires.Sub(s.At); !s.Expires.IsZero() && left < RenewWithin && !h.warned.Equal(s.Expires) {
		h.warned = s.Expires
		p.opt.Log.WarnContext(ctx, "a certificate ends soon", "host", h.Host, "expires", s.Expires.UTC().Format(time.RFC3339), "try", "renew it")
	}
}
