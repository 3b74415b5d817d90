package pages

import (
	"context"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/fleet"
)

// barTime bounds what the top bar waits for the database: a page is worth more
// without its bar than late.
const barTime = time.Second

// bar is the state of the fleet on top of every page.
type bar struct {
	Env        string
	Production bool
	Live       uint64 // the release that this node serves; 0: none
	Served, Of int    // replicas that serve what is on offer to them, of those that ask
	Silent     int
	Canary     string
	Oldest     time.Duration // since the replica that has been quiet for longest asked
	Frozen     bool
	Overrides  int // replicas under break glass
	Unreviewed int // emergencies that no second person has signed
	Lost       uint64
	Mute       bool // the database does not answer
	NoProbes   bool
	NoFourEyes bool
	Mighty     bool // the viewer has every role
}

// Level is the colour: bad when the fleet is stale or split, or its state unknown.
func (b bar) Level() string {
	switch {
	case b.Lost > 0 || b.Mute || b.Overrides > 0 || b.Silent > 0 && b.Served == 0:
		return "bad"
	case b.Served < b.Of || b.Silent > 0 || b.Live == 0 || b.Canary != "":
		return "warn"
	default:
		return "ok"
	}
}

func (v *visit) bar() bar {
	b := v.Pages.bar(v.r.Context())
	b.Mighty = v.Is(actions.Administrator)
	return b
}

// bar is the state of the fleet now.
func (p *Pages) bar(ctx context.Context) bar {
	ctx, cancel := context.WithTimeout(ctx, barTime)
	defer cancel()
	b := bar{Env: p.opt.Env, Production: production(p.opt.Env), NoProbes: !p.do.Probes, NoFourEyes: !p.do.FourEyes, Served: 1, Of: 1}
	if cur := p.do.Keeper.Current(); cur != nil {
		b.Live, b.Frozen = cur.Number, cur.Manifest.Operational.Frozen
	}
	view, err := p.do.Members(ctx)
	if err != nil {
		b.Mute = true
		return b
	}
	b.Lost = view.Lost
	if view.Rollout.Head > view.Rollout.All {
		b.Canary = view.Rollout.Canary
	}
	if len(view.Members) > 0 {
		b.count(view.Members, p.opt.Now())
	}
	unreviewed, err := p.do.Unreviewed(ctx)
	b.Unreviewed, b.Mute = len(unreviewed), err != nil
	return b
}

func (b *bar) count(members []actions.MemberView, now time.Time) {
	b.Served, b.Of = 0, 0
	for _, m := range members {
		if m.Override != nil {
			b.Overrides++
		}
		if m.State == fleet.Silent {
			b.Silent++
			continue
		}
		b.Of++
		if m.State == fleet.Current {
			b.Served++
		}
		b.Oldest = max(b.Oldest, now.Sub(m.Seen).Truncate(time.Second))
	}
}

// production says whether the environment's name is one of those that production has.
func production(env string) bool {
	return strings.HasPrefix(strings.ToLower(env), "prod")
}

// link is one entry of the navigation.
type link struct {
	Path, Name string
	Here       bool
}

// navigation is what the visitor may open.
func (v *visit) navigation() []link {
	links := []link{}
	path := v.r.URL.Path
	within := func(of string) bool { return path == of || of != "/" && strings.HasPrefix(path, of+"/") }
	for _, l := range []struct{ path, name, operation string }{
		{"/", "home", "show-app"},
		{"/emergency", "emergency", "show-app"},
		{"/domains", "domains", "list-hosts"},
		{"/rules", "rules", "show-app"},
		{"/gray", "gray", "list-grays"},
		{"/lists", "lists", "list-lists"},
		{"/explain", "explain", "explain"},
		{"/changes", "changes", "list-releases"},
		{"/audit", "audit", "list-audit"},
		{"/fleet", "fleet", "show-fleet"},
		{"/map", "map", "show-map"},
		{"/services", "services", "show-directory"},
		{"/queues", "queues", "show-directory"},
		{"/access", "access", "list-accounts"},
		{"/settings", "settings", "show-settings"},
	} {
		if v.May(l.operation) != nil {
			continue
		}
		also := map[string]string{"/changes": "/releases", "/services": "/calls"}[l.path] // pages that no entry leads to by itself
		links = append(links, link{l.path, "layout.nav." + l.name, within(l.path) || also != "" && within(also)})
	}
	return links
}
