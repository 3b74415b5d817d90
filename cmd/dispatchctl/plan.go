package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// difference is one part that two releases differ in.
type difference struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
	From string `json:"from"`
	To   string `json:"to"`
}

// lines are differences, one a line.
func lines(all []difference) string {
	var b strings.Builder
	for _, d := range all {
		switch d.Kind {
		case "added":
			fmt.Fprintf(&b, "+ %s: %s\n", d.Path, d.To)
		case "removed":
			fmt.Fprintf(&b, "- %s: %s\n", d.Path, d.From)
		case "reordered":
			fmt.Fprintf(&b, "~ %s: order %s → %s\n", d.Path, d.From, d.To)
		default:
			fmt.Fprintf(&b, "~ %s: %s → %s\n", d.Path, d.From, d.To)
		}
	}
	return b.String()
}

// preview is what a change would do.
type preview struct {
	Changes []difference `json:"changes"`
	Buckets []struct {
		App     string `json:"app"`
		Policy  string `json:"policy"`
		From    string `json:"from"`
		To      string `json:"to"`
		Buckets int    `json:"buckets"`
		Redrawn bool   `json:"redrawn"`
	} `json:"buckets"`
	Moved  map[string]int `json:"moved"`
	Impact *struct {
		Sampled  uint64 `json:"sampled"`
		Replicas int    `json:"replicas"`
		Of       int    `json:"of"`
		Apps     []struct {
			App     string `json:"app"`
			Sampled uint64 `json:"sampled"`
			Moved   uint64 `json:"moved"`
			Listed  uint64 `json:"listed"`
			Regions []struct {
				Region    string  `json:"region"`
				Before    float64 `json:"before"`
				After     float64 `json:"after"`
				LoadAfter float64 `json:"load_after"`
			} `json:"regions"`
		} `json:"apps"`
	} `json:"impact"`
	Refused *struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
		Hint   string `json:"hint"`
	} `json:"refused"`
}

// String is the differences and whom they move.
func (v preview) String() string {
	text := lines(v.Changes) + v.moves()
	if v.Refused != nil {
		text += fmt.Sprintf("refused as it is: %s (%s)\n", v.Refused.Detail, v.Refused.Code)
		if v.Refused.Hint != "" {
			text += "  try: " + v.Refused.Hint + "\n"
		}
	}
	return text
}

