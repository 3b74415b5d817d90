package actions

import (
	"cmp"
	"context"
	"encoding/json"
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
}

// Explanation is the walk that a request takes, written down.
type Explanation struct {
	Release uint64        `json:"release"`
	Digest  string        `json:"digest" doc:"of the release's manifest"`
	IDCase  string        `json:"id_case"`
	Absent  []string      `json:"absent,omitempty" doc:"ids that count as none, and why"`
	Domain  string        `json:"domain"`
	Trace   *policy.Trace `json:"trace"`
	Text    string        `json:"text" doc:"the same for people"`
}

// Explain says why a request would get its answer from the release in use. Who
// asked is written down; for whom they asked only as a keyed hash.
func (a *Actions) Explain(ctx context.Context, who Actor, q Question) (Explanation, error) {
	cur := a.Keeper.Current()
	if cur == nil {
		return Explanation{}, noRelease()
	}
	app := cur.Default
	if q.App != "" {
		app = cur.Apps[q.App]
	}
	if app == nil {
		return Explanation{}, fault.New(fault.NotFound, "unknown_app", "no app has the key %q", q.App).
			WithHint("GET /api/v1/apps lists them")
	}
	if q.At.IsZero() {
		q.At = a.now()
	}
	req, absent, err := q.request(app)
	if err != nil {
		return Explanation{}, err
	}
	if q.Session != "" {
		var notes policy.Notes
		req.Session, notes = app.Table.OpenSession(q.Session, &req)
		for _, note := range notes.Strings() {
			absent = append(absent, "session: "+note)
		}
	}
	whom := map[whitelist.Of]string{whitelist.Device: req.Device, whitelist.User: req.User}
	if err := a.recordLookUp(ctx, Write{Actor: who}.change("explain", app.App.Key), whom); err != nil {
		return Explanation{}, err
	}
	decision, trace := app.Table.Explain(&req)
	return Explanation{Release: cur.Number, Digest: cur.Digest.String(), IDCase: caseOf(app), Absent: absent,
		Domain: domainOf(app, decision), Trace: trace, Text: trace.String()}, nil
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

// recordLookUp writes down who looked up whom; ids, in normal form, only as keyed hashes.
func (a *Actions) recordLookUp(ctx context.Context, c ledger.Change, whom map[whitelist.Of]string) error {
	key, err := a.listKey()
	if err != nil {
		return err
	}
	details := map[whitelist.Of]string{}
	for of, id := range whom {
		if id != "" {
			details[of] = key.Hash(of, id).String()
		}
	}
	if c.Details, err = json.Marshal(details); err != nil {
		return fmt.Errorf("write audit details of %s: %w", c.Action, err)
	}
	if err := a.Ledger.Record(ctx, c); err != nil {
		return fmt.Errorf("record look-up: %w", err)
	}
	return nil
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
