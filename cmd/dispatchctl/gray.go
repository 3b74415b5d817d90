package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
)

type grayCmd struct {
	List    grayListCmd    `cmd:"" default:"withargs" help:"Shares and their plans."`
	Show    grayShowCmd    `cmd:"" help:"One gray: its step, what it waits for, its signals."`
	Preview grayPreviewCmd `cmd:"" help:"Whom the next step would move."`
	Plan    grayPlanCmd    `cmd:"" help:"Write the plan of a gray, from a JSON file."`
	Approve grayApproveCmd `cmd:"" help:"Agree to a plan that somebody else wrote."`
	Start   grayStartCmd   `cmd:"" help:"Take the first step."`
	Next    grayNextCmd    `cmd:"" help:"Take the next step."`
	Pause   grayPauseCmd   `cmd:"" help:"Hold the gray where it is."`
	Resume  grayResumeCmd  `cmd:"" help:"Let a paused gray go on."`
	Abort   grayAbortCmd   `cmd:"" help:"Take the share to 0, everywhere at once."`
	Finish  grayFinishCmd  `cmd:"" help:"Close a gray that has reached all."`
	Default grayDefaultCmd `cmd:"" help:"Open a draft that makes the region of a finished gray the default of its app."`
	Inner   innerGrayCmd   `cmd:"" help:"Versions of services that grow: list, show, start, approve, step, abort, finish."`
}

// grayRef names a gray. It is written APP/POLICY.
type grayRef struct {
	Policy area `arg:"" name:"app/policy" help:"Which policy of which app."`
}

func (r grayRef) path() string {
	return "/grays/" + url.PathEscape(r.Policy.app) + "/" + url.PathEscape(r.Policy.region)
}

// gray is one gray as the server shows it.
type gray struct {
	App      string   `json:"app"`
	Policy   string   `json:"policy"`
	Region   string   `json:"region"`
	Share    string   `json:"share"`
	State    string   `json:"state"`
	Step     int      `json:"step"`
	Steps    []int    `json:"steps"`
	Why      string   `json:"why"`
	Digest   string   `json:"digest"`
	Approved string   `json:"approved_by"`
	Two      bool     `json:"two_people"`
	BakeLeft float64  `json:"bake_left"`
	Sample   uint64   `json:"sample"`
	Ready    bool     `json:"ready"`
	Waits    []string `json:"waits"`
	Rev      uint64   `json:"rev"`
	Confirm  string   `json:"confirm"`
	Readings []struct {
		Signal string `json:"signal"`
		State  string `json:"state"`
		Value  string `json:"value"`
		Detail string `json:"detail"`
	} `json:"readings"`
}

// String is the state card.
func (g gray) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "gray    %s/%s → %s\nshare   %s of 10,000\nstate   %s", g.App, g.Policy, g.Region, g.Share, g.State)
	if g.Why != "" {
		fmt.Fprintf(&b, ": %s", g.Why)
	}
	fmt.Fprintf(&b, "\nstep    %d of %d %v\n", g.Step, len(g.Steps), g.Steps)
	if g.State == "running" {
		fmt.Fprintf(&b, "bake    %s left\nsample  %d requests\n", age(g.BakeLeft), g.Sample)
	}
	for _, r := range g.Readings {
		fmt.Fprintf(&b, "signal  %s: %s\n", r.Signal, strings.TrimSpace(strings.ReplaceAll(r.State, "_", " ")+" "+r.Value+" "+r.Detail))
	}
	if g.Two {
		fmt.Fprintf(&b, "signed  %s\ndigest  %s\n", or(g.Approved, "by nobody yet; a step moves more people than one person may"), g.Digest)
	}
	for _, w := range g.Waits {
		fmt.Fprintf(&b, "waits   %s\n", w)
	}
	if g.Ready {
		b.WriteString("ready for the next step\n")
	}
	return b.String()
}

type grayListCmd struct{}

// Run prints a line for each share.
func (*grayListCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Grays []gray `json:"grays"`
	}
	answer, err := p.get(ctx, "/grays", &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"GRAY", "REGION", "SHARE", "STATE", "STEP", "WHY"}}
	for _, g := range v.Grays {
		rows = append(rows, []string{g.App + "/" + g.Policy, g.Region, g.Share, g.State, fmt.Sprintf("%d/%d", g.Step, len(g.Steps)), g.Why})
	}
	return p.showRows(answer, rows, "no policy takes a share")
}

type grayShowCmd struct{ grayRef }

// Run prints the state card.
func (c *grayShowCmd) Run(ctx context.Context, p *program) error {
	var g gray
	answer, err := p.get(ctx, c.path(), &g)
	if err != nil {
		return err
	}
	return p.show(answer, printable(g.String()))
}

type grayPreviewCmd struct {
	grayRef
	To int `placeholder:"N" help:"The share to look at, of 10,000 (default: the next step)."`
}

// Run prints whom the step would move.
func (c *grayPreviewCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		From    int      `json:"from"`
		To      int      `json:"to"`
		Buckets [2]int   `json:"buckets"`
		MadeUp  []string `json:"made_up"`
		Outcome struct {
			Preview *preview `json:"preview"`
		} `json:"outcome"`
	}
	query := ""
	if c.To > 0 {
		query = "?to=" + strconv.Itoa(c.To)
	}
	answer, err := p.get(ctx, c.path()+"/preview"+query, &v)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d → %d of 10,000: buckets %d to %d enter\n", v.From, v.To, v.Buckets[0], v.Buckets[1])
	if v.Outcome.Preview != nil {
		text += v.Outcome.Preview.moves()
	}
	if len(v.MadeUp) > 0 {
		text += "would enter, for dispatchctl explain: " + strings.Join(v.MadeUp, " ") + "\n"
	}
	return p.show(answer, printable(text))
}

