package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// GrayPlan is how a share shall grow.
type GrayPlan struct {
	Region string           `json:"region" maxLength:"64" doc:"where the share sends people; it must be the region of the policy's share"`
	Steps  []int            `json:"steps,omitempty" maxItems:"20" example:"[500,2000,5000,10000]" doc:"shares of 10,000, each above the one before; default 500, 2000, 5000, 10000"`
	Bake   release.Duration `json:"bake,omitempty" example:"10m" doc:"how long each step serves before the next; default 10m, at least 1m"`
	Sample uint64           `json:"sample,omitempty" maximum:"100000000" example:"500" doc:"requests that each step must have served; default 500"`
	// Signals say whether it goes well. Without one nothing could be known.
	Signals []Signal `json:"signals" minItems:"1" maxItems:"10"`
	OnFail  string   `json:"on_fail,omitempty" enum:"pause,back,zero" doc:"what happens when a signal fails twice in a row: default pause; back to the step before; zero is an abort"`
	Auto    bool     `json:"auto,omitempty" doc:"takes ready steps by itself, never one past 5,000"`
}

// What a plan means by saying nothing, and its bounds.
const (
	defaultBake   = 10 * time.Minute
	leastBake     = time.Minute
	mostBake      = 30 * 24 * time.Hour
	defaultSample = 500
	maxSteps      = 20
	maxSignals    = 10
	// autoMost is the largest share that a timer may take.
	autoMost = policy.Whole / 2
)

// What follows from a signal that fails.
const (
	OnFailPause = "pause"
	OnFailBack  = "back"
	OnFailZero  = "zero"
)

// settle fills in what the plan leaves out.
func (p *GrayPlan) settle() {
	if len(p.Steps) == 0 {
		p.Steps = []int{500, 2_000, 5_000, policy.Whole}
	}
	if p.Bake == 0 {
		p.Bake = release.Duration(defaultBake)
	}
	p.Sample, p.OnFail = cmp.Or(p.Sample, defaultSample), cmp.Or(p.OnFail, OnFailPause)
	p.Signals = slices.Clone(p.Signals)
	for i := range p.Signals {
		p.Signals[i].settle()
	}
}

// check lists what is wrong with a settled plan for a share that stands at now.
func (p *GrayPlan) check(s sharing, now int, allowed []string) error {
	var wrong fault.Problems
	if p.Region != s.share.Region {
		wrong.Addf("region", "the share of the policy goes to %s, not to %q", s.share.Region, p.Region)
	}
	if len(p.Steps) > maxSteps {
		wrong.Addf("steps", "%d are more than %d", len(p.Steps), maxSteps)
	}
	before := now
	for i, step := range p.Steps {
		if step <= before || step > policy.Whole {
			wrong.Addf(fmt.Sprintf("steps[%d]", i), "%d is not above %d and at most %d: a gray only grows", step, before, policy.Whole)
		}
		before = max(before, step)
	}
	if bake := time.Duration(p.Bake); bake < leastBake || bake > mostBake {
		wrong.Addf("bake", "%s is not between %s and %s", p.Bake, release.Duration(leastBake), release.Duration(mostBake))
	}
	if !slices.Contains([]string{OnFailPause, OnFailBack, OnFailZero}, p.OnFail) {
		wrong.Addf("on_fail", "%q is not one of %s, %s, %s", p.OnFail, OnFailPause, OnFailBack, OnFailZero)
	}
	if len(p.Signals) == 0 || len(p.Signals) > maxSignals {
		wrong.Addf("signals", "must be 1 to %d: without one nothing says that it goes well", maxSignals)
	}
	for i := range p.Signals {
		p.Signals[i].check(&wrong, fmt.Sprintf("signals[%d]", i), allowed)
	}
	return wrong.Err("bad_plan", "the plan has mistakes; nothing was changed")
}

// digest is that of everything that decides whom the plan moves, and when.
func (b *grayBody) digest() (release.Digest, error) {
	text, err := json.Marshal([]any{b.Plan, b.Salt, b.Begin})
	if err != nil {
		return release.Digest{}, fmt.Errorf("sum up a gray's plan: %w", err)
	}
	return release.DigestOf(text), nil
}

// PlanGray writes or replaces the plan of a share. rev is the one that the author
// saw, 0 for a new plan. A plan that is replaced begins anew at the share as it
// stands, and needs its signature again. One that runs is paused first.
func (a *Actions) PlanGray(ctx context.Context, w Write, to GrayRef, plan GrayPlan) (Gray, error) {
	if err := w.Actor.May("gray"); err != nil {
		return Gray{}, err
	}
	_, err := remembered(ctx, a, w, asked{"gray_plan", []any{to, plan}}, func(w Write) (GrayRef, error) {
		cur := a.Keeper.Current()
		if cur == nil {
			return to, noRelease()
		}
		s, err := shareIn(cur.Manifest, to.App, to.Policy)
		if err != nil {
			return to, err
		}
		if s.share.Of == nil {
			return to, fault.New(fault.Invalid, "share_form", "the share of %s is written as %s, which has no steps", to, s.position()).
				Hintf("write share: {region: %s, of: N} in the document", s.share.Region)
		}
		g, err := a.grayFile(ctx, to.App, to.Policy)
		if err != nil {
			return to, err
		}
		if g.paper.State == GrayRunning {
			return to, fault.New(fault.Conflict, "gray_running", "the gray %s is running", to).WithHint("pause it first")
		}
		plan.Region = cmp.Or(plan.Region, s.share.Region)
		plan.settle()
		if err := plan.check(s, *s.share.Of, a.Signals); err != nil {
			return to, err
		}
		g.grayBody = grayBody{Plan: plan, Author: w.Actor.Name, Salt: s.salt, Begin: *s.share.Of, Readings: []Reading{}}
		if g.Digest, err = g.digest(); err != nil {
			return to, err
		}
		g.paper.Rev, g.paper.State = to.Rev, GrayPlanned
		two, err := a.needsTwo(ctx, g)
		if err != nil {
			return to, err
		}
		if two && a.FourEyes {
			g.paper.State, g.Why = GraySubmitted, "a step moves more people than one person may: a second person signs the plan"
		}
		if err := w.remember(to); err != nil {
			return to, err
		}
		return to, a.saveGray(ctx, w, g, "gray_plan")
	})
	if err != nil {
		return Gray{}, err
	}
	return a.GrayOf(ctx, to.App, to.Policy)
}

