package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

const (
	// MaxMembers bounds a Roster. Above it whoever was silent longest goes.
	MaxMembers = 10_000
	// forgetAfter is when a silent replica that no Memory holds is forgotten, and
	// how far back Format looks.
	forgetAfter = 24 * time.Hour
	// maxBoots bounds how many processes with one id are told apart.
	maxBoots = 4
)

// Memory keeps members across restarts of a control node.
type Memory interface {
	SaveReplicas(ctx context.Context, members []Member) error
	Replicas(ctx context.Context) ([]Member, error)
}

// RosterOptions are all optional.
type RosterOptions struct {
	Memory   Memory                      // default none: a restart forgets who is silent
	Self     func() (Report, bool)       // this node, if it serves
	Offered  func(replica string) uint64 // what is on offer, for metrics; default: what most serve
	Now      func() time.Time            // default time.Now; ages are told by its monotonic part
	Log      *slog.Logger                // default: discard
	Registry *prometheus.Registry        // default: no metrics
}

// Roster is who asks this control node for releases, and how they get along. Its
// methods may be called by several goroutines.
type Roster struct {
	opt     RosterOptions
	started time.Time
	unsaved chan struct{} // has a token when somebody is to be saved before the minute is over

	mu      sync.Mutex           // guards what follows
	members map[string][]*member // by id; more than one: that many processes have the id
	count   int                  // of all of them
	changed chan struct{}
}

// member is one process.
type member struct {
	report   Report
	seen     time.Time
	first    time.Time
	reached  time.Time // when it was first heard to serve what it serves
	heard    bool      // by this Roster since it started; otherwise Memory knows it
	replaced bool      // another process with the id came later and this one has not asked since
	saved    notable
	unsaved  bool
}

// notable is what is saved at once when it changes.
type notable struct {
	replica   Replica
	refusal   release.Refusal
	disk      string
	override  string
	databases policy.GeoDigests
}

func (m *member) notable() notable {
	n := notable{replica: m.report.Replica, disk: m.report.DiskError, databases: m.report.Databases}
	if m.report.Refusal != nil {
		n.refusal = *m.report.Refusal
	}
	if m.report.Override != nil {
		n.override = m.report.Override.ID
	}
	return n
}

// live says whether the member asks for releases now.
func (m *member) live(now time.Time) bool { return m.heard && now.Sub(m.seen) < SilentAfter }

// NewRoster returns a Roster without members. Run fills it from Memory.
func NewRoster(opt RosterOptions) (*Roster, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	r := &Roster{opt: opt, started: opt.Now(), unsaved: make(chan struct{}, 1), members: map[string][]*member{}, changed: make(chan struct{})}
	if opt.Registry != nil {
		if err := opt.Registry.Register(newRosterCollector(r)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Saw notes that a replica has asked, and what it said.
func (r *Roster) Saw(report Report) {
	report.Release, report.Counts, report.Verdict = nil, nil, nil
	now := r.opt.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.find(report.ID, report.Boot)
	if m == nil {
		if m = r.join(report, now); m == nil {
			return
		}
	}
	changed := !m.live(now) || m.replaced
	if m.replaced {
		m.replaced = false
		r.opt.Log.Error("two processes report under one replica id", "replica", report.ID, "boot", report.Boot, "address", report.Address,
			"try", "give each machine its own --replica-id")
	}
	if m.reached.IsZero() || m.report.Number != report.Number || m.report.Seq != report.Seq {
		m.reached, changed = now, true
	}
	m.report, m.seen, m.heard = report, now, true
	if n := m.notable(); n != m.saved {
		m.saved, m.unsaved, changed = n, true, true
		select {
		case r.unsaved <- struct{}{}:
		default:
		}
	}
	if changed {
		r.wake()
	}
}

func (r *Roster) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Roster) find(id, boot string) *member {
	for _, m := range r.members[id] {
		if m.report.Boot == boot {
			return m
		}
	}
	return nil
}

// join adds a process, nil if there is no room. It takes the place of others with
// its id, until they ask again.
func (r *Roster) join(report Report, now time.Time) *member {
	first := now
	for _, m := range r.members[report.ID] {
		m.replaced = true
		if m.first.Before(first) {
			first = m.first
		}
	}
	if len(r.members[report.ID]) == maxBoots {
		r.drop(report.ID, oldest(r.members[report.ID]))
	}
	if r.count >= MaxMembers && !r.evict(now) {
		r.opt.Log.Error("a replica is not listed: the roster is full", "replica", report.ID, "members", r.count,
			"try", "find out who makes new replica ids")
		return nil
	}
	m := &member{report: report, seen: now, first: first}
	r.members[report.ID] = append(r.members[report.ID], m)
	r.count++
	return m
}

func oldest(members []*member) *member {
	return slices.MinFunc(members, func(a, b *member) int { return a.seen.Compare(b.seen) })
}

func (r *Roster) drop(id string, m *member) {
	rest := slices.DeleteFunc(r.members[id], func(other *member) bool { return other == m })
	if r.members[id] = rest; len(rest) == 0 {
		delete(r.members, id)
	}
	r.count--
}

// evict makes room by forgetting whoever was silent longest.
func (r *Roster) evict(now time.Time) bool {
	var out *member
	for _, boots := range r.members {
		if m := oldest(boots); !m.live(now) && (out == nil || m.seen.Before(out.seen)) {
			out = m
		}
	}
	if out == nil {
		return false
	}
	r.drop(out.report.ID, out)
	return true
}

// Changed is closed when a replica comes, comes back, serves another release or
// says something new about itself. That one falls silent closes nothing.
func (r *Roster) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// seenMember is a member beside what only a Roster knows.
type seenMember struct {
	Member
	reached time.Time
	live    bool
	self    bool
	twin    bool // another process with the id is live too
}

// list is everybody to be shown, sorted by id. State is not filled in.
func (r *Roster) list() []seenMember {
	now := r.opt.Now()
	var list []seenMember
	self, serves := Report{}, false
	if r.opt.Self != nil {
		self, serves = r.opt.Self()
	}
	if serves {
		list = append(list, seenMember{Member: Member{Report: self, Seen: now, First: r.started}, live: true, self: true})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, boots := range r.members {
		shown := r.shown(boots, now)
		for _, m := range shown {
			if serves && id == self.ID && (m.report.Boot == self.Boot || !m.live(now)) {
				continue // it asks itself, or was this node before its restart
			}
			list = append(list, seenMember{Member: Member{Report: m.report, Seen: m.seen, First: m.first}, reached: m.reached,
				live: m.live(now), twin: len(shown) > 1 || serves && id == self.ID})
		}
	}
	slices.SortFunc(list, func(a, b seenMember) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Boot, b.Boot)) })
	return list
}

// shown are the live processes of one id, or the one that was heard last.
func (r *Roster) shown(boots []*member, now time.Time) []*member {
	var live []*member
	last := boots[0]
	for _, m := range boots {
		if m.live(now) && !m.replaced {
			live = append(live, m)
		}
		if !m.seen.Before(last.seen) {
			last = m
		}
	}
	if len(live) == 0 {
		return []*member{last}
	}
	return live
}
