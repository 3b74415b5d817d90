package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

type listCmd struct {
	List     listListCmd     `cmd:"" default:"withargs" help:"Lists, their sizes and who answers for them."`
	Contains listContainsCmd `cmd:"" help:"Whether a list holds an id."`
	Import   listImportCmd   `cmd:"" help:"Replace the ids of a list by those of a file."`
	Patch    listPatchCmd    `cmd:"" help:"Add and remove a few ids."`
	Export   listExportCmd   `cmd:"" help:"The ids of a list, one a line."`
	Waiting  listWaitingCmd  `cmd:"" help:"Content that waits for a second person."`
	Approve  listApproveCmd  `cmd:"" help:"Agree to content that somebody else brought; it is used at once."`
	Withdraw listWithdrawCmd `cmd:"" help:"Give waiting content up, or turn it down."`
}

// listRef names a list.
type listRef struct {
	List string `arg:"" help:"Key of a list."`
}

func (r listRef) path(more string) string { return "/lists/" + url.PathEscape(r.List) + more }

type listListCmd struct{}

// Run prints a line for each list.
func (*listListCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Lists []struct {
			Key     string `json:"key"`
			Of      string `json:"of"`
			Owner   string `json:"owner"`
			Expires string `json:"expires"`
			Expiry  string `json:"expiry"`
			Count   int    `json:"count"`
			UsedBy  []struct {
				App    string `json:"app"`
				Policy string `json:"policy"`
			} `json:"used_by"`
		} `json:"lists"`
	}
	answer, err := p.get(ctx, "/lists", &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"LIST", "OF", "IDS", "OWNER", "EXPIRES", "USED BY"}}
	for _, l := range v.Lists {
		var uses []string
		for _, u := range l.UsedBy {
			uses = append(uses, u.App+"/"+u.Policy)
		}
		expires := l.Expires
		if l.Expiry == "soon" || l.Expiry == "past" {
			expires += " (" + l.Expiry + ")"
		}
		rows = append(rows, []string{l.Key, l.Of, strconv.Itoa(l.Count), l.Owner, expires, strings.Join(uses, ", ")})
	}
	return p.showRows(answer, rows, "no lists; a document names the first")
}

type listContainsCmd struct {
	listRef
	ID string `arg:"" help:"The id, as an app sends it."`
}

// Run says whether the id is in the list; the look-up is written down.
func (c *listContainsCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Contains bool   `json:"contains"`
		Absent   string `json:"absent"`
	}
	answer, err := p.get(ctx, c.path("/contains?"+url.Values{"id": {c.ID}}.Encode()), &v)
	if err != nil {
		return err
	}
	text := "no\n"
	if v.Contains {
		text = "yes\n"
	}
	if v.Absent != "" {
		text = "no: that counts as no id, " + v.Absent + "\n"
	}
	return p.show(answer, printable(text))
}

type listImportCmd struct {
	listRef
	File       string `arg:"" help:"One id a line, or CSV with a header; - is standard input."`
	Format     string `enum:"lines,csv," default:"" help:"How the ids are written: lines or csv (default: found out)."`
	Column     string `help:"Of a CSV: the column with the ids (default id)."`
	MaxBad     int    `help:"Bad lines that are left out instead of refusing the import."`
	AllowEmpty bool   `help:"Let an import without ids empty the list."`
	DryRun     bool   `help:"Say what it would do, and change nothing."`
	change
}

// imported is what an import did, or would do.
type imported struct {
	outcome
	Report struct {
		Lines   int       `json:"lines"`
		IDs     int       `json:"ids"`
		Bad     int       `json:"bad"`
		Added   int       `json:"added"`
		Removed int       `json:"removed"`
		Problem []problem `json:"problems"`
	} `json:"report"`
	Confirm string `json:"confirm"`
	Needs   []struct {
		Detail string `json:"detail"`
	} `json:"needs"`
}

