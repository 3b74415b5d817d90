package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"
)

type draftCmd struct {
	List       draftListCmd       `cmd:"" default:"withargs" help:"Drafts, the last changed first."`
	Show       draftShowCmd       `cmd:"" help:"One draft: what it changes, what is wrong with it, who agreed."`
	Approve    draftApproveCmd    `cmd:"" help:"Agree to a draft that somebody else wrote, exactly as you saw it."`
	Reject     draftRejectCmd     `cmd:"" help:"Send a draft back, with the reason."`
	Withdraw   draftWithdrawCmd   `cmd:"" help:"Give a draft up."`
	Schedule   draftScheduleCmd   `cmd:"" help:"Publish a draft by itself at a time."`
	Unschedule draftUnscheduleCmd `cmd:"" help:"Take the time from a draft."`
	Publish    draftPublishCmd    `cmd:"" help:"Publish a draft."`
}

// draft is a draft as the server shows it.
type draft struct {
	ID        string       `json:"id"`
	State     string       `json:"state"`
	Title     string       `json:"title"`
	Reason    string       `json:"reason"`
	Authors   []string     `json:"authors"`
	Base      uint64       `json:"base"`
	Digest    string       `json:"digest"`
	Changed   time.Time    `json:"changed"`
	Due       time.Time    `json:"due"`
	Zone      string       `json:"zone"`
	Why       string       `json:"why"`
	Release   uint64       `json:"release"`
	Stale     bool         `json:"stale"`
	Conflicts []string     `json:"conflicts"`
	Preview   *preview     `json:"preview"`
	Problems  []problem    `json:"problems"`
	Since     []difference `json:"since"`
	Approvals []struct {
		Approver string    `json:"approver"`
		At       time.Time `json:"at"`
	} `json:"approvals"`
}

