package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

const (
	// trafficWindow is what "based on the last 5 min" says.
	trafficWindow = 5 * time.Minute
	// undoTime is how long an emergency can be undone from where it was done.
	undoTime = 15 * time.Minute
)

// emergencyPage is the board of all regions, and the panel of the one that is acted on.
type emergencyPage struct {
	Release uint64
	Rows    []regionRow // bad health first
	Grays   []grayRow
	Frozen  bool
	Health  actions.Health
	Blind   bool // the database does not say how things are
	Panel   *panel
	Result  *result
	Recent  []recent
}

// regionRow is one region of one app.
type regionRow struct {
	App, AppName string
	actions.RegionView
	Serving, Standby []host
	Clusters         []cluster
	Requests         load
}

// Down says whether a host that serves is seen down.
func (r regionRow) Down() bool {
	return slices.ContainsFunc(r.Serving, func(h host) bool { return h.Health.State == "down" })
}

// worst is 0 for a region that is down, then the unknown, then the healthy.
func (r regionRow) worst() int {
	switch {
	case r.Down() || len(r.Serving) == 0:
		return 0
	case slices.ContainsFunc(r.Serving, func(h host) bool { return h.Health.State != "up" }):
		return 1
	default:
		return 2
	}
}

// host is one endpoint with what probers know of it.
type host struct {
	domain.Endpoint
	Health actions.HostHealth
}

// cluster is what endpoints of one region share.
type cluster struct {
	Key   string
	State domain.EndpointState
}

// load is a region's part of the requests of its app.
type load struct {
	Known     bool
	Part      float64 // 0 to 1
	PerMinute float64
	OfFull    float64 // of the region's part of all capacity; 0: no capacity is stated
}

type grayRow struct {
	App string
	actions.GrayView
}

// panel is one action before it is done.
type panel struct {
	actions.Target
	Action  string
	Title   string // an id of the catalogue
	Row     *regionRow
	From    string // domains of a swap
	To      *host
	Confirm string
	Rules   []actions.RuleResult
	Effect  string // the address of what it would do to load; empty: it moves nobody
	Reason  string // as it was typed
	Typed   string
	Held    bool // a rule stands in the way
	Never   bool // nobody can go past it
	Problem *fault.Body
}

// result is what an emergency did.
type result struct {
	progress
	Warnings []fault.Problem
}

// recent is an emergency that can still be undone.
type recent struct {
	ledger.Summary
	Target string
	Undo   *actions.Emergency // of one target; nil: there is no way back but another change
	Left   time.Duration
}

// emergency shows the board, with a panel where the address names an action.
func (v *visit) emergency() error {
	page := v.board()
	query := v.r.URL.Query()
	if n := number64(query.Get("done")); n > 0 {
		page.Result = &result{progress: v.progress(n)}
	}
	if query.Get("action") == "" {
		return v.show("emergency", page)
	}
	var err error
	if page.Panel, err = v.panel(page, emergencyOf(query)); err != nil {
		return v.refuse("emergency", page, err)
	}
	return v.show("emergency", page)
}

// act does what the panel shows.
func (v *visit) act() error {
	e := emergencyOf(v.r.PostForm)
	out, err := v.do.Emergency(v.r.Context(), v.write(), e)
	if err != nil {
		page := v.board()
		opened, gone := v.panel(page, e)
		if gone == nil {
			body := fault.BodyOf(err)
			opened.Problem, opened.Reason, opened.Typed = &body, v.write().Reason, v.write().Confirm
			page.Panel = opened
		}
		return v.refuse("emergency", page, err)
	}
	done := fmt.Sprintf("/emergency?done=%d", out.Release)
	if v.fragment() == "" {
		v.send(done)
		return nil
	}
	v.w.Header().Set("X-Replace", done)
	page := v.board()
	page.Result = &result{Warnings: out.Warnings, progress: v.progress(out.Release)}
	if out.Acknowledged != nil {
		page.Result.progress = progress{Release: out.Release, Ack: *out.Acknowledged, Done: len(out.Acknowledged.Lagging) == 0}
	}
	return v.show("emergency", page)
}

// emergencyOf is the action that a form or an address names. Its expect is what the
// screen showed.
func emergencyOf(form url.Values) actions.Emergency {
	return actions.Emergency{Action: form.Get("action"), Targets: []actions.Target{{
		App: form.Get("app"), Region: form.Get("region"), Cluster: form.Get("cluster"), Policy: form.Get("policy"),
		Expect: form.Get("expect"), From: form.Get("from"), To: form.Get("to"), State: form.Get("state"), Hard: form.Get("hard") == "true"}}}
}