// String is the report.
func (i imported) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d lines, %d ids: +%d −%d\n", i.Report.Lines, i.Report.IDs, i.Report.Added, i.Report.Removed)
	if i.Report.Bad > 0 {
		fmt.Fprintf(&b, "%d lines are no ids and were left out\n", i.Report.Bad)
	}
	for _, p := range i.Report.Problem {
		fmt.Fprintf(&b, "  line %d: %s\n", p.Line, p.Detail)
	}
	for _, n := range i.Needs {
		fmt.Fprintf(&b, "a second person has to agree: %s\n", n.Detail)
	}
	return b.String()
}

// Run looks first and asks then. Standard input can be read once only, so it needs --confirm.
func (c *listImportCmd) Run(ctx context.Context, p *program) error {
	if c.File == "-" && c.Confirm == "" && !c.DryRun {
		return usageError{fmt.Errorf("what comes on standard input can be read once\ntry: --confirm %s, or a file", c.List)}
	}
	if c.DryRun || c.Confirm == "" {
		var would imported
		answer, err := c.send(ctx, p, true, "", &would)
		if err != nil {
			return err
		}
		if c.DryRun {
			return p.show(answer, printable(would.String()))
		}
		fmt.Fprint(p.log, printable(would.String()))
	}
	typed, err := c.typed(ctx, p, deed{what: "The ids of list " + c.List + " are those of " + c.File, word: c.List})
	if err != nil {
		return err
	}
	var did imported
	answer, err := c.send(ctx, p, false, typed, &did)
	if err != nil {
		return err
	}
	return p.showOutcome(answer, did.outcome, printable(did.String()))
}

// send streams the file.
func (c *listImportCmd) send(ctx context.Context, p *program, dry bool, typed string, v *imported) ([]byte, error) {
	body, size := p.in, int64(0)
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return nil, usageError{fmt.Errorf("read ids: %w", err)}
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil {
			size = info.Size()
		}
		body = file
	}
	query := url.Values{"reason": {c.Reason}}
	for name, value := range map[string]string{"format": c.Format, "column": c.Column, "confirm": typed} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if c.MaxBad > 0 {
		query.Set("max_bad", strconv.Itoa(c.MaxBad))
	}
	for name, on := range map[string]bool{"dry_run": dry, "allow_empty": c.AllowEmpty} {
		if on {
			query.Set(name, "true")
		}
	}
	kind := "text/plain"
	if c.Format == "csv" || c.Format == "" && strings.HasSuffix(c.File, ".csv") {
		kind = "text/csv"
	}
	return p.ask(ctx, request{method: http.MethodPost, path: c.path("/import?" + query.Encode()), key: c.key(),
		stream: &progress{Reader: body, of: size, to: p.log, shows: p.asks, began: time.Now()}, streamType: kind}, v)
}

// progress says on the way how much of a stream was sent.
type progress struct {
	io.Reader
	of, sent    int64
	to          io.Writer
	shows       bool
	began, said time.Time
}

// Read reads on and says so, at most twice a second and at the end.
func (r *progress) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.sent += int64(n)
	if now := time.Now(); r.shows && (now.Sub(r.said) > 500*time.Millisecond || err == io.EOF) {
		r.said = now
		part := ""
		if r.of > 0 {
			part = fmt.Sprintf(" of %d MB (%d %%)", r.of>>20, 100*r.sent/r.of)
		}
		fmt.Fprintf(r.to, "\rsent %d MB%s, %.1f s", r.sent>>20, part, now.Sub(r.began).Seconds())
		if err == io.EOF {
			fmt.Fprintln(r.to)
		}
	}
	return n, err
}

type listPatchCmd struct {
	listRef
	Add    []string `placeholder:"ID" help:"Ids to add."`
	Remove []string `placeholder:"ID" help:"Ids to remove."`
	DryRun bool     `help:"Say what it would do, and change nothing."`
	change
}

