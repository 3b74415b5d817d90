package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// ruleChange is one change between two sets of rules.
type ruleChange struct {
	Service string `json:"service"`
	Env     string `json:"env"`
	Kind    string `json:"kind"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Key     bool   `json:"key"`
}

// String is the change with what was and what comes each on a line of its own.
func (c ruleChange) String() string {
	mark := map[string]string{"added": "+", "removed": "-"}[c.Kind]
	name := strings.TrimSpace(c.Service + " " + c.Env)
	switch c.Kind {
	case "switch":
		name = "the kill switch"
	case "group":
		name = "group " + c.Service
	case "gray":
		name = "gray " + name
	}
	if c.Key {
		name += "  (key: a second person approves)"
	}
	text := or(mark, "~") + " " + name + "\n"
	if c.Before != "" {
		text += "    - " + c.Before + "\n"
	}
	if c.After != "" {
		text += "    + " + c.After + "\n"
	}
	return text
}

// rulesBody is a folder as the server takes it.
type rulesBody struct {
	Files  []ruleFile `json:"files"`
	Base   uint64     `json:"base,omitempty"`
	Delete bool       `json:"delete,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Digest string     `json:"digest,omitempty"`
}

// rulesCheck is what publishing a folder would do.
type rulesCheck struct {
	Region   string          `json:"region"`
	Base     uint64          `json:"base"`
	Changes  []ruleChange    `json:"changes"`
	Digest   string          `json:"digest"`
	Needs    []string        `json:"needs"`
	Approved string          `json:"approved"`
	Warnings []fault.Problem `json:"warnings"`
}

// changes are all of them for people, and what they take.
func (c rulesCheck) changes(dir string) string {
	if len(c.Changes) == 0 {
		return fmt.Sprintf("no difference to %s of %s\n", version(c.Base), c.Region)
	}
	var b strings.Builder
	removed := 0
	for _, change := range c.Changes {
		b.WriteString(change.String())
		if change.Kind == "removed" || change.Kind == "group" && change.After == "" {
			removed++
		}
	}
	if removed > 0 {
		fmt.Fprintf(&b, "%d would go: that takes rules apply --delete\n", removed)
	}
	b.WriteString(c.approval(dir))
	return b.String()
}

// approval says whose agreement the changes take, and how it is given.
func (c rulesCheck) approval(dir string) string {
	switch {
	case len(c.Needs) == 0:
		return ""
	case c.Approved != "":
		return fmt.Sprintf("%s: approved by %s\n", strings.Join(c.Needs, ", "), c.Approved)
	}
	return fmt.Sprintf("%s: a second person must approve\n  dispatchctl rules approve %s --digest %s --reason REASON\n", strings.Join(c.Needs, ", "), dir, c.Digest)
}

// lint asks what is wrong with files and what they would change. Mistakes are
// printed, one a line, with the file as it is called here.
func (f ruleFiles) lint(ctx context.Context, p *program, base uint64) (rulesCheck, []byte, error) {
	var check rulesCheck
	answer, err := p.ask(ctx, request{method: http.MethodPost, path: "/rules/lint", body: rulesBody{Files: f.files, Base: base, Delete: true}}, &check)
	if err != nil {
		return rulesCheck{}, nil, f.listed(p, err)
	}
	for _, w := range check.Warnings {
		fmt.Fprintln(p.log, "warning:", printable(f.here(w).String()))
	}
	return check, answer, nil
}

// listed prints the mistakes that an error lists, and returns it without them.
func (f ruleFiles) listed(p *program, err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != "invalid_rules" {
		return err
	}
	var text strings.Builder
	for i := range e.Problems {
		e.Problems[i] = f.here(e.Problems[i])
		text.WriteString(e.Problems[i].String() + "\n")
	}
	answer, err := jsonText(map[string]any{"problems": e.Problems})
	if err != nil {
		return err
	}
	if err := p.show(answer, printable(text.String())); err != nil {
		return err
	}
	e.Detail = fmt.Sprintf("%s: %d problems", e.Detail, len(e.Problems))
	if len(e.Problems) == 1 {
		e.Detail = strings.TrimSuffix(e.Detail, "s")
	}
	e.Problems = nil
	return e
}

type rulesLintCmd struct {
	Paths []string `arg:"" name:"dir|file" type:"path" help:"The folder, or files of it; what a file lacks is no mistake."`
}

// Run ends with 1 when there is a mistake.
func (c *rulesLintCmd) Run(ctx context.Context, p *program) error {
	f, err := readRules(c.Paths)
	if err != nil {
		return err
	}
	check, answer, err := f.lint(ctx, p, 0)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d files without mistakes, for %s\n", len(f.files), check.Region)
	if f.whole { // some files of a folder say nothing of the others
		text += fmt.Sprintf("%d changes, on top of %s; dispatchctl rules diff shows them\n", len(check.Changes), version(check.Base)) + check.approval(c.Paths[0])
	}
	return p.show(answer, printable(text))
}

// rulesDir is a folder that holds all rules of a region.
type rulesDir struct {
	Dir string `arg:"" type:"existingdir" help:"The folder that holds all rules of the region, and its groups.yaml."`
}

type rulesDiffCmd struct{ rulesDir }

// Run ends with 2 if something would change.
func (c *rulesDiffCmd) Run(ctx context.Context, p *program) error {
	f, err := readRules([]string{c.Dir})
	if err != nil {
		return err
	}
	check, answer, err := f.lint(ctx, p, 0)
	if err != nil {
		return err
	}
	if err := p.show(answer, printable(check.changes(c.Dir))); err != nil {
		return err
	}
	if len(check.Changes) > 0 {
		return errDifferent
	}
	return nil
}