// moves is whom a change moves: by bucket, of made-up requests and of real ones.
func (v preview) moves() string {
	var b strings.Builder
	for _, m := range v.Buckets {
		about := ""
		if m.Redrawn {
			about = "about "
		}
		fmt.Fprintf(&b, "%s/%s: %s%d of 10,000 buckets %s → %s\n", m.App, m.Policy, about, m.Buckets, or(m.From, "the next policy"), or(m.To, "the next policy"))
	}
	if v.Impact == nil || v.Impact.Sampled == 0 {
		for app, moved := range v.Moved {
			fmt.Fprintf(&b, "%s: %d of 10,000 made-up requests would move; there is no real traffic to try it on\n", app, moved)
		}
		return b.String()
	}
	for _, a := range v.Impact.Apps {
		if a.Sampled == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s: %.2f %% of %d recent requests would move, %d of them with an id in a list\n", a.App, 100*float64(a.Moved)/float64(a.Sampled), a.Sampled, a.Listed)
		for _, r := range a.Regions {
			load := ""
			if r.LoadAfter >= 0 {
				load = fmt.Sprintf(", %.0f %% of its capacity", 100*r.LoadAfter)
			}
			fmt.Fprintf(&b, "  %s: %.1f %% → %.1f %%%s\n", or(r.Region, "fallback"), 100*r.Before, 100*r.After, load)
		}
	}
	return b.String()
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// source is a document in a working copy.
type source struct {
	Path         string `arg:"" type:"path" help:"The document, or the folder that holds it as dispatch.yaml."`
	ReleaseHolds bool   `help:"Let the document undo what was changed by hand, such as last night's swap."`
	AllowEmpty   bool   `help:"Let an app lose all its policies, or a list all its ids."`
	BigMove      bool   `name:"approve-big-move" help:"Let more than a tenth of an app's users move; with four eyes a second person has to agree."`
	Removed      bool   `name:"approve-region-removed" help:"Let a region go; the same."`
}

// read is the document and where its tables lie.
func (s *source) read() (document []byte, tables map[string]string, err error) {
	if info, err := os.Stat(s.Path); err == nil && info.IsDir() {
		s.Path = filepath.Join(s.Path, "dispatch.yaml")
	}
	if document, err = os.ReadFile(s.Path); err != nil {
		return nil, nil, usageError{fmt.Errorf("read document: %w", err)}
	}
	var named struct {
		Tables []struct {
			Key    string `yaml:"key"`
			File   string `yaml:"file"`
			Digest string `yaml:"digest"`
		} `yaml:"tables"`
	}
	// What else is wrong with the document the server says better.
	_ = yaml.Unmarshal(document, &named)
	tables = map[string]string{}
	for _, t := range named.Tables {
		if t.Digest == "" && t.File != "" {
			tables[t.Key] = filepath.Join(filepath.Dir(s.Path), t.File)
		}
	}
	return document, tables, nil
}

// upload brings the tables of a document to the server, which changes no answer.
func (p *program) upload(ctx context.Context, tables map[string]string, c change) (map[string]string, error) {
	digests := map[string]string{}
	for key, path := range tables {
		file, err := os.Open(path)
		if err != nil {
			return nil, usageError{fmt.Errorf("read table %s: %w", key, err)}
		}
		var v struct {
			Digest string `json:"digest"`
		}
		_, err = p.ask(ctx, request{method: http.MethodPost, path: "/tables/" + url.PathEscape(key) + "?" + url.Values{"reason": {c.Reason}}.Encode(),
			key: c.key(), stream: file, streamType: "text/csv"}, &v)
		_ = file.Close() // it was only read
		if err != nil {
			return nil, err
		}
		digests[key] = v.Digest
	}
	return digests, nil
}

// planned is a document against the newest release.
type planned struct {
	base     uint64
	document []byte
	tables   map[string]string
	preview  preview
	answer   []byte
}

// plan asks what the document would change.
func (s *source) plan(ctx context.Context, p *program, reason string) (planned, error) {
	document, files, err := s.read()
	if err != nil {
		return planned{}, err
	}
	var head struct {
		Releases []struct {
			Number uint64 `json:"number"`
		} `json:"releases"`
	}
	if _, err := p.get(ctx, "/releases?limit=1", &head); err != nil {
		return planned{}, err
	}
	plan := planned{document: document}
	if len(head.Releases) > 0 {
		plan.base = head.Releases[0].Number
	}
	if plan.tables, err = p.upload(ctx, files, change{Reason: reason}); err != nil {
		return planned{}, err
	}
	var out struct {
		Preview  preview `json:"preview"`
		Warnings []struct {
			Path   string `json:"path"`
			Detail string `json:"detail"`
		} `json:"warnings"`
	}
	plan.answer, err = p.ask(ctx, s.publication(plan, reason, true, change{}), &out)
	for _, w := range out.Warnings {
		fmt.Fprintln(p.log, "warning:", printable(w.Path+": "+w.Detail))
	}
	plan.preview = out.Preview
	return plan, err
}

// publication is the request that publishes the plan, or asks what that would do.
func (s *source) publication(plan planned, reason string, dry bool, c change) request {
	query := url.Values{"file": {filepath.Base(s.Path)}, "reason": {reason}}
	for name, on := range map[string]bool{"dry_run": dry, "release_holds": s.ReleaseHolds, "allow_empty": s.AllowEmpty,
		"approve_big_move": s.BigMove, "approve_region_removed": s.Removed} {
		if on {
			query.Set(name, "true")
		}
	}
	var tables []string
	for key, digest := range plan.tables {
		tables = append(tables, key+"="+digest)
	}
	if len(tables) > 0 {
		query.Set("tables", strings.Join(tables, ","))
	}
	return request{method: http.MethodPost, path: "/releases?" + query.Encode(), key: c.key(), ifMatch: strconv.FormatUint(plan.base, 10),
		stream: strings.NewReader(string(plan.document)), streamType: "application/yaml"}
}

type planCmd struct {
	source
}

// Run ends with 2 if something would change.
func (c *planCmd) Run(ctx context.Context, p *program) error {
	plan, err := c.plan(ctx, p, "plan")
	if err != nil {
		return err
	}
	text := plan.preview.String()
	if len(plan.preview.Changes) == 0 {
		text = fmt.Sprintf("no difference to %s\n", version(plan.base))
	}
	if err := p.show(plan.answer, printable(text)); err != nil {
		return err
	}
	if len(plan.preview.Changes) > 0 {
		return errDifferent
	}
	return nil
}

type applyCmd struct {
	source
	Draft string `placeholder:"TITLE" help:"Make a draft with this title and ask for a second person, instead of publishing."`
	change
}

// Run publishes what plan shows, unless another release came between the two.
func (c *applyCmd) Run(ctx context.Context, p *program) error {
	plan, err := c.plan(ctx, p, c.Reason)
	if err != nil {
		return err
	}
	if len(plan.preview.Changes) == 0 {
		return p.show(plan.answer, fmt.Sprintf("no difference to %s; nothing was published\n", version(plan.base)))
	}
	fmt.Fprint(p.log, printable(plan.preview.String()))
	if c.Draft != "" {
		return c.draft(ctx, p, plan)
	}
	if _, err := c.typed(ctx, p, deed{what: fmt.Sprintf("%s on top of %s", filepath.Base(c.Path), version(plan.base)), word: "apply"}); err != nil {
		return err
	}
	var out outcome
	answer, err := p.ask(ctx, c.publication(plan, c.Reason, false, c.change), &out)
	if err != nil {
		return err
	}
	return p.showOutcome(answer, out, "")
}

// draft makes a draft of the plan and submits it.
func (c *applyCmd) draft(ctx context.Context, p *program, plan planned) error {
	body := struct {
		Reason       string            `json:"reason"`
		Title        string            `json:"title"`
		Document     string            `json:"document"`
		Base         uint64            `json:"base"`
		Tables       map[string]string `json:"tables,omitempty"`
		ReleaseHolds bool              `json:"release_holds,omitempty"`
		AllowEmpty   bool              `json:"allow_empty,omitempty"`
	}{c.Reason, c.Draft, string(plan.document), plan.base, plan.tables, c.ReleaseHolds, c.AllowEmpty}
	var made draft
	if _, err := c.send(ctx, p, deed{what: "A draft of " + filepath.Base(c.Path) + " waits for a second person", word: "apply", path: "/drafts", body: body}, &made); err != nil {
		return err
	}
	answer, err := p.ask(ctx, request{method: http.MethodPost, path: "/drafts/" + url.PathEscape(made.ID) + "/submit", key: change{}.key(), body: reasoned{c.Reason}}, &made)
	if err != nil {
		return err
	}
	return p.show(answer, printable(made.String()))
}

type diffCmd struct {
	A uint64 `arg:"" help:"From this release; 0 is empty."`
	B uint64 `arg:"" help:"To this one."`
}

// Run prints the differences.
func (c *diffCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Changes []difference `json:"changes"`
	}
	answer, err := p.get(ctx, fmt.Sprintf("/releases/%d/diff/%d", c.A, c.B), &v)
	if err != nil {
		return err
	}
	text := lines(v.Changes)
	if text == "" {
		text = fmt.Sprintf("%s and %s say the same\n", version(c.A), version(c.B))
	}
	return p.show(answer, printable(text))
}