// Run adds and removes.
func (c *listPatchCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		outcome
		Added   int `json:"added"`
		Removed int `json:"removed"`
		Already int `json:"already"`
		Unknown int `json:"unknown"`
	}
	body := func(typed string) any {
		return map[string]any{"reason": c.Reason, "add": c.Add, "remove": c.Remove, "dry_run": c.DryRun, "confirm": typed}
	}
	typed := ""
	if !c.DryRun {
		var err error
		if typed, err = c.typed(ctx, p, deed{what: fmt.Sprintf("List %s: +%d −%d", c.List, len(c.Add), len(c.Remove)), word: c.List}); err != nil {
			return err
		}
	}
	answer, err := p.ask(ctx, request{method: http.MethodPatch, path: c.path(""), key: c.key(), body: body(typed)}, &v)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("+%d −%d, %d were there, %d were not\n", v.Added, v.Removed, v.Already, v.Unknown)
	if c.DryRun || v.Release == 0 {
		return p.show(answer, text)
	}
	return p.showOutcome(answer, v.outcome, text)
}

type listExportCmd struct {
	listRef
	Format string `enum:"lines,csv" default:"lines" help:"lines or csv."`
}

// Run copies the ids to standard output; that is written down.
func (c *listExportCmd) Run(ctx context.Context, p *program) error {
	return p.download(ctx, c.path("/export?format="+c.Format), p.out)
}

type listWaitingCmd struct{ listRef }

// waiting is content that waits.
type waiting struct {
	ID      string    `json:"id"`
	State   string    `json:"state"`
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	Digest  string    `json:"digest"`
	Count   int       `json:"count"`
	Added   int       `json:"added"`
	Removed int       `json:"removed"`
	Created time.Time `json:"created"`
	Confirm string    `json:"confirm"`
}

func (r listRef) waiting(ctx context.Context, p *program) (answer []byte, all []waiting, err error) {
	var v struct {
		Imports []waiting `json:"imports"`
	}
	answer, err = p.get(ctx, r.path("/imports"), &v)
	return answer, v.Imports, err
}

// Run prints a line for each.
func (c *listWaitingCmd) Run(ctx context.Context, p *program) error {
	answer, all, err := c.waiting(ctx, p)
	if err != nil {
		return err
	}
	rows := [][]string{{"IMPORT", "STATE", "SINCE", "BY", "IDS", "CHANGE", "REASON"}}
	for _, w := range all {
		rows = append(rows, []string{w.ID, w.State, moment(w.Created), w.By, strconv.Itoa(w.Count), fmt.Sprintf("+%d −%d", w.Added, w.Removed), w.Reason})
	}
	return p.showRows(answer, rows, "nothing waits")
}

// one is the waiting content with the id.
func (r listRef) one(ctx context.Context, p *program, id string) (waiting, error) {
	_, all, err := r.waiting(ctx, p)
	if err != nil {
		return waiting{}, err
	}
	for _, w := range all {
		if w.ID == id {
			return w, nil
		}
	}
	return waiting{}, usageError{fmt.Errorf("list %s has no import %s\ntry: dispatchctl list waiting %s", r.List, id, r.List)}
}

type listApproveCmd struct {
	listRef
	ID string `arg:"" help:"Of the import."`
	change
}

// Run signs exactly what is shown.
func (c *listApproveCmd) Run(ctx context.Context, p *program) error {
	w, err := c.one(ctx, p, c.ID)
	if err != nil {
		return err
	}
	return c.do(ctx, p, deed{what: fmt.Sprintf("List %s: +%d −%d, brought by %s", c.List, w.Added, w.Removed, w.By), word: or(w.Confirm, c.List), path: c.path("/approve"),
		confirmed: func(typed string) any {
			return map[string]string{"reason": c.Reason, "digest": w.Digest, "confirm": typed}
		}})
}

type listWithdrawCmd struct {
	listRef
	ID string `arg:"" help:"Of the import."`
	change
}

// Run gives the content up.
func (c *listWithdrawCmd) Run(ctx context.Context, p *program) error {
	_, err := c.send(ctx, p, deed{what: "The content is given up", word: c.ID, path: c.path("/imports/" + url.PathEscape(c.ID) + "/withdraw"), body: reasoned{c.Reason}}, nil)
	if err != nil {
		return err
	}
	return p.show([]byte("{}"), "given up\n")
}
