package actions

import (
	"context"
	"fmt"
	"strings"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// Reconcile makes a normal release of the override that is in force on a replica,
// which ends all overrides: what was done behind the fleet's back is in it then.
func (a *Actions) Reconcile(ctx context.Context, w Write, replica string) (Outcome, error) {
	out, err := remembered(ctx, a, w, asked{"reconcile", replica}, func(w Write) (out Outcome, err error) {
		o, err := overrideOf(a.Fleet.Members(), replica)
		if err != nil {
			return Outcome{}, err
		}
		err = a.alone(ctx, func(ctx context.Context) error {
			h, err := a.editable(ctx)
			if err != nil {
				return err
			}
			if h.from == nil {
				return noRelease()
			}
			ops, err := reconciled(h.from, o)
			if err != nil {
				return err
			}
			d := draft{action: "reconcile", target: replica, details: o, head: h}
			d.change = release.Change{Operational: &ops, Clears: true, Approve: release.Approval{BigMove: true},
				Cause: release.Cause{Action: d.action, By: w.Actor.Name, Reason: w.Reason}}
			out, err = a.commit(ctx, w, d)
			return err
		})
		return out, err
	})
	if err == nil {
		a.acknowledge(ctx, &out, normalWait)
	}
	return out, err
}

// reconciled is the operational state with all of the override's actions.
func reconciled(m *release.Manifest, o *release.Override) (release.Operational, error) {
	ops := m.Operational
	var p fault.Problems
	for i, action := range o.Actions {
		next, err := action.On(&m.Document, ops)
		if err != nil {
			p.Addf(fmt.Sprintf("actions[%d]", i), "%s", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		ops = next
	}
	return ops, p.Err("override_unfit", "the override does not fit what everybody serves; nothing was changed")
}

// overrideOf is the override in force on a replica. Others that differ from it would
// be ended unseen, so there must be none.
func overrideOf(members []fleet.Member, replica string) (*release.Override, error) {
	var found *release.Override
	var with []string
	for i := range members {
		if o := members[i].Override; o != nil {
			with = append(with, members[i].ID)
			if members[i].ID == replica {
				found = o
			}
		}
	}
	if found == nil {
		hint := "GET /api/v1/fleet shows overrides; there is none"
		if len(with) > 0 {
			hint = "there is one on " + strings.Join(with, ", ")
		}
		return nil, fault.New(fault.NotFound, "no_override", "no override is in force on %q", replica).WithHint(hint)
	}
	for i := range members {
		if o := members[i].Override; o != nil && o.ID != found.ID {
			return nil, fault.New(fault.Conflict, "other_override", "%s has another override, which this would end, too", members[i].ID).
				WithHint("end the one that shall not stay: dispatch override on that replica")
		}
	}
	return found, nil
}
