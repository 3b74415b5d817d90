package actions

import "context"

// RuleResult is one safety rule and how it stands to a change.
type RuleResult struct {
	Rule       string `json:"rule" example:"probe_fresh"`
	OK         bool   `json:"ok"`
	Detail     string `json:"detail"`
	Satisfy    string `json:"satisfy,omitempty" doc:"what would satisfy it"`
	Overridden bool   `json:"overridden,omitempty"`
	Never      bool   `json:"never,omitempty" doc:"nobody can go past this one"`
}

// EmergencyPreview is what an emergency would do, before anybody does it.
type EmergencyPreview struct {
	Outcome
	Confirm string       `json:"confirm" doc:"what must be typed"`
	Rules   []RuleResult `json:"rules"`
}

// PreviewEmergency says what the emergency would do and whether rules stand in its way.
func (a *Actions) PreviewEmergency(ctx context.Context, who Actor, e Emergency) (EmergencyPreview, error) {
	return EmergencyPreview{}, e.check() // unbuilt
}
