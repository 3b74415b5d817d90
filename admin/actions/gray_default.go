package actions

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// A gray that took everybody is done when the document says so without it: the policy
// goes, and its region is what the app does otherwise. Nobody moves by that when the
// policy asks nothing of a request: no policy comes after one that takes all.

// What keeps the region of a gray from becoming the app's default by itself.
const (
	DefaultPart       = "part"       // the share is not whole
	DefaultConditions = "conditions" // not everybody comes to the policy
)

// GrayDefault is whether the region of a gray can become the app's default by itself.
type GrayDefault struct {
	Ready bool   `json:"ready" doc:"once the plan is finished, the action default opens a draft of it"`
	Why   string `json:"why,omitempty" enum:"part,conditions" doc:"why a person has to write it"`
}

// byDefault judges the share as it serves.
func (s sharing) byDefault() GrayDefault {
	d := GrayDefault{}
	switch {
	case s.position() != strconv.Itoa(policy.Whole):
		d.Why = DefaultPart
	case !s.policy.MatchAll:
		d.Why = DefaultConditions
	default:
		d.Ready = true
	}
	return d
}

// refusal is why a person has to write it, nil if not.
func (s sharing) refusal(to GrayRef) error {
	d := s.byDefault()
	var why fault.Text
	switch d.Why {
	case "":
		return nil
	case DefaultPart:
		why = fault.Textf("the share of %s is %s of %d: the others go on to what comes after it", to.Policy, s.position(), policy.Whole)
	case DefaultConditions:
		why = fault.Textf("policy %s has conditions: whoever does not meet them never came to it, and would move", to.Policy)
	}
	hint := s.insteadOf(to)
	e := fault.New(fault.Invalid, "no_default", "%s cannot become the default of %s by itself", s.share.Region, to.App).Hintf(hint.Format, hint.Args...)
	e.Problems = []fault.Problem{fault.ProblemOf("", why, fault.Text{})}
	return e
}

// insteadOf is what a person writes instead.
func (s sharing) insteadOf(to GrayRef) fault.Text {
	if s.position() == strconv.Itoa(policy.Whole) {
		return fault.Textf("write then: {region: %s} into policy %s of %s and publish that with release_holds=true", s.share.Region, to.Policy, to.App)
	}
	return fault.Textf("write then: {share: {region: %s, of: %s}} into policy %s of %s and publish it: what was set by hand ends with it",
		s.share.Region, s.position(), to.Policy, to.App)
}

// DefaultGray opens a draft that makes the region of a finished gray the default of its
// app, and takes the policy out. Who may write drafts may open it.
func (a *Actions) DefaultGray(ctx context.Context, w Write, to GrayRef) (GrayOutcome, error) {
	if err := w.Actor.May("create-draft"); err != nil {
		return GrayOutcome{}, err
	}
	g, err := a.plannedGray(ctx, to.App, to.Policy)
	if err != nil {
		return GrayOutcome{}, err
	}
	out := GrayOutcome{State: g.paper.State, Share: strconv.Itoa(g.share())}
	out.Draft, err = remembered(ctx, a, w, asked{"gray_default", to}, func(w Write) (string, error) {
		if g.paper.State != GrayFinished {
			return "", fault.New(fault.Conflict, "gray_state", "the gray %s is %s", to, g.paper.State).WithHint("finish it first, once its last step serves")
		}
		in, err := a.defaultDraft(ctx, to)
		if err != nil {
			return "", err
		}
		w.Key = "" // what is remembered under it is the draft
		d, err := a.CreateDraft(ctx, w, in)
		return d.ID, err
	})
	return out, err
}

// defaultDraft is the document in use without the policy, whose region is the default.
func (a *Actions) defaultDraft(ctx context.Context, to GrayRef) (DraftInput, error) {
	h, err := a.head(ctx)
	if err != nil {
		return DraftInput{}, err
	}
	s, err := shareIn(h.from, to.App, to.Policy)
	if err != nil {
		return DraftInput{}, err
	}
	if err := s.refusal(to); err != nil {
		return DraftInput{}, err
	}
	doc := h.from.Document
	doc.Apps = slices.Clone(doc.Apps)
	app := &doc.Apps[slices.IndexFunc(doc.Apps, func(one release.App) bool { return one.Key == to.App })] // shareIn found it
	app.Policies = slices.DeleteFunc(slices.Clone(app.Policies), func(p policy.Policy) bool { return p.Key == to.Policy })
	app.Otherwise = policy.Action{Region: s.share.Region}
	text, err := release.Text(&doc)
	if err != nil {
		return DraftInput{}, err
	}
	return DraftInput{Title: fmt.Sprintf("%s is the default of %s, without %s", s.share.Region, to.App, to.Policy), Document: string(text),
		Base: h.all.Number, AllowEmpty: len(app.Policies) == 0}, nil
}
