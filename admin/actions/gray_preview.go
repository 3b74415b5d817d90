package actions

import (
	"context"
	"strconv"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// GrayPreview is whom the next step of a gray would move.
type GrayPreview struct {
	From    int     `json:"from" doc:"the share now, of 10,000"`
	To      int     `json:"to"`
	Buckets [2]int  `json:"buckets" doc:"the first and the last of the 10,000 that enter"`
	Salt    string  `json:"salt" doc:"under which they are drawn"`
	Outcome Outcome `json:"outcome" doc:"of a dry run"`
	Impact  *Impact `json:"impact,omitempty" doc:"on requests that replicas had lately; absent where nobody could say"`
	// Examples are those whom replicas had.
	Examples []string `json:"examples" doc:"up to ten of the moved, as keyed hashes; none without an impact"`
	MadeUp   []string `json:"made_up" doc:"ids of nobody that would enter, to be explained"`
}

// previewed is how many examples a preview has.
const previewed = 10

// PreviewGray is what the step to a share would do, with nothing changed. With to 0
// it is the next step of the plan, or of the default one where there is none.
func (a *Actions) PreviewGray(ctx context.Context, ref GrayRef, to int) (GrayPreview, error) {
	h, err := a.head(ctx)
	if err != nil {
		return GrayPreview{}, err
	}
	s, err := shareIn(h.from, ref.App, ref.Policy)
	if err != nil {
		return GrayPreview{}, err
	}
	if to == 0 {
		if to, err = a.nextShare(ctx, ref, s); err != nil {
			return GrayPreview{}, err
		}
	}
	ops, err := release.SetShare{App: ref.App, Policy: ref.Policy, Expect: s.position(), To: to}.On(&h.from.Document, h.from.Operational)
	if err != nil {
		return GrayPreview{}, err
	}
	p := GrayPreview{From: *s.share.Of, To: to, Buckets: [2]int{min(*s.share.Of, to), max(*s.share.Of, to) - 1}, Salt: s.salt, Examples: []string{}, MadeUp: []string{}}
	d := draft{action: "gray_step", target: ref.String(), head: h}
	d.change = release.Change{Operational: &ops, Cause: release.Cause{Action: d.action, By: dispatcher.Name, Reason: "preview"},
		Approve: release.Approval{BigMove: true}} // whether it needs two people the plan says
	if p.Outcome, err = a.preview(ctx, d); err != nil {
		return GrayPreview{}, err
	}
	if p.Outcome.Preview != nil { // it has a place of its own here
		p.Impact, p.Outcome.Preview.Impact = p.Outcome.Preview.Impact, nil
	}
	p.examples(ref.App)
	return p, nil
}

// nextShare is where the plan goes next.
func (a *Actions) nextShare(ctx context.Context, ref GrayRef, s sharing) (int, error) {
	g, err := a.grayFile(ctx, ref.App, ref.Policy)
	if err != nil {
		return 0, err
	}
	steps := g.Plan.Steps
	if g.paper.Rev == 0 {
		var usual GrayPlan
		usual.settle()
		steps = usual.Steps
	}
	for _, step := range steps {
		if s.share.Of != nil && step > *s.share.Of {
			return step, nil
		}
	}
	return 0, fault.New(fault.Conflict, "no_step", "the share of %s is %s, and no step is above it", ref, s.position()).
		WithHint("finish the gray, or write a plan with more steps")
}

// examples are ids among the moved. Those that replicas had are hashes; the made up
// ones are nobody's and can be explained.
func (p *GrayPreview) examples(app string) {
	if p.Impact != nil {
		for _, of := range p.Impact.Apps {
			if of.App == app {
				p.Examples = append(p.Examples, of.Examples[:min(len(of.Examples), previewed)]...)
			}
		}
	}
	for i := 0; len(p.MadeUp) < previewed && i < 100*policy.Whole; i++ {
		id := "example-" + strconv.Itoa(i)
		if b := int(policy.Bucket(p.Salt, id)); b >= p.Buckets[0] && b <= p.Buckets[1] {
			p.MadeUp = append(p.MadeUp, id)
		}
	}
}
