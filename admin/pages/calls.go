package pages

import (
	"fmt"
	"strings"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/route"
)

// callsPage is the question why a call went where it went, and the answer.
type callsPage struct {
	ID     string
	Answer *callAnswer
}

// callAnswer is an answer with its bars.
type callAnswer struct {
	actions.CallExplained
	Reason string // in words
	Ended  string // likewise; empty: not known, or well
	Load   string // by which the condition of the rule moved calls; empty: unknown
	Sides  []callSide
	Rule   string // its file; empty: none counted
}

// callSide is a version's part of the traffic.
type callSide struct {
	route.Side
	Class string
	Path  string // its piece of the bar
	Drawn bool   // the draw fell here
}

// calls explains the pick that the address names.
func (v *visit) calls() error {
	page := callsPage{ID: strings.TrimSpace(v.r.URL.Query().Get("id"))}
	if page.ID == "" {
		return v.show("calls", page)
	}
	explained, err := v.do.ExplainCall(v.r.Context(), v.Actor, page.ID)
	if err != nil {
		return v.refuse("calls", page, err)
	}
	page.Answer = v.callAnswer(explained)
	return v.show("calls", page)
}

func (v *visit) callAnswer(explained actions.CallExplained) *callAnswer {
	a := &callAnswer{CallExplained: explained, Reason: v.word("calls.reason.", string(explained.Record.Reason))}
	if end := explained.Record.Outcome; end != "" {
		a.Ended = v.word("calls.ended.", end)
	}
	ex := explained.Explanation
	if ex == nil {
		return a
	}
	if s := ex.Shift; s != nil && s.Load != nil {
		a.Load = fmt.Sprintf("%.1f", *s.Load)
	}
	if ex.Rule != nil {
		a.Rule = ex.Rule.Text()
	}
	var shares []float64
	for _, side := range ex.Sides {
		shares = append(shares, side.Effective)
	}
	for i, path := range pieces(shares) {
		side := ex.Sides[i]
		a.Sides = append(a.Sides, callSide{Side: side, Class: fmt.Sprintf("s%d", min(i, maxSeries)+1), Path: path, Drawn: side.Version == drawnVersion(ex)})
	}
	return a
}

// drawnVersion is the version that the draw chose, empty where it chose none by a rule.
func drawnVersion(ex *route.Explanation) string {
	switch {
	case ex.Rule == nil:
		return ""
	case ex.Reason == route.ByGray, ex.Reason == route.ByRule && ex.Rule.Gray == nil:
		return ex.Rule.Strategy.Version
	case (ex.Reason == route.ByFallback || ex.Reason == route.ByRule) && ex.Rule.Fallback != nil:
		return ex.Rule.Fallback.Version
	default:
		return ""
	}
}