// board is every region with its health and its traffic. What the database does not
// tell is shown as unknown: the page is for nights when nothing works.
func (v *visit) board() *emergencyPage {
	ctx := v.r.Context()
	number, apps := v.do.Apps()
	page := &emergencyPage{Release: number}
	health, err := v.do.Health(ctx)
	page.Health, page.Blind = health, err != nil
	counts, err := v.do.Traffic(ctx, ledger.CountFilter{Since: v.opt.Now().Add(-trafficWindow).Truncate(time.Minute), By: []string{"app", "region"}})
	page.Blind = page.Blind || err != nil
	for _, app := range apps {
		page.Frozen = page.Frozen || app.Frozen
		for _, g := range app.Grays {
			page.Grays = append(page.Grays, grayRow{app.Key, g})
		}
		for _, r := range app.Regions {
			page.Rows = append(page.Rows, rowOf(app, r, health, counts))
		}
	}
	slices.SortStableFunc(page.Rows, func(x, y regionRow) int { return cmp.Compare(x.worst(), y.worst()) })
	page.Recent = v.recent(ctx)
	return page
}

func rowOf(app actions.AppView, r actions.RegionView, health actions.Health, counts []fleet.Count) regionRow {
	row := regionRow{App: app.Key, AppName: app.Name, RegionView: r, Requests: loadOf(app, r, counts)}
	for _, e := range r.Endpoints {
		h := host{e, health.Hosts[e.Domain]}
		switch e.State {
		case domain.Serving:
			row.Serving = append(row.Serving, h)
		case domain.Standby:
			row.Standby = append(row.Standby, h)
		}
		known := slices.IndexFunc(row.Clusters, func(c cluster) bool { return c.Key == e.Cluster })
		switch {
		case e.Cluster == "":
		case known < 0:
			row.Clusters = append(row.Clusters, cluster{e.Cluster, e.State})
		case e.State == domain.Serving: // one that serves makes the cluster active
			row.Clusters[known].State = e.State
		}
	}
	return row
}

func loadOf(app actions.AppView, r actions.RegionView, counts []fleet.Count) load {
	var here, all uint64
	for _, c := range counts {
		if c.App != app.Key {
			continue
		}
		all += c.N
		if c.Region == r.Key {
			here += c.N
		}
	}
	if all == 0 {
		return load{}
	}
	l := load{Known: true, Part: float64(here) / float64(all), PerMinute: float64(here) / trafficWindow.Minutes()}
	capacity := 0
	for _, other := range app.Regions {
		capacity += other.Capacity
	}
	if r.Capacity > 0 {
		l.OfFull = l.Part * float64(capacity) / float64(r.Capacity)
	}
	return l
}

// panel is the action with its rules. The error is why there is nothing to decide.
func (v *visit) panel(page *emergencyPage, e actions.Emergency) (*panel, error) {
	t := e.Targets[0]
	judged, err := v.do.JudgeEmergency(v.r.Context(), v.Actor, e)
	if err != nil {
		return nil, err
	}
	p := &panel{Target: t, Action: e.Action, Title: titleOf(e), Rules: judged.Rules, Confirm: cmp.Or(judged.Confirm, v.do.Confirmation(e))}
	for i := range page.Rows {
		if row := &page.Rows[i]; row.App == t.App && row.Key == t.Region {
			p.Row = row
		}
	}
	if p.Row != nil {
		p.fill()
	}
	for _, rule := range p.Rules {
		p.Held = p.Held || !rule.OK
		p.Never = p.Never || !rule.OK && rule.Never
	}
	if !p.Never && e.Action != actions.SwapEndpoints && e.Action != actions.Freeze {
		p.Effect = effectPath(e)
	}
	return p, nil
}

// titleOf is the id of what an action is called.
func titleOf(e actions.Emergency) string {
	title := "emergency.title." + e.Action
	if e.Action == actions.SetRegionState || e.Action == actions.SetClusterState || e.Action == actions.Freeze {
		title += "." + e.Targets[0].State
	}
	return title
}

// fill finds the two hosts of a swap.
func (p *panel) fill() {
	for i := range p.Row.Standby {
		if p.Row.Standby[i].Key == p.Target.To {
			p.To = &p.Row.Standby[i]
		}
	}
	for _, h := range p.Row.Serving {
		if h.Key == p.Target.From {
			p.From = h.Domain
		}
	}
}

// recent are the emergencies of the last minutes, newest first.
func (v *visit) recent(ctx context.Context) (found []recent) {
	const look, most = 20, 5
	_, list, err := v.do.Releases(ctx, 0, look)
	if err != nil {
		return nil // the bar says that the database is mute
	}
	now := v.opt.Now()
	for _, s := range list {
		age := now.Sub(s.Created)
		if age > undoTime || len(found) == most || !slices.Contains(emergencies(), s.Action) {
			continue
		}
		r := recent{Summary: s, Left: undoTime - age}
		if rows, err := v.do.Audit(ctx, ledger.AuditFilter{Release: s.Number, Action: s.Action, Limit: 1}); err == nil && len(rows) > 0 {
			r.Target, r.Undo = rows[0].Target, undo(s.Action, rows[0].Details)
		}
		found = append(found, r)
	}
	return found
}

// progress is how far a release has come, now.
func (v *visit) progress(n uint64) progress {
	ctx, cancel := context.WithTimeout(v.r.Context(), time.Millisecond)
	defer cancel()
	ack := v.do.Fleet.Await(ctx, n, "")
	return progress{Release: n, Ack: ack, Done: len(ack.Lagging) == 0}
}
