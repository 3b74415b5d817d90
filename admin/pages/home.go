package pages

import (
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
)

const (
	// chartMinutes are what the charts of the overview show.
	chartMinutes = 60
	// lastChanges are listed on the overview.
	lastChanges = 10
	// lookBack bounds the audit rows in which a region's last change is looked for.
	lookBack = 100
)

// homePage is the overview.
type homePage struct {
	emergencyPage
	Regions  []regionCard
	Running  []actions.GrayStatus
	Pending  []actions.Pending
	Changes  []ledger.Summary
	ByRegion chart
	ByReason chart
}

// regionCard is a region and who changed it last, if that was lately.
type regionCard struct {
	regionRow
	Last *ledger.AuditEntry
}

// home shows how things are: regions, what runs, what waits, what changed.
func (v *visit) home() error {
	ctx := v.r.Context()
	page := homePage{emergencyPage: *v.board()}
	failed := func(err error) { page.Blind = page.Blind || err != nil }

	rows, err := v.do.Audit(ctx, ledger.AuditFilter{Limit: lookBack})
	failed(err)
	for _, row := range page.Rows {
		page.Regions = append(page.Regions, regionCard{row, lastOf(rows, row.App+"/"+row.Key)})
	}
	page.Running, err = v.do.Grays(ctx)
	failed(err)
	page.Pending, err = v.do.Pending(ctx)
	failed(err)
	_, page.Changes, err = v.do.Releases(ctx, 0, lastChanges)
	failed(err)

	until := v.opt.Now().UTC().Truncate(time.Minute) // the minute that runs is not over
	since := until.Add(-chartMinutes * time.Minute)
	counts, err := v.do.Traffic(ctx, ledger.CountFilter{Since: since, Until: until, By: []string{"region", "reason"}, Every: time.Minute})
	failed(err)
	page.ByRegion = stacked("home.byregion", counts, window{since, chartMinutes}, func(c fleet.Count) string { return c.Region })
	page.ByReason = stacked("home.byreason", counts, window{since, chartMinutes}, func(c fleet.Count) string { return c.Reason })
	return v.show("home", page)
}

// lastOf is the newest row of the audit trail whose targets name one thing.
func lastOf(rows []ledger.AuditEntry, target string) *ledger.AuditEntry {
	i := slices.IndexFunc(rows, func(row ledger.AuditEntry) bool {
		return slices.Contains(strings.Split(row.Target, ", "), target)
	})
	if i < 0 {
		return nil
	}
	return &rows[i]
}
