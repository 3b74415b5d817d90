package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// A gray is a share that grows in steps. What serves is its position in the release;
// the plan, and how far it has come, is a paper beside it. The release is the truth:
// a paper that says otherwise pauses. Nothing that takes people back needs the paper.
//
//	plan → (approve) → start → next … next → finish → default
//	                     └─ pause, resume, abort at any time

// The states of a gray.
const (
	GrayNone      = "none"      // a share without a plan
	GrayPlanned   = "planned"   // may start
	GraySubmitted = "submitted" // waits for a second person
	GrayRunning   = "running"
	GrayPaused    = "paused"
	GrayAborted   = "aborted"
	GrayFinished  = "finished"
)

// grayIdle is after how long a plan that nobody touches is called stale.
const grayIdle = 14 * 24 * time.Hour

// GrayStatus is a gray as lists and the overview show it.
type GrayStatus struct {
	App     string    `json:"app"`
	Policy  string    `json:"policy"`
	Region  string    `json:"region"`
	Share   string    `json:"share" doc:"of 10,000, as it serves"`
	State   string    `json:"state" enum:"none,planned,submitted,running,paused,aborted,finished" doc:"none: a share without a plan"`
	Step    int       `json:"step" doc:"how many of the steps were taken"`
	Steps   []int     `json:"steps,omitempty" doc:"of 10,000"`
	Why     string    `json:"why,omitempty" doc:"why it stands where it stands"`
	Changed time.Time `json:"changed,omitzero"`
	Stale   bool      `json:"stale,omitempty" doc:"a plan that nobody touched for 14 days"`
}

// Gray is one share with its plan, as it stands now.
type Gray struct {
	GrayStatus
	Rev         uint64    `json:"rev" doc:"of the plan; 0: there is none"`
	Plan        *GrayPlan `json:"plan,omitempty"`
	By          string    `json:"by,omitempty" doc:"who wrote the plan"`
	Digest      string    `json:"digest,omitempty" doc:"of target, salt, steps and signals: what a second person signs"`
	TwoPeople   bool      `json:"two_people,omitempty" doc:"a step moves more people than one person may"`
	ApprovedBy  string    `json:"approved_by,omitempty"`
	Next        int       `json:"next,omitempty" doc:"the share of the next step; 0: none is left"`
	Since       time.Time `json:"since,omitzero" doc:"when all replicas served the step"`
	BakeLeft    float64   `json:"bake_left" doc:"seconds that the step has to serve yet"`
	Sample      uint64    `json:"sample" doc:"requests that the policy sent to its region since then"`
	Windows     int       `json:"windows" doc:"in a row in which every signal passed, as this node saw it"`
	Readings    []Reading `json:"readings" doc:"of the last window; of a gray that stands, of the one that stopped it"`
	Ready       bool      `json:"ready" doc:"the next step may be taken"`
	Waits       []string  `json:"waits" doc:"what the next step still waits for"`
	Seen        *GraySeen `json:"seen,omitempty" doc:"of an hour; absent without requests"`
	Conditional bool      `json:"conditional,omitempty" doc:"the policy has conditions: what is seen is a part of all of the app's requests, and expected of those who meet them"`
	Confirm     string    `json:"confirm" doc:"what must be typed to abort"`

	WaitsFor []fault.Text `json:"-"` // Waits, for other languages

	Default *GrayDefault `json:"default,omitempty" doc:"of a plan whose last step was taken"`
}

// grayFile is a plan's paper and what stands in it.
type grayFile struct {
	paper ledger.Paper
	grayBody
}

