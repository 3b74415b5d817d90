package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

type innerGrayCmd struct {
	List    innerGrayListCmd    `cmd:"" default:"withargs" help:"Versions that grow now."`
	Show    innerGrayShowCmd    `cmd:"" help:"One that grows: its step, and what callers make of it."`
	Start   innerGrayStartCmd   `cmd:"" help:"Let a new version take its first step."`
	Approve innerGrayApproveCmd `cmd:"" help:"Agree to the start for a key service that somebody else begins."`
	Step    innerGrayStepCmd    `cmd:"" help:"Take the next step, or one that is named."`
	Abort   innerGrayAbortCmd   `cmd:"" help:"Take everything back from the new version, everywhere at once."`
	Finish  innerGrayFinishCmd  `cmd:"" help:"Print the rule that ends a gray which has everything: it goes into Git."`
}

// ruleName is what rules are told apart by.
type ruleName struct{ service, env string }

// UnmarshalText reads SERVICE/ENV.
func (n *ruleName) UnmarshalText(text []byte) error {
	service, env, ok := strings.Cut(string(text), "/")
	if !ok || service == "" || env == "" || strings.Contains(env, "/") {
		return fmt.Errorf("%q is not SERVICE/ENV", text)
	}
	*n = ruleName{service, env}
	return nil
}

func (n ruleName) String() string { return n.service + "/" + n.env }

// innerRef names the rule whose gray it is. It is written SERVICE/ENV.
type innerRef struct {
	Rule ruleName `arg:"" name:"service/env" help:"The rule by which the version grows."`
}

func (r innerRef) path() string {
	return "/rules/grays/" + url.PathEscape(r.Rule.service) + "/" + url.PathEscape(r.Rule.env)
}

// innerGray is a gray as the server shows it.
type innerGray struct {
	Region   string          `json:"region"`
	Service  string          `json:"service"`
	Env      string          `json:"env"`
	Version  string          `json:"version"`
	From     string          `json:"from"`
	Share    int             `json:"share"`
	Steps    []int           `json:"steps"`
	Step     int             `json:"step"`
	Next     int             `json:"next"`
	ByKey    bool            `json:"by_key"`
	Without  bool            `json:"without_fallback"`
	Since    time.Time       `json:"since"`
	By       string          `json:"by"`
	Problem  string          `json:"problem"`
	Direct   bool            `json:"direct"`
	Confirm  string          `json:"confirm"`
	File     string          `json:"file"`
	Own      string          `json:"own_fallback"`
	Finish   string          `json:"finish"`
	Measure  string          `json:"measure"`
	Back     []fault.Problem `json:"back"`
	Versions []struct {
		Version   string  `json:"version"`
		Share     float64 `json:"share"`
		Instances int     `json:"instances"`
		Serving   int     `json:"serving"`
	} `json:"versions"`
}

func (g innerGray) name() string { return g.Service + "/" + g.Env }

// String is the state card. It ends with what comes next.
func (g innerGray) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "gray     %s in %s: %s, where %s was\nshare    %d %% since %s by %s", g.name(), g.Region, g.Version, g.From, g.Share, moment(g.Since), g.By)
	if g.ByKey {
		b.WriteString(", of calls with a key")
	}
	fmt.Fprintf(&b, "\nstep     %d of %d %v\n", g.Step, len(g.Steps), g.Steps)
	if g.Without {
		b.WriteString("fallback left out while it runs\n")
	}
	for _, v := range g.Versions {
		fmt.Fprintf(&b, "callers  %s %.1f %%, %d/%d serve\n", v.Version, v.Share*100, v.Serving, v.Instances)
	}
	if g.Problem != "" {
		fmt.Fprintf(&b, "fails    %s\n", g.Problem)
	}
	if g.Direct {
		b.WriteString(directText)
	}
	fmt.Fprintf(&b, "measure  %s\n", g.Measure)
	if g.Next > 0 {
		fmt.Fprintf(&b, "next     dispatchctl gray inner step %s takes %d %%\n", g.name(), g.Next)
	} else {
		fmt.Fprintf(&b, "next     dispatchctl gray inner finish %s prints the rule for Git\n", g.name())
	}
	fmt.Fprintf(&b, "back     dispatchctl gray inner abort %s\n", g.name())
	for _, w := range g.Back {
		fmt.Fprintf(&b, "but      %s\n", w)
	}
	return b.String()
}

