package pages

import (
	"cmp"
	"slices"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/fleet"
)

// fleetPage is every replica, the worst first, and how far the newest release has come.
type fleetPage struct {
	actions.FleetView
	Ages  bars
	Mixed bool // address databases differ, so replicas decide differently
}

// fleet shows who serves what.
func (v *visit) fleet() error {
	page, err := v.fleetPage()
	if err != nil {
		return err
	}
	return v.show("fleet", page)
}

func (v *visit) fleetPage() (fleetPage, error) {
	view, err := v.do.Members(v.r.Context())
	if err != nil {
		return fleetPage{}, err
	}
	page := fleetPage{FleetView: view}
	slices.SortStableFunc(page.Members, func(x, y actions.MemberView) int {
		return cmp.Or(cmp.Compare(trouble(y), trouble(x)), cmp.Compare(x.ID, y.ID))
	})
	var rows []barRow
	var ages []float64
	for _, m := range page.Members {
		page.Mixed = page.Mixed || m.Databases != page.Members[0].Databases
		row := barRow{Label: m.ID, Class: "s2", Text: v.say("fleet.bar", "Release", m.Number,
			"Time", lasting(v.say, time.Duration(m.Age*float64(time.Second))))}
		if m.State == fleet.Current {
			row.Class = "s1"
		}
		rows, ages = append(rows, row), append(ages, m.Age)
	}
	page.Ages = newBars("fleet.ages", rows, ages)
	return page, nil
}

// say is a message in the visitor's language.
func (v *visit) say(id string, pairs ...any) string { return v.catalogue.say(v.lang, id, pairs...) }

// trouble ranks replicas: what somebody must look at comes first.
func trouble(m actions.MemberView) int {
	switch {
	case m.Override != nil:
		return 5
	case m.State == fleet.Refusing:
		return 4
	case m.State == fleet.Silent:
		return 3
	case m.State != fleet.Current:
		return 2
	case m.DiskError != "" || slices.ContainsFunc(m.Sources, func(s fleet.SourceState) bool { return !s.OK }):
		return 1
	default:
		return 0
	}
}

// adopt brings what is served into a database that lost it.
func (v *visit) adopt() error {
	out, err := v.do.Adopt(v.r.Context(), v.write())
	return v.afterFleet("fleet.adopted", out, err)
}

// reconcile makes a release of a replica's override.
func (v *visit) reconcile() error {
	out, err := v.do.Reconcile(v.r.Context(), v.write(), v.r.PostFormValue("replica"))
	return v.afterFleet("fleet.reconciled", out, err)
}

func (v *visit) afterFleet(message string, out actions.Outcome, err error) error {
	if err == nil {
		return v.done("/fleet", message, "Release", out.Release)
	}
	page, gone := v.fleetPage()
	if gone != nil {
		return gone
	}
	return v.refuse("fleet", page, err)
}
