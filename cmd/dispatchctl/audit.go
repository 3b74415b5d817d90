package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
)

type auditCmd struct {
	Verify auditVerifyCmd `cmd:"" help:"Check the chain of the audit trail; a row that somebody changed is named."`
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