type innerGrayListCmd struct{}

// Run prints a line for each gray.
func (*innerGrayListCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Grays []innerGray `json:"grays"`
	}
	answer, err := p.get(ctx, "/rules/grays", &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"SERVICE", "ENV", "VERSION", "FROM", "SHARE", "STEP", "SINCE", "BY"}}
	for _, g := range v.Grays {
		rows = append(rows, []string{g.Service, g.Env, g.Version, g.From, fmt.Sprintf("%d %%", g.Share), fmt.Sprintf("%d/%d", g.Step, len(g.Steps)), moment(g.Since), g.By})
	}
	return p.showRows(answer, rows, "no version grows: callers follow the rules as Git has them")
}

type innerGrayShowCmd struct{ innerRef }

// Run prints the state card.
func (c *innerGrayShowCmd) Run(ctx context.Context, p *program) error {
	var g innerGray
	answer, err := p.get(ctx, c.path(), &g)
	if err != nil {
		return err
	}
	return p.show(answer, printable(g.String()))
}

// innerPlan is how a version shall grow.
type innerPlan struct {
	innerRef
	Version         string `arg:"" help:"The new version, as its instances state it."`
	Steps           []int  `placeholder:"N,…" help:"Percents that rise up to 100 (default: 5,20,50,100)."`
	ByKey           bool   `help:"Only calls with a key take part, each by its key; without it every call does."`
	WithoutFallback bool   `help:"The rule's own fallback may be left out meanwhile."`
}

// innerBody is a plan as the server takes it.
type innerBody struct {
	Reason          string `json:"reason"`
	Version         string `json:"version"`
	Steps           []int  `json:"steps,omitempty"`
	ByKey           bool   `json:"by_key,omitempty"`
	WithoutFallback bool   `json:"without_fallback,omitempty"`
	Digest          string `json:"digest,omitempty"`
}

func (c innerPlan) body(reason, digest string) innerBody {
	return innerBody{reason, c.Version, c.Steps, c.ByKey, c.WithoutFallback, digest}
}

type innerGrayStartCmd struct {
	innerPlan
	change
}

// Run starts the gray and prints its card.
func (c *innerGrayStartCmd) Run(ctx context.Context, p *program) error {
	return c.grow(ctx, p, c.change, deed{what: fmt.Sprintf("%s takes its first step of the calls to %s", c.Version, c.Rule), word: c.Rule.service, path: c.path(),
		body: c.body(c.Reason, "")})
}

// warn prints what was done all the same, or would be.
func (p *program) warn(all []fault.Problem) {
	for _, w := range all {
		fmt.Fprintln(p.log, "warning:", printable(w.String()))
	}
}

// grow makes a change that a gray survives, and prints the card.
func (r innerRef) grow(ctx context.Context, p *program, by change, d deed) error {
	var out rulesApplied
	answer, err := by.send(ctx, p, d, &out)
	if err != nil {
		return err
	}
	p.warn(out.Warnings)
	if out.Number == 0 {
		return p.show(answer, "it is so already; nothing was published\n")
	}
	text := fmt.Sprintf("rules %s; callers follow within 2 s\n", version(out.Number))
	if !p.json {
		var g innerGray
		if _, err := p.get(ctx, r.path(), &g); err != nil {
			fmt.Fprintln(p.log, "warning: it is done, and the gray could not be read again:", printable(err.Error()))
		} else {
			text += g.String()
		}
	}
	return p.show(answer, printable(text))
}

type innerGrayApproveCmd struct {
	innerPlan
	Digest string `required:"" help:"The digest that the refused start showed."`
	change
}

