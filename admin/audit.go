package admin

import (
	"context"
	"encoding/hex"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
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

type verifyAuditInput struct {
	Rows uint64 `query:"rows" doc:"with head: what an earlier verification answered; a row up to there that was changed or cut is named"`
	Head string `query:"head" doc:"with rows"`
}

type verifyAuditOutput struct {
	Body struct {
		Rows uint64 `json:"rows" doc:"how many rows the chain has; all are whole, or the answer is 409 audit_broken"`
		Head string `json:"head" doc:"hash of the newest row; keep it elsewhere to notice a cut tail"`
	}
}

func (a *API) verifyAudit(ctx context.Context, in *verifyAuditInput) (*verifyAuditOutput, error) {
	var known []ledger.AuditHead
	if in.Rows > 0 || in.Head != "" {
		raw, err := hex.DecodeString(in.Head)
		if err != nil || len(raw) != len(release.Digest{}) || in.Rows == 0 {
			return nil, fault.New(fault.Invalid, "bad_head", "rows and head must be what an earlier verification answered")
		}
		known = append(known, ledger.AuditHead{Seq: in.Rows, Hash: release.Digest(raw)})
	}
	head, err := a.do.VerifyAudit(ctx, known...)
	if err != nil {
		return nil, err
	}
	out := &verifyAuditOutput{}
	out.Body.Rows, out.Body.Head = head.Seq, head.Hash.String()
	return out, nil
}