// grayBody is what the paper of a gray holds.
type grayBody struct {
	Plan     GrayPlan       `json:"plan"`
	Author   string         `json:"author"` // of the plan as it is
	Salt     string         `json:"salt"`   // of the policy when it was planned
	Digest   release.Digest `json:"digest"`
	Begin    int            `json:"begin"`    // the share before the first step
	Step     int            `json:"step"`     // how many steps were taken
	Release  uint64         `json:"release"`  // that carries the last one
	Began    time.Time      `json:"began"`    // when that was published
	Since    time.Time      `json:"since"`    // when all replicas served it; zero: not yet
	Why      string         `json:"why"`      // of the state
	Readings []Reading      `json:"readings"` // that led to the state
}

// share is what the step that was taken last makes the share.
func (b *grayBody) share() int {
	if b.Step == 0 {
		return b.Begin
	}
	return b.Plan.Steps[b.Step-1]
}

// next is the share of the next step, 0 after the last.
func (b *grayBody) next() int {
	if b.Step >= len(b.Plan.Steps) {
		return 0
	}
	return b.Plan.Steps[b.Step]
}

func grayID(app, policy string) string { return app + "/" + policy }

// grayFile reads the plan of a gray; one with Rev 0 if there is none.
func (a *Actions) grayFile(ctx context.Context, app, policy string) (*grayFile, error) {
	p, err := a.Ledger.Paper(ctx, ledger.Gray, grayID(app, policy))
	if fault.KindOf(err) == fault.NotFound {
		return &grayFile{paper: ledger.Paper{Kind: ledger.Gray, ID: grayID(app, policy), State: GrayNone}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read gray %s: %w", grayID(app, policy), err)
	}
	return grayOf(p)
}

// plannedGray is the plan of a gray, and an error if there is none.
func (a *Actions) plannedGray(ctx context.Context, app, policy string) (*grayFile, error) {
	g, err := a.grayFile(ctx, app, policy)
	if err == nil && g.paper.Rev == 0 {
		err = fault.New(fault.NotFound, "no_plan", "nobody planned a gray for %s", grayID(app, policy)).
			Hintf("PUT /api/v1/grays/%s with its steps and signals", grayID(app, policy))
	}
	return g, err
}

func grayOf(p ledger.Paper) (*grayFile, error) {
	g := &grayFile{paper: p}
	if err := json.Unmarshal(p.Body, &g.grayBody); err != nil {
		return nil, fmt.Errorf("read gray %s: %w", p.ID, err)
	}
	if g.Step < 0 || g.Step > len(g.Plan.Steps) {
		return nil, fmt.Errorf("read gray %s: step %d of %d", p.ID, g.Step, len(g.Plan.Steps))
	}
	return g, nil
}

// saveGray writes the plan, unless somebody was faster.
func (a *Actions) saveGray(ctx context.Context, w Write, g *grayFile, action string) error {
	body, err := json.Marshal(g.grayBody)
	if err != nil {
		return fmt.Errorf("write gray %s: %w", g.paper.ID, err)
	}
	g.paper.Body = body
	c := w.change(action, g.paper.ID)
	if c.Details, err = json.Marshal(map[string]any{"state": g.paper.State, "step": g.Step, "share": g.share(), "why": g.Why}); err != nil {
		return fmt.Errorf("write audit details of %s: %w", action, err)
	}
	saved, err := a.Ledger.SavePaper(ctx, g.paper, c)
	if err != nil {
		return err
	}
	g.paper = saved
	return nil
}

// sharing is a policy with a share in a release.
type sharing struct {
	app    *release.App
	policy *policy.Policy
	share  *policy.Share
	salt   string
}

// position is how much the share takes.
func (s sharing) position() string { return release.Position(s.share) }

// shareIn is a policy's share in a release.
func shareIn(m *release.Manifest, app, key string) (sharing, error) {
	if m == nil {
		return sharing{}, noRelease()
	}
	for _, served := range release.Apply(&m.Document, m.Operational) {
		if served.Key != app {
			continue
		}
		for i := range served.Policies {
			p := &served.Policies[i]
			if p.Key != key {
				continue
			}
			if p.Then.Share == nil {
				return sharing{}, fault.New(fault.Invalid, "no_gray", "policy %s of %s takes no share", key, app).
					WithHint("only a policy with then: {share: …} is a gray")
			}
			salt := cmp.Or(p.Salt, m.Operational.Apps[app].Salts[key], app+"/"+key)
			return sharing{app: &served, policy: p, share: p.Then.Share, salt: salt}, nil
		}
		return sharing{}, fault.New(fault.NotFound, "unknown_policy", "app %s has no policy %q", app, key)
	}
	return sharing{}, fault.New(fault.NotFound, "unknown_app", "no app has the key %q", app).WithHint("GET /api/v1/apps lists them")
}

// Grays are all shares of the release in use, with their plans.
func (a *Actions) Grays(ctx context.Context) ([]GrayStatus, error) {
	all := []GrayStatus{}
	cur := a.Keeper.Current()
	if cur == nil {
		return all, nil
	}
	papers, err := a.Ledger.Papers(ctx, ledger.Gray, ledger.PaperFilter{Limit: maxGrays})
	if err != nil {
		return nil, fmt.Errorf("read grays: %w", err)
	}
	for _, app := range release.Apply(&cur.Manifest.Document, cur.Manifest.Operational) {
		for i := range app.Policies {
			share := app.Policies[i].Then.Share
			if share == nil {
				continue
			}
			g := &grayFile{paper: ledger.Paper{State: GrayNone}}
			if n := slices.IndexFunc(papers, func(p ledger.Paper) bool { return p.ID == grayID(app.Key, app.Policies[i].Key) }); n >= 0 {
				if g, err = grayOf(papers[n]); err != nil {
					return nil, err
				}
			}
			all = append(all, a.statusOf(g, GrayStatus{App: app.Key, Policy: app.Policies[i].Key, Region: share.Region, Share: release.Position(share)}))
		}
	}
	return all, nil
}

// maxGrays is how many plans are looked at, the last changed first.
const maxGrays = 1000

// statusOf completes the status of a share by its plan.
func (a *Actions) statusOf(g *grayFile, s GrayStatus) GrayStatus {
	s.State, s.Step, s.Steps, s.Why, s.Changed = g.paper.State, g.Step, g.Plan.Steps, g.Why, g.paper.Changed
	over := s.State == GrayNone || s.State == GrayAborted || s.State == GrayFinished
	s.Stale = !over && a.now().Sub(s.Changed) > grayIdle
	return s
}

// GrayOf is one share with its plan and how far that has come.
func (a *Actions) GrayOf(ctx context.Context, app, policy string) (Gray, error) {
	cur := a.Keeper.Current()
	if cur == nil {
		return Gray{}, noRelease()
	}
	s, err := shareIn(cur.Manifest, app, policy)
	if err != nil {
		return Gray{}, err
	}
	f, err := a.grayFile(ctx, app, policy)
	if err != nil {
		return Gray{}, err
	}
	g := Gray{GrayStatus: a.statusOf(f, GrayStatus{App: app, Policy: policy, Region: s.share.Region, Share: s.position()}),
		Rev: f.paper.Rev, Readings: []Reading{}, Waits: []string{}, Conditional: !s.policy.MatchAll, Confirm: a.typed(policy)}
	if g.Seen, err = a.seen(ctx, g.GrayStatus, f.Since); err != nil {
		return Gray{}, err
	}
	if g.Rev == 0 {
		return g, nil
	}
	g.Plan, g.By, g.Digest, g.Next = &f.Plan, f.Author, f.Digest.String(), f.next()
	if g.ApprovedBy, err = a.grayApprover(ctx, f); err != nil {
		return Gray{}, err
	}
	if g.TwoPeople, err = a.needsTwo(ctx, f); err != nil {
		return Gray{}, err
	}
	if g.Next == 0 {
		d := s.byDefault()
		g.Default = &d
	}
	return g, a.progress(ctx, f, &g)
}
