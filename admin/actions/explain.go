package actions

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// Question is a request to explain. What a trusted proxy would vouch for is
// taken as vouched for.
type Question struct {
	App        string            `json:"app,omitempty" doc:"key of an app; the default app when absent"`
	DeviceID   string            `json:"device_id,omitempty"`
	UserID     string            `json:"user_id,omitempty"`
	AppVersion string            `json:"app_version,omitempty"`
	Platform   string            `json:"platform,omitempty"`
	Channel    string            `json:"channel,omitempty"`
	Carrier    string            `json:"carrier,omitempty"`
	Locale     string            `json:"locale,omitempty"`
	Origin     string            `json:"origin,omitempty" doc:"origin hint"`
	Address    string            `json:"address,omitempty" doc:"client address"`
	Session    string            `json:"session,omitempty" doc:"session token of an earlier answer"`
	Attr       map[string]string `json:"attr,omitempty"`
	At         time.Time         `json:"at,omitzero" doc:"when; now when absent"`

	Release uint64 `json:"release,omitempty" doc:"ask this release instead of the one in use"`
	Draft   string `json:"draft,omitempty" doc:"ask this draft, as if it stood on its base"`
}

// Explanation is the walk that a request takes, written down.
type Explanation struct {
	Release uint64        `json:"release" doc:"that was asked; of a draft, its base"`
	Draft   string        `json:"draft,omitempty" doc:"the draft that was asked"`
	Live    bool          `json:"live" doc:"the release that was asked is the one in use"`
	Digest  string        `json:"digest,omitempty" doc:"of the release's manifest; a draft has none yet"`
	IDCase  string        `json:"id_case"`
	Absent  []string      `json:"absent,omitempty" doc:"ids that count as none, and why"`
	Domain  string        `json:"domain"`
	Health  *HostHealth   `json:"health,omitempty" doc:"of the domain; no answer depends on it"`
	Trace   *policy.Trace `json:"trace"`
	Text    string        `json:"text" doc:"the same for people"`
}

// Explain says why a request would get its answer: from the release in use, from an
// earlier one, or from a draft. Who asked is written down, and how often they may is
// bounded; for whom they asked is written only as a keyed hash.
func (a *Actions) Explain(ctx context.Context, who Actor, q Question) (out Explanation, err error) {
	err = a.lookUp(ctx, who, func() (ledger.Change, map[whitelist.Of]string, error) {
		asked, number, err := a.explaining(ctx, q)
		if err != nil {
			return ledger.Change{}, nil, err
		}
		app := asked.Default
		if q.App != "" {
			app = asked.Apps[q.App]
		}
		if app == nil {
			return ledger.Change{}, nil, fault.New(fault.NotFound, "unknown_app", "no app has the key %q", q.App).
				WithHint("GET /api/v1/apps lists them")
		}
		if q.At.IsZero() {
			q.At = a.now()
		}
		req, absent, err := q.request(app)
		if err != nil {
			return ledger.Change{}, nil, err
		}
		if q.Session != "" {
			var notes policy.Notes
			req.Session, notes = app.Table.OpenSession(q.Session, &req)
			for _, note := range notes.Strings() {
				absent = append(absent, "session: "+note)
			}
		}
		decision, trace := app.Table.Explain(&req)
		out = Explanation{Release: number, Draft: q.Draft, Live: asked == a.Keeper.Current(), IDCase: caseOf(app), Absent: absent,
			Domain: domainOf(app, decision), Trace: trace, Text: trace.String()}
		if asked.Digest != (release.Digest{}) {
			out.Digest = asked.Digest.String()
		}
		return Write{Actor: who}.change("explain", q.target(app, number)), map[whitelist.Of]string{whitelist.Device: req.Device, whitelist.User: req.User}, nil
	})
	if err != nil {
		return Explanation{}, err
	}
	health, err := a.Health(ctx)
	if err != nil {
		return Explanation{}, err
	}
	if seen, ok := health.Hosts[out.Domain]; ok {
		out.Health = &seen
	}
	return out, nil
}

