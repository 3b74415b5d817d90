package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

type auditCmd struct {
	List   auditListCmd   `cmd:"" default:"withargs" help:"Rows, newest first."`
	Export auditExportCmd `cmd:"" help:"Rows as CSV, safe to open in a spreadsheet, or as JSON, one a line."`
	Verify auditVerifyCmd `cmd:"" help:"Check the chain of the audit trail; a row that somebody changed is named."`
}

// auditFilter chooses rows.
type auditFilter struct {
	Actor   string `help:"By this login or token."`
	Action  string `help:"Of this action."`
	Target  string `help:"On this object."`
	Release uint64 `help:"Of this release."`
	Since   string `placeholder:"TIME" help:"From this time on: 2027-01-01T00:00:00Z."`
	Until   string `placeholder:"TIME" help:"Before this time."`
}

func (f auditFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"actor": f.Actor, "action": f.Action, "target": f.Target, "since": f.Since, "until": f.Until} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Release > 0 {
		q.Set("release", strconv.FormatUint(f.Release, 10))
	}
	return q
}

type auditListCmd struct {
	auditFilter
	Limit int `default:"50" help:"How many."`
}

// Run prints a page.
func (c *auditListCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Rows []struct {
			Seq     uint64    `json:"seq"`
			At      time.Time `json:"at"`
			Actor   string    `json:"actor"`
			Action  string    `json:"action"`
			Target  string    `json:"target"`
			Reason  string    `json:"reason"`
			Release uint64    `json:"release"`
		} `json:"rows"`
	}
	q := c.query()
	q.Set("limit", strconv.Itoa(c.Limit))
	answer, err := p.get(ctx, "/audit?"+q.Encode(), &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"ROW", "AT", "BY", "ACTION", "ON", "RELEASE", "REASON"}}
	for _, r := range v.Rows {
		number := ""
		if r.Release > 0 {
			number = version(r.Release)
		}
		rows = append(rows, []string{strconv.FormatUint(r.Seq, 10), moment(r.At), r.Actor, r.Action, r.Target, number, r.Reason})
	}
	return p.showRows(answer, rows, "no such rows")
}

type auditExportCmd struct {
	auditFilter
	Format string `enum:"csv,json" default:"csv" help:"csv or json."`
}

// Run copies the rows to standard output; that is a row of its own.
func (c *auditExportCmd) Run(ctx context.Context, p *program) error {
	q := c.query()
	q.Set("format", c.Format)
	return p.download(ctx, "/audit/export?"+q.Encode(), p.out)
}

type auditVerifyCmd struct {
	Rows uint64 `and:"kept" help:"With --head: what an earlier verification printed. Only that shows a tail that was cut."`
	Head string `and:"kept" placeholder:"HASH" help:"With --rows."`
}

// Run ends with 1 if the chain is broken: the server answers that as a refusal.
func (c *auditVerifyCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Rows uint64 `json:"rows"`
		Head string `json:"head"`
	}
	query := ""
	if c.Head != "" {
		query = "?" + url.Values{"rows": {strconv.FormatUint(c.Rows, 10)}, "head": {c.Head}}.Encode()
	}
	answer, err := p.get(ctx, "/audit/verify"+query, &v)
	if err != nil {
		return err
	}
	return p.show(answer, printable(fmt.Sprintf("%d rows, each as it was written\nkeep elsewhere: --rows %d --head %s\n", v.Rows, v.Rows, v.Head)))
}
