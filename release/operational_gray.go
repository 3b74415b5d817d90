package release

import (
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// AbortGray takes a policy's share back to 0. Expect is the position that the
// screen showed, see Position. Hard also voids the sessions that the policy gave,
// and no others.
type AbortGray struct {
	App    string `json:"app"`
	Policy string `json:"policy"`
	Expect string `json:"expect"`
	Hard   bool   `json:"hard,omitempty"`
}

// On is the operational state after the abort. Its errors have the codes
// unknown_app, unknown_policy, no_gray, expect_mismatch and no_change.
func (g AbortGray) On(doc *Document, ops Operational) (Operational, error) {
	share, err := shareOf(doc, ops, g.App, g.Policy)
	if err != nil {
		return ops, err
	}
	switch now := Position(share); {
	case now != g.Expect:
		return ops, mismatch(now, "the share of %s/%s is now %s, not %s", g.App, g.Policy, now, quote(g.Expect))
	case now == "0" && !g.Hard:
		return ops, fault.New(fault.Invalid, "no_change", "the share of %s/%s is 0 already", g.App, g.Policy).
			WithHint("hard: true also voids the sessions that it gave")
	}
	return ops.with(g.App, func(state *AppState) {
		held := state.Policies[g.Policy]
		held.Share = new(int)
		if g.Hard {
			held.Epoch++
		}
		state.Policies[g.Policy] = held
	}), nil
}

// SetShare gives a policy's share another position by hand, To of 10,000: its
// buckets 0 to To-1, under the salt that it has, so growing it takes nobody back.
// Expect is the position that the screen showed, see Position.
type SetShare struct {
	App    string `json:"app"`
	Policy string `json:"policy"`
	Expect string `json:"expect"`
	To     int    `json:"to"`
}

// On is the operational state after the step. Its errors have the codes
// unknown_app, unknown_policy, no_gray, share_form, bad_share, expect_mismatch and
// no_change. Only a share that is written as of has positions: buckets that are
// written one by one, and ramps, belong to the document, unless an abort holds
// them at 0 already.
func (s SetShare) On(doc *Document, ops Operational) (Operational, error) {
	share, err := shareOf(doc, ops, s.App, s.Policy)
	if err != nil {
		return ops, err
	}
	switch now := Position(share); {
	case share.Of == nil:
		return ops, fault.New(fault.Invalid, "share_form", "the share of %s/%s is written as %s, which has no steps", s.App, s.Policy, now).
			Hintf("write share: {region: %s, of: N} in the document; an abort works all the same", share.Region)
	case s.To < 0 || s.To > policy.Whole:
		return ops, fault.New(fault.Invalid, "bad_share", "%d is not between 0 and %d (10,000ths)", s.To, policy.Whole).
			WithHint("500 is 5 %")
	case now != s.Expect:
		return ops, mismatch(now, "the share of %s/%s is now %s, not %s", s.App, s.Policy, now, quote(s.Expect))
	case *share.Of == s.To:
		return ops, fault.New(fault.Invalid, "no_change", "the share of %s/%s is %d already", s.App, s.Policy, s.To).
			WithHint("look again: somebody was as quick")
	}
	return ops.with(s.App, func(state *AppState) {
		held := state.Policies[s.Policy]
		held.Share = &s.To
		state.Policies[s.Policy] = held
	}), nil
}

// shareOf is the share that a policy takes, by hand or by the document.
func shareOf(doc *Document, ops Operational, app, key string) (*policy.Share, error) {
	a := doc.app(app)
	if a == nil {
		return nil, unknownApp(app)
	}
	p := (&App{Policies: applyPolicies(a.Policies, ops.Apps[app])}).policy(key)
	switch {
	case p == nil:
		return nil, fault.New(fault.NotFound, "unknown_policy", "app %s has no policy %s", app, quote(key))
	case p.Then.Share == nil:
		return nil, fault.New(fault.Invalid, "no_gray", "policy %s of %s takes no share", key, app).
			WithHint("only a policy with then: {share: …} is a gray")
	}
	return p.Then.Share, nil
}

// Position is how much a share takes, as screens show it and AbortGray and SetShare expect it.
func Position(s *policy.Share) string { return positionOf(s) }