type rulesApplyCmd struct {
	rulesDir
	Delete bool   `help:"Let rules go that the folder lacks."`
	Base   uint64 `placeholder:"N" help:"The release of rules that you saw; refused if there is a newer one (default: the newest)."`
	change
}

// Run publishes what diff shows, unless another release came between the two. Who
// confirms names the region: the same folder on another region's node is refused.
func (c *rulesApplyCmd) Run(ctx context.Context, p *program) error {
	f, err := readRules([]string{c.Dir})
	if err != nil {
		return err
	}
	check, answer, err := f.lint(ctx, p, c.Base)
	if err != nil {
		return err
	}
	if len(check.Changes) == 0 {
		return p.show(answer, printable(fmt.Sprintf("no difference to %s of %s; nothing was published\n", version(check.Base), check.Region)))
	}
	fmt.Fprint(p.log, printable(check.changes(c.Dir)))
	var out rulesApplied
	answer, err = c.send(ctx, p, deed{what: fmt.Sprintf("All callers of %s follow these rules, on top of %s", check.Region, version(check.Base)),
		word: check.Region, path: "/rules", body: rulesBody{Files: f.files, Base: check.Base, Delete: c.Delete, Reason: c.Reason}}, &out)
	if err != nil {
		return f.listed(p, err)
	}
	return p.showRules(answer, out, check.Region)
}

// rulesApplied is what publishing did.
type rulesApplied struct {
	Number   uint64          `json:"number"`
	Changes  []ruleChange    `json:"changes"`
	Warnings []fault.Problem `json:"warnings"`
}

func (p *program) showRules(answer []byte, out rulesApplied, region string) error {
	p.warn(out.Warnings)
	if out.Number == 0 {
		return p.show(answer, "nothing differs; nothing was published\n")
	}
	return p.show(answer, printable(fmt.Sprintf("rules %s of %s: %d changes; callers follow them within 2 s\n", version(out.Number), region, len(out.Changes))))
}

type rulesApproveCmd struct {
	rulesDir
	Digest string `required:"" help:"What you agree to, as rules diff shows it."`
	Base   uint64 `placeholder:"N" help:"The release of rules that you saw (default: the newest)."`
	Reason string `required:"" help:"Why; people read it in the audit trail."`
	Key    string `placeholder:"KEY" help:"Idempotency-Key, to ask again when an answer was lost (default: a new one)."`
}

// Run signs the changes; the digest is the confirmation.
func (c *rulesApproveCmd) Run(ctx context.Context, p *program) error {
	f, err := readRules([]string{c.Dir})
	if err != nil {
		return err
	}
	var check rulesCheck
	answer, err := p.ask(ctx, request{method: http.MethodPost, path: "/rules/approve", key: change{Key: c.Key}.key(),
		body: rulesBody{Files: f.files, Base: c.Base, Delete: true, Reason: c.Reason, Digest: c.Digest}}, &check)
	if err != nil {
		return f.listed(p, err)
	}
	return p.show(answer, printable(check.changes(c.Dir)+"now somebody else publishes it: dispatchctl rules apply "+c.Dir+"\n"))
}

type rulesSwitchCmd struct {
	To string `arg:"" enum:"direct,rules" help:"direct: callers skip rules, weights and versions, and keep cluster and env equal to their own; rules: they count again."`
	change
}

// switchBody throws the switch or takes it back.
type switchBody struct {
	Direct  bool   `json:"direct"`
	Reason  string `json:"reason"`
	Confirm string `json:"confirm"`
}

// Run switches. The server compares what was typed: the region, with the environment
// before it where the installation has one.
func (c *rulesSwitchCmd) Run(ctx context.Context, p *program) error {
	what := "Rules count again for all callers of the region"
	if c.To == "direct" {
		what = "Rules, weights and versions count for no caller of the region"
	}
	body := func(typed string) any { return switchBody{c.To == "direct", c.Reason, typed} }
	if c.To == "direct" && p.asks && c.Confirm == "" {
		p.warnOfGrays(ctx)
	}
	var out rulesApplied
	answer, err := c.send(ctx, p, deed{what: what, word: "REGION", path: "/rules/switch", confirmed: body,
		preview: func(ctx context.Context, p *program) (string, error) {
			return p.wordOf(ctx, request{method: http.MethodPost, path: "/rules/switch", body: body("")})
		}}, &out)
	if err != nil {
		return err
	}
	p.warn(out.Warnings)
	if out.Number == 0 {
		return p.show(answer, "it is so already; nothing was published\n")
	}
	return p.show(answer, fmt.Sprintf("rules %s: %s; callers follow within 2 s\n", version(out.Number), map[bool]string{true: "direct", false: "by rules"}[c.To == "direct"]))
}

// warnOfGrays says before the kill switch is thrown which versions it lets grow. In an
// emergency nothing waits for it.
func (p *program) warnOfGrays(ctx context.Context) {
	var v struct {
		Grays []innerGray `json:"grays"`
	}
	if _, err := p.get(ctx, "/rules/grays", &v); err != nil {
		return
	}
	for _, g := range v.Grays {
		p.warn([]fault.Problem{{Detail: fmt.Sprintf("%s grows by %s and takes %d %%; while the switch is thrown it takes what its instances are of all", g.Version, g.name(), g.Share),
			Hint: "dispatchctl gray inner abort " + g.name() + " takes it back instead"}})
	}
}

// wordOf is what must be typed: a write that nobody has confirmed is refused with it.
func (p *program) wordOf(ctx context.Context, unconfirmed request) (string, error) {
	_, err := p.ask(ctx, unconfirmed, nil)
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != "confirm_mismatch" {
		return "", err
	}
	data, _ := e.Data.(map[string]any)
	word, _ := data["confirm"].(string)
	return word, nil
}