type problem struct {
	Line   int    `json:"line"`
	Path   string `json:"path"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

// String is everything that a second person wants to know.
func (d draft) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "draft    %s: %s\nstate    %s\nby       %s, %s\nreason   %s\nbase     %s\ndigest   %s\n", d.ID, d.Title, d.State,
		strings.Join(d.Authors, ", "), moment(d.Changed), d.Reason, version(d.Base), d.Digest)
	if !d.Due.IsZero() {
		fmt.Fprintf(&b, "due      %s (%s)\n", moment(d.Due), d.Zone)
	}
	if d.Why != "" {
		fmt.Fprintf(&b, "why      %s\n", d.Why)
	}
	if d.Release > 0 {
		fmt.Fprintf(&b, "release  %s\n", version(d.Release))
	}
	for _, a := range d.Approvals {
		fmt.Fprintf(&b, "agreed   %s, %s\n", a.Approver, moment(a.At))
	}
	for _, p := range d.Problems {
		fmt.Fprintf(&b, "problem  line %d, %s: %s\n", p.Line, p.Path, p.Detail)
	}
	if d.Stale {
		b.WriteString("others changed since the base:\n" + lines(d.Since))
	}
	for _, c := range d.Conflicts {
		fmt.Fprintf(&b, "both changed %s\n", c)
	}
	if d.Preview != nil {
		b.WriteString(d.Preview.String())
	}
	return b.String()
}

type draftListCmd struct {
	State string `placeholder:"STATE" help:"Only drafts in this state: draft, submitted, scheduled, suspended, published, withdrawn, rejected or superseded."`
}

// Run prints a line for each draft.
func (c *draftListCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Drafts []draft `json:"drafts"`
	}
	query := ""
	if c.State != "" {
		query = "?" + url.Values{"state": {c.State}}.Encode()
	}
	answer, err := p.get(ctx, "/drafts"+query, &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"DRAFT", "STATE", "BASE", "CHANGED", "BY", "TITLE"}}
	for _, d := range v.Drafts {
		rows = append(rows, []string{d.ID, d.State, version(d.Base), moment(d.Changed), strings.Join(d.Authors, ","), d.Title})
	}
	return p.showRows(answer, rows, "no drafts; dispatchctl apply --draft makes one")
}

// draftRef names a draft.
type draftRef struct {
	ID string `arg:"" help:"Of a draft; dispatchctl draft lists them."`
}

func (r draftRef) path(verb string) string { return "/drafts/" + url.PathEscape(r.ID) + verb }

type draftShowCmd struct{ draftRef }

// Run prints the draft.
func (c *draftShowCmd) Run(ctx context.Context, p *program) error {
	var d draft
	answer, err := p.get(ctx, c.path(""), &d)
	if err != nil {
		return err
	}
	return p.show(answer, printable(d.String()))
}

// sign shows the draft, and does to exactly what was shown what the deed's path says.
// Its body, if any, is a time.
func (r draftRef) sign(ctx context.Context, p *program, c change, d deed) error {
	var seen, after draft
	if _, err := p.get(ctx, r.path(""), &seen); err != nil {
		return err
	}
	if p.asks && c.Confirm == "" {
		fmt.Fprint(p.log, printable(seen.String()))
	}
	body := map[string]string{"reason": c.Reason, "digest": seen.Digest}
	if at, ok := d.body.(string); ok {
		body["at"] = at
	}
	answer, err := c.send(ctx, p, deed{what: d.what + ": " + seen.Title, word: r.ID, path: r.path(d.path), body: body}, &after)
	if err != nil {
		return err
	}
	return p.show(answer, printable(after.String()))
}

// move does a verb that needs no look.
func (r draftRef) move(ctx context.Context, p *program, c change, verb, what string) error {
	var after draft
	answer, err := c.send(ctx, p, deed{what: what, word: r.ID, path: r.path(verb), body: reasoned{c.Reason}}, &after)
	if err != nil {
		return err
	}
	return p.show(answer, printable(after.String()))
}

type draftApproveCmd struct {
	draftRef
	change
}

// Run signs the draft.
func (c *draftApproveCmd) Run(ctx context.Context, p *program) error {
	return c.sign(ctx, p, c.change, deed{path: "/approve", what: "You agree to this draft"})
}

type draftRejectCmd struct {
	draftRef
	change
}

// Run sends the draft back.
func (c *draftRejectCmd) Run(ctx context.Context, p *program) error {
	return c.move(ctx, p, c.change, "/reject", "The draft goes back to its author")
}

type draftWithdrawCmd struct {
	draftRef
	change
}

// Run gives the draft up.
func (c *draftWithdrawCmd) Run(ctx context.Context, p *program) error {
	return c.move(ctx, p, c.change, "/withdraw", "The draft is given up")
}

type draftUnscheduleCmd struct {
	draftRef
	change
}

// Run takes the time away.
func (c *draftUnscheduleCmd) Run(ctx context.Context, p *program) error {
	return c.move(ctx, p, c.change, "/unschedule", "The draft is not published by itself")
}

type draftScheduleCmd struct {
	draftRef
	At string `required:"" placeholder:"TIME" help:"Local time and its zone: 2027-02-05T02:30 Asia/Shanghai."`
	change
}

// Run gives the draft a time.
func (c *draftScheduleCmd) Run(ctx context.Context, p *program) error {
	return c.sign(ctx, p, c.change, deed{path: "/schedule", what: "The draft is published at " + c.At, body: c.At})
}

type draftPublishCmd struct {
	draftRef
	change
}

// Run publishes the draft as it is now.
func (c *draftPublishCmd) Run(ctx context.Context, p *program) error {
	var seen draft
	if _, err := p.get(ctx, c.path(""), &seen); err != nil {
		return err
	}
	if p.asks && c.Confirm == "" {
		fmt.Fprint(p.log, printable(seen.String()))
	}
	return c.do(ctx, p, deed{what: "This draft is published: " + seen.Title, word: c.ID, path: c.path("/publish"),
		body: map[string]string{"reason": c.Reason, "digest": seen.Digest}})
}

type pendingCmd struct{}

// Run prints what waits for a second person, the oldest first.
func (*pendingCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Pending []struct {
			Kind   string    `json:"kind"`
			ID     string    `json:"id"`
			Title  string    `json:"title"`
			Author string    `json:"author"`
			Since  time.Time `json:"since"`
		} `json:"pending"`
	}
	answer, err := p.get(ctx, "/pending", &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"KIND", "ID", "SINCE", "BY", "WHAT"}}
	for _, w := range v.Pending {
		rows = append(rows, []string{w.Kind, w.ID, moment(w.Since), w.Author, w.Title})
	}
	return p.showRows(answer, rows, "nothing waits for a second person")
}
