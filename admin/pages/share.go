package pages

import (
	"strconv"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/policy"
)

// sharesOf draws what a gray got by the minute, since its step began or for an hour.
// As in actions.GraySeen, answers that follow a session are left out.
func (v *visit) sharesOf(g actions.Gray) (shares, error) {
	const title = "chart.share"
	part, err := strconv.Atoi(g.Share)
	if err != nil { // e.g. intervals of buckets
		return shareChart(title, nil), nil
	}
	until := v.opt.Now().UTC().Truncate(time.Minute) // the minute that runs is not over
	since := until.Add(-chartMinutes * time.Minute)
	if began := g.Since.UTC().Truncate(time.Minute).Add(time.Minute); !g.Since.IsZero() && began.After(since) {
		since = began
	}
	counts, err := v.do.Traffic(v.r.Context(), ledger.CountFilter{App: g.App, Since: since, Until: until,
		By: []string{"policy", "region", "reason"}, Every: time.Minute})
	if err != nil {
		return shares{}, err
	}
	points := make([]sharePoint, max(0, int(until.Sub(since)/time.Minute)))
	for i := range points {
		points[i] = sharePoint{At: since.Add(time.Duration(i) * time.Minute), Expected: float64(part) / policy.Whole}
	}
	seen := false
	for _, c := range counts {
		at := int(c.Minute.Sub(since) / time.Minute)
		if at < 0 || at >= len(points) || c.Reason == policy.Sticky.String() {
			continue
		}
		seen = true
		points[at].Of += c.N
		if c.Policy == g.Policy && c.Region == g.Region {
			points[at].Seen += c.N
		}
	}
	if !seen {
		points = nil
	}
	return shareChart(title, points), nil
}