// Run signs the start.
func (c *innerGrayApproveCmd) Run(ctx context.Context, p *program) error {
	steps := "5,20,50,100"
	if len(c.Steps) > 0 {
		steps = strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Steps), " ", ","), "[]")
	}
	var out rulesCheck
	answer, err := c.send(ctx, p, deed{what: fmt.Sprintf("You agree that %s grows by %s %% of the calls to %s", c.Version, steps, c.Rule), word: c.Rule.service,
		path: c.path() + "/approve", body: c.body(c.Reason, c.Digest)}, &out)
	if err != nil {
		return err
	}
	return p.show(answer, printable(fmt.Sprintf("%s: approved by %s; whoever began it starts it again\n", c.Rule, out.Approved)))
}

type innerGrayStepCmd struct {
	innerRef
	To int `placeholder:"N" help:"One of the steps, in percent, also one below (default: the next)."`
	change
}

// Run takes the step from the share that was seen.
func (c *innerGrayStepCmd) Run(ctx context.Context, p *program) error {
	var seen innerGray
	if _, err := p.get(ctx, c.path(), &seen); err != nil {
		return err
	}
	if p.asks && c.Confirm == "" {
		fmt.Fprint(p.log, printable(seen.String()))
	}
	to := c.To
	if to == 0 {
		to = seen.Next
	}
	what := fmt.Sprintf("%s takes %d %% of the calls to %s instead of %d %%", seen.Version, to, c.Rule, seen.Share)
	return c.grow(ctx, p, c.change, deed{what: what, word: c.Rule.service, path: c.path() + "/step", body: struct {
		Reason  string `json:"reason"`
		Expect  int    `json:"expect"`
		Version string `json:"version"`
		To      int    `json:"to,omitempty"`
	}{c.Reason, seen.Share, seen.Version, c.To}})
}

type innerGrayAbortCmd struct {
	innerRef
	change
}

// Run takes everything back. The server compares what was typed.
func (c *innerGrayAbortCmd) Run(ctx context.Context, p *program) error {
	body := func(typed string) any {
		return struct {
			Reason  string `json:"reason"`
			Confirm string `json:"confirm"`
		}{c.Reason, typed}
	}
	what := fmt.Sprintf("Nobody calls the new version of %s any more", c.Rule)
	if p.asks && c.Confirm == "" {
		var seen innerGray
		if _, err := p.get(ctx, c.path(), &seen); err == nil { // one that cannot be read can be taken back
			p.warn(seen.Back)
			what = fmt.Sprintf("%s, at %d %%, gets no more calls to %s, and %s has what the rule in Git gives it", seen.Version, seen.Share, c.Rule, seen.From)
		}
	}
	var out rulesApplied
	answer, err := c.send(ctx, p, deed{what: what, word: c.Rule.service, path: c.path() + "/abort", confirmed: body,
		preview: func(ctx context.Context, p *program) (string, error) {
			return p.wordOf(ctx, request{method: http.MethodPost, path: c.path() + "/abort", body: body("")})
		}}, &out)
	if err != nil {
		return err
	}
	p.warn(out.Warnings)
	if out.Number == 0 {
		return p.show(answer, "no version grows there; nothing was published\n")
	}
	return p.show(answer, printable(fmt.Sprintf("rules %s: %s as Git has it; callers follow within 2 s\n", version(out.Number), c.Rule)))
}

type innerGrayFinishCmd struct{ innerRef }

// Run prints the file.
func (c *innerGrayFinishCmd) Run(ctx context.Context, p *program) error {
	var g innerGray
	answer, err := p.get(ctx, c.path(), &g)
	if err != nil {
		return err
	}
	if g.Finish == "" {
		return fault.New(fault.Conflict, "not_finished", "%s takes %d %% of the calls to %s, not all", g.Version, g.Share, c.Rule).
			WithHint("dispatchctl gray inner step " + g.name())
	}
	fmt.Fprintln(p.log, printable("put this into Git in place of "+or(g.File, "the rule")+"; the pipeline's rules apply ends the gray, and no call moves"))
	if g.Own != "" {
		fmt.Fprintln(p.log, printable("it drops the fallback "+g.Own+", and keeps "+g.From+" as the one"))
	}
	return p.show(answer, printable(g.Finish))
}