// GrayRef names a gray, and what its author saw of the plan.
type GrayRef struct {
	App    string `json:"app"`
	Policy string `json:"policy"`
	Rev    uint64 `json:"rev,omitempty"`
}

// String is the gray's name in the audit trail.
func (r GrayRef) String() string { return grayID(r.App, r.Policy) }

// needsTwo says whether a step of the plan moves more people than one person may.
// It counts buckets, whoever meets the policy's conditions.
func (a *Actions) needsTwo(ctx context.Context, g *grayFile) (bool, error) {
	set, err := a.settings(ctx)
	if err != nil {
		return false, err
	}
	before, most := g.Begin, set.Safety.MaxMovePercent*policy.Whole/100
	for _, step := range g.Plan.Steps {
		if step-before > most {
			return true, nil
		}
		before = step
	}
	return false, nil
}

// grayApprover is who signed the plan as it is; empty: nobody.
func (a *Actions) grayApprover(ctx context.Context, g *grayFile) (string, error) {
	signed, err := a.Ledger.Approvals(ctx, ledger.OfGray, g.paper.ID)
	if err != nil {
		return "", fmt.Errorf("read who signed gray %s: %w", g.paper.ID, err)
	}
	for _, s := range signed {
		if s.Digest == g.Digest && (!strings.EqualFold(s.Approver, g.Author) || !a.FourEyes) {
			return s.Approver, nil
		}
	}
	return "", nil
}

// ApproveGray signs the plan that has this digest, for its author.
func (a *Actions) ApproveGray(ctx context.Context, w Write, to GrayRef, digest string) (Gray, error) {
	if err := w.Actor.May("approve-gray"); err != nil {
		return Gray{}, err
	}
	_, err := remembered(ctx, a, w, asked{"gray_approve", []any{to, digest}}, func(w Write) (GrayRef, error) {
		g, err := a.plannedGray(ctx, to.App, to.Policy)
		if err != nil {
			return to, err
		}
		if g.Digest.String() != digest {
			return to, fault.New(fault.Conflict, "stale_plan", "the plan of %s is another one by now", to).
				WithHint("read it again, and sign what it says now")
		}
		if g.paper.State != GraySubmitted {
			return to, fault.New(fault.Conflict, "no_change", "the plan of %s waits for nobody", to).Hintf("it is %s", fault.Word(g.paper.State))
		}
		if err := a.another(ctx, w.Actor, fault.Textf("the plan of %s", to), g.Author); err != nil {
			return to, err
		}
		if err := w.remember(to); err != nil {
			return to, err
		}
		err = a.Ledger.Approve(ctx, ledger.Approval{Kind: ledger.OfGray, ID: g.paper.ID, Digest: g.Digest, Author: g.Author,
			Approver: w.Actor.Name, Reason: w.Reason}, w.change("gray_approve", g.paper.ID))
		if err != nil && fault.CodeOf(err) != "already_approved" { // then only what follows was missing
			return to, err
		}
		g.paper.State, g.Why = GrayPlanned, "signed by "+w.Actor.Name
		w.once = nil
		return to, a.saveGray(ctx, w, g, "gray_approved")
	})
	if err != nil {
		return Gray{}, err
	}
	return a.GrayOf(ctx, to.App, to.Policy)
}

// pendingGrays are the plans that wait for a second person.
func (a *Actions) pendingGrays(ctx context.Context) ([]Pending, error) {
	papers, err := a.Ledger.Papers(ctx, ledger.Gray, ledger.PaperFilter{States: []string{GraySubmitted}, Limit: maxGrays})
	if err != nil {
		return nil, fmt.Errorf("read grays: %w", err)
	}
	var list []Pending
	for _, p := range papers {
		g, err := grayOf(p)
		if err != nil {
			return nil, err
		}
		list = append(list, Pending{Kind: ledger.OfGray, ID: p.ID, Author: g.Author, Since: p.Changed,
			Title: fmt.Sprintf("gray %s: %s", p.ID, strings.Trim(strings.ReplaceAll(fmt.Sprint(g.Plan.Steps), " ", " → "), "[]"))})
	}
	return list, nil
}

// allowedURL says what is wrong with the address of a signal; empty: nothing. Only
// hosts that were named at start are asked: a plan must not reach into the network.
func allowedURL(text string, allowed []string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "is no address: write https://HOST:PORT/…"
	case u.User != nil || u.Fragment != "":
		return "must have neither a password nor a fragment"
	case !slices.ContainsFunc(allowed, func(h string) bool { return strings.EqualFold(h, u.Host) }):
		return fmt.Sprintf("host %s is not one of --signal-hosts (%s)", u.Host, cmp.Or(strings.Join(allowed, ", "), "none"))
	}
	return ""
}
