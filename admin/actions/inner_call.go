package actions

import (
	"cmp"
	"context"
	"fmt"

	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// The standings of an explained call.
const (
	CallReproduced = "reproduced"                           // the same table and draw choose the same again
	CallDiffers    = "differs"                              // they choose something else: a defect, or a caller of another version
	CallExpired    = "record only: table expired"           // the table is kept no longer
	CallUntabled   = "record only: the caller had no table" // of that service: it does not follow it, or had loaded nothing
	CallConfigured = "record only: chosen by configuration" // an override names addresses; no table had a say
	CallRefused    = "record only: the breaker was open"    // the call was not made; no table was asked
)

// CallExplained is why a call went where it went.
type CallExplained struct {
	Record      wire.Record        `json:"record"`
	Explanation *route.Explanation `json:"explanation,omitempty"`
	Standing    string             `json:"standing" enum:"reproduced,differs,record only: table expired,record only: the caller had no table,record only: chosen by configuration,record only: the breaker was open"`
}

// ExplainCall finds the record of a pick and makes the pick again.
func (a *Actions) ExplainCall(ctx context.Context, _ Actor, id string) (CallExplained, error) {
	pick, err := a.Ledger.Pick(ctx, id)
	if fault.KindOf(err) == fault.NotFound {
		return CallExplained{}, fault.New(fault.NotFound, "unknown_call", "no record has the id %q", id).
			WithHint(fmt.Sprintf("errors, fallbacks, overrides and calls that did not end well are always recorded, other calls one in %d, or when the caller's code asks for it; "+
				"a record arrives some seconds after the call and is kept %s", callsSampled, release.Duration(a.PicksKept)))
	}
	if err != nil {
		return CallExplained{}, fmt.Errorf("look up call %s: %w", id, err)
	}
	out := CallExplained{Record: pick.Record}
	if out.Record.Lane.Key != "" {
		out.Record.Lane.Key = hiddenKey
	}
	if standing := untabled(pick.Record); standing != "" {
		out.Standing = standing
		return out, nil
	}
	table, err := a.tableOf(ctx, pick)
	if err != nil {
		return CallExplained{}, err
	}
	if table == nil {
		out.Standing = CallExpired
		return out, nil
	}
	ex := table.Explain(pick.Record.Lane, pick.Record.Draw)
	out.Explanation, out.Standing = &ex, CallReproduced
	if ex.Chosen != pick.Record.Chosen || ex.Reason != pick.Record.Reason {
		out.Standing = CallDiffers
	}
	return out, nil
}

// untabled is the standing of a record that no table had a say in, else empty.
func untabled(r wire.Record) string {
	switch {
	case r.Reason == route.ByOverride:
		return CallConfigured
	case r.Reason == route.ByBreaker:
		return CallRefused
	case r.View == "":
		return CallUntabled
	}
	return ""
}

// hiddenKey stands for what kept a call on its version: it may be the id of a person.
const hiddenKey = "(hidden)"

// callsSampled is one in how many ordinary calls a caller records, unless it says otherwise.
const callsSampled = 1000

// tableOf compiles the table that decided; nil when a part of it is kept no longer.
func (a *Actions) tableOf(ctx context.Context, pick ledger.Pick) (*route.Table, error) {
	v := pick.View
	if v == nil || pick.List == nil {
		return nil, nil
	}
	in := route.Input{Service: cmp.Or(v.Service, pick.Record.Service), Home: v.Home, Instances: pick.List, Number: v.Number,
		Direct: v.Direct, Isolate: v.Isolate, Scale: v.Scale, Shift: v.Shift, Load: v.Load}
	if v.Number > 0 {
		m, err := a.rulesRelease(ctx, v.Number)
		if fault.KindOf(err) == fault.NotFound {
			return nil, nil // a caller of another region, or of a database before this one
		}
		if err != nil {
			return nil, err
		}
		in.Rules = rulesOf(m.Rules.Effective(), in.Service)
	}
	return route.Compile(in), nil
}
