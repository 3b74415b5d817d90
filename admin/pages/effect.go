package pages

import (
	"net/url"

	"dispatch.example/dispatch/admin/actions"
)

// effectPage is what an emergency would do to load. The panel does not wait for it:
// 10,000 requests are answered for it twice, as now and as they would be.
type effectPage struct {
	actions.Target
	Title string // an id of the catalogue
	Back  string // the panel
	Moved int    // of 10,000 synthetic requests of the app
	Real  *actions.AppImpact
}

// Part is the part of real requests that would move.
func (p effectPage) Part() float64 {
	if p.Real == nil {
		return 0
	}
	return float64(p.Real.Moved) / float64(max(1, p.Real.Sampled))
}

// effect tries the emergency of the address on requests.
func (v *visit) effect() error {
	e := emergencyOf(v.r.URL.Query())
	p, err := v.do.PreviewEmergency(v.r.Context(), v.Actor, e)
	if err != nil {
		return err
	}
	page := effectPage{Target: e.Targets[0], Title: titleOf(e), Back: "/emergency?" + askFor(e)}
	if p.Preview != nil {
		page.Moved, page.Real = p.Preview.Moved[page.App], realOf(p.Preview.Impact, page.App)
	}
	return v.show("effect", page)
}

// effectPath is where the effect of an emergency is.
func effectPath(e actions.Emergency) string { return "/emergency/effect?" + askFor(e) }

// askFor is an emergency as emergencyOf reads it.
func askFor(e actions.Emergency) string {
	t, query := e.Targets[0], url.Values{"action": {e.Action}}
	for name, value := range map[string]string{"app": t.App, "region": t.Region, "cluster": t.Cluster, "policy": t.Policy,
		"expect": t.Expect, "from": t.From, "to": t.To, "state": t.State} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if t.Hard {
		query.Set("hard", "true")
	}
	return query.Encode()
}

// realOf is the app's part of an impact on real requests; nil: there are none.
func realOf(i *actions.Impact, app string) *actions.AppImpact {
	if i == nil || i.Sampled == 0 {
		return nil
	}
	for n := range i.Apps {
		if i.Apps[n].App == app && i.Apps[n].Sampled > 0 {
			return &i.Apps[n]
		}
	}
	return nil
}