type grayPlanCmd struct {
	grayRef
	File string `arg:"" type:"existingfile" help:"The plan as JSON: region, steps, bake, sample, signals, on_fail, auto."`
	change
}

// Run writes the plan, unless somebody else wrote it since.
func (c *grayPlanCmd) Run(ctx context.Context, p *program) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return usageError{fmt.Errorf("read plan: %w", err)}
	}
	plan := map[string]any{}
	if err := json.Unmarshal(text, &plan); err != nil {
		return usageError{fmt.Errorf("read plan %s: %w", c.File, err)}
	}
	var seen, after gray
	if _, err := p.get(ctx, c.path(), &seen); err != nil {
		return err
	}
	plan["reason"], plan["rev"] = c.Reason, seen.Rev
	answer, err := c.send(ctx, p, deed{method: http.MethodPut, what: "The plan of " + c.Policy.String(), word: c.Policy.region, path: c.path(), body: plan}, &after)
	if err != nil {
		return err
	}
	return p.show(answer, printable(after.String()))
}

type grayApproveCmd struct {
	grayRef
	change
}

// Run signs the plan as it is shown.
func (c *grayApproveCmd) Run(ctx context.Context, p *program) error {
	var seen, after gray
	if _, err := p.get(ctx, c.path(), &seen); err != nil {
		return err
	}
	answer, err := c.send(ctx, p, deed{what: fmt.Sprintf("You agree to the plan of %s: %v", c.Policy, seen.Steps), word: c.Policy.region, path: c.path() + "/approve",
		body: map[string]string{"reason": c.Reason, "digest": seen.Digest}}, &after)
	if err != nil {
		return err
	}
	return p.show(answer, printable(after.String()))
}

// turn is one move of a gray.
func (r grayRef) turn(ctx context.Context, p *program, c change, action string, hard bool) error {
	var seen gray
	if _, err := p.get(ctx, r.path(), &seen); err != nil {
		return err
	}
	if p.asks && c.Confirm == "" {
		fmt.Fprint(p.log, printable(seen.String()))
	}
	var out struct {
		outcome
		State  string `json:"state"`
		Share  string `json:"share"`
		Prompt string `json:"prompt"`
		Draft  string `json:"draft"`
	}
	word := r.Policy.region
	if action == "abort" {
		word = or(seen.Confirm, word)
	}
	answer, err := c.send(ctx, p, deed{what: action + " " + r.Policy.String(), word: word, path: r.path(), confirmed: func(typed string) any {
		return struct {
			Reason  string `json:"reason"`
			Confirm string `json:"confirm,omitempty"`
			Action  string `json:"action"`
			Expect  string `json:"expect,omitempty"`
			Hard    bool   `json:"hard,omitempty"`
		}{c.Reason, typed, action, seen.Share, hard}
	}}, &out)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s is %s, at %s of 10,000\n", r.Policy, out.State, out.Share)
	if out.Prompt != "" {
		text += out.Prompt + "\n"
	}
	if out.Draft != "" {
		text += fmt.Sprintf("draft %s makes its region the default: dispatchctl draft show %s\n", out.Draft, out.Draft)
	}
	if out.Release == 0 {
		return p.show(answer, printable(text))
	}
	return p.showOutcome(answer, out.outcome, printable(text))
}

type grayStartCmd struct {
	grayRef
	change
}

// Run takes the first step.
func (c *grayStartCmd) Run(ctx context.Context, p *program) error {
	return c.turn(ctx, p, c.change, "start", false)
}

type grayNextCmd struct {
	grayRef
	change
}

// Run takes the next step.
func (c *grayNextCmd) Run(ctx context.Context, p *program) error {
	return c.turn(ctx, p, c.change, "next", false)
}

type grayPauseCmd struct {
	grayRef
	change
}

// Run holds the gray.
func (c *grayPauseCmd) Run(ctx context.Context, p *program) error {
	return c.turn(ctx, p, c.change, "pause", false)
}

type grayResumeCmd struct {
	grayRef
	change
}

// Run lets the gray go on.
func (c *grayResumeCmd) Run(ctx context.Context, p *program) error {
	return c.turn(ctx, p, c.change, "resume", false)
}

type grayAbortCmd struct {
	grayRef
	Hard bool `help:"Void the sessions that the policy gave, too."`
	change
}

// Run takes the share to 0.
func (c *grayAbortCmd) Run(ctx context.Context, p *program) error {
	return c.turn(ctx, p, c.change, "abort", c.Hard)
}

type grayFinishCmd struct {
	grayRef
	change
}

// Run closes the plan.
func (c *grayFinishCmd) Run(ctx context.Context, p *program) error {
	return c.turn(ctx, p, c.change, "finish", false)
}

type grayDefaultCmd struct {
	grayRef
	change
}

// Run opens the draft.
func (c *grayDefaultCmd) Run(ctx context.Context, p *program) error {
	return c.turn(ctx, p, c.change, "default", false)
}
