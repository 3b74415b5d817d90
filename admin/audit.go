package admin

import (
	"context"

	"dispatch.example/dispatch/ledger"
)

type auditInput struct {
	Actor   string `query:"actor"`
	Action  string `query:"action"`
	Target  string `query:"target"`
	Release uint64 `query:"release"`
	Before  uint64 `query:"before" doc:"only rows below this sequence number: the next page"`
	Limit   int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
}

type auditOutput struct {
	Body struct {
		Rows []ledger.AuditEntry `json:"rows"`
	}
}

func (a *API) audit(ctx context.Context, in *auditInput) (*auditOutput, error) {
	rows, err := a.do.Audit(ctx, ledger.AuditFilter{Actor: in.Actor, Action: in.Action, Target: in.Target,
		Release: in.Release, Before: in.Before, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	out := &auditOutput{}
	out.Body.Rows = rows
	return out, nil
}

type verifyAuditOutput struct {
	Body struct {
		Rows uint64 `json:"rows" doc:"how many rows the chain has; all are whole, or the answer is 409 audit_broken"`
		Head string `json:"head" doc:"hash of the newest row; keep it elsewhere to notice a cut tail"`
	}
}

func (a *API) verifyAudit(ctx context.Context, _ *struct{}) (*verifyAuditOutput, error) {
	head, err := a.do.VerifyAudit(ctx)
	if err != nil {
		return nil, err
	}
	out := &verifyAuditOutput{}
	out.Body.Rows, out.Body.Head = head.Seq, head.Hash.String()
	return out, nil
}
