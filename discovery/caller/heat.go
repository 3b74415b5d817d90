package caller

import (
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
)

// heat is what the loads that instances report do to their weights, and to the
// parts of the versions that a rule names.
type heat struct{}

// scale is how much of its weight an instance keeps.
func (h *heat) scale(f fingerprint) route.Scale {
	return route.Scale{Thousandths: 1000, Why: route.Hot}
}

// shift is what Input.Shift has of the rules' conditions.
func (h *heat) shift(list []rules.Rule) map[string]int { return nil }