// target is what the audit trail says was asked: mobile, mobile/release 41.
func (q Question) target(app *release.Served, number uint64) string {
	switch {
	case q.Draft != "":
		return app.App.Key + "/" + draftTarget(q.Draft)
	case q.Release != 0:
		return fmt.Sprintf("%s/release %d", app.App.Key, number)
	default:
		return app.App.Key
	}
}

// explaining is the snapshot that the question is for, and the release that it is of.
func (a *Actions) explaining(ctx context.Context, q Question) (*release.Snapshot, uint64, error) {
	cur := a.Keeper.Current()
	switch {
	case q.Release != 0 && q.Draft != "":
		return nil, 0, fault.New(fault.Invalid, "two_questions", "release and draft are two questions").WithHint("ask one of them")
	case q.Draft != "":
		return a.draftSnapshot(ctx, q.Draft)
	case cur == nil:
		return nil, 0, noRelease()
	case q.Release == 0 || q.Release == cur.Number:
		return cur, cur.Number, nil
	}
	s, m, err := a.released(ctx, q.Release)
	if err != nil {
		return nil, 0, err
	}
	asked, err := a.Loader.Draft(ctx, m, a.Ledger, cur)
	if err != nil {
		return nil, 0, fmt.Errorf("compile release %d: %w", q.Release, err)
	}
	asked.Digest = release.DigestOf(s.Manifest)
	return asked, q.Release, nil
}

// draftSnapshot compiles a draft as if it were published on its base.
func (a *Actions) draftSnapshot(ctx context.Context, id string) (*release.Snapshot, uint64, error) {
	_, b, err := a.draftPaper(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	h, err := a.head(ctx)
	if err != nil {
		return nil, 0, err
	}
	if h, err = a.headAt(ctx, h, b.Base); err != nil {
		return nil, 0, err
	}
	p := b.publication()
	doc, source, err := release.ParseSource(p.File, p.Document)
	if err != nil {
		return nil, 0, err
	}
	d := draft{action: "publish", target: draftTarget(id), head: h}
	if err := a.fill(ctx, &d, doc, source, p); err != nil {
		return nil, 0, err
	}
	d.change.Cause = release.Cause{Action: d.action, By: b.Authors[0], Reason: b.Reason}
	m, err := a.next(ctx, d)
	if err != nil {
		return nil, 0, err
	}
	s, err := a.Loader.Draft(ctx, m, a.blobs(d), a.Keeper.Current())
	if err != nil {
		return nil, 0, fmt.Errorf("compile draft %s: %w", id, err)
	}
	return s, b.Base, nil
}

// request is the question as the public API would read it.
func (q Question) request(app *release.Served) (policy.Request, []string, error) {
	req := policy.Request{Now: q.At, AppVersion: q.AppVersion, Platform: q.Platform, Channel: q.Channel,
		Carrier: q.Carrier, Locale: q.Locale, Hint: q.Origin}
	var absent []string
	id := func(name, raw string) string {
		form, why := app.IDs.Normalize(raw)
		if form == "" {
			absent = append(absent, name+": "+why.String())
		}
		return form
	}
	req.Device, req.User = id("device_id", q.DeviceID), id("user_id", q.UserID)
	if q.Address != "" {
		addr, err := netip.ParseAddr(q.Address)
		if err != nil {
			return req, nil, fault.New(fault.Invalid, "bad_address", "%q is no address", q.Address)
		}
		req.Addr, req.AddrSource = addr.Unmap(), "question"
	}
	for name, value := range q.Attr {
		req.Attrs = append(req.Attrs, policy.Attr{Name: name, Value: value})
	}
	slices.SortFunc(req.Attrs, func(x, y policy.Attr) int { return cmp.Compare(x.Name, y.Name) })
	return req, absent, nil
}

func caseOf(app *release.Served) string {
	if app.IDs.Fold() {
		return release.CaseFold
	}
	return release.CaseExact
}

func domainOf(app *release.Served, d policy.Decision) string {
	if d.Region < 0 {
		return app.App.Fallback
	}
	return app.App.Regions[d.Region].Endpoints[d.Endpoint].Domain
}
