package admin

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// AuditQuery chooses rows of the audit trail.
type AuditQuery struct {
	Actor   string    `query:"actor"`
	Action  string    `query:"action"`
	Target  string    `query:"target"`
	Release uint64    `query:"release"`
	Since   time.Time `query:"since" doc:"from this time on"`
	Until   time.Time `query:"until" doc:"before this time"`
}

func (q AuditQuery) filter() ledger.AuditFilter {
	return ledger.AuditFilter{Actor: q.Actor, Action: q.Action, Target: q.Target, Release: q.Release, Since: q.Since, Until: q.Until}
}

type auditInput struct {
	AuditQuery
	Before uint64 `query:"before" doc:"only rows below this sequence number: the next page"`
	Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
}

type auditOutput struct {
	Body struct {
		Rows []ledger.AuditEntry `json:"rows"`
	}
}

func (a *API) audit(ctx context.Context, in *auditInput) (*auditOutput, error) {
	f := in.filter()
	f.Before, f.Limit = in.Before, in.Limit
	rows, err := a.do.Audit(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &auditOutput{}
	out.Body.Rows = rows
	return out, nil
}

type exportAuditInput struct {
	AuditQuery
	Format string `query:"format" enum:"csv,json" default:"csv" doc:"csv: safe to open in a spreadsheet; json: one row a line"`
	Limit  int    `query:"limit" minimum:"0" doc:"the newest so many; all if absent"`
}

func (a *API) exportAudit(ctx context.Context, in *exportAuditInput) (*huma.StreamResponse, error) {
	f := in.filter()
	f.Limit = in.Limit
	export, err := a.do.ExportAudit(ctx, actorOf(ctx), in.Format, f)
	if err != nil {
		return nil, err
	}
	kind := "text/csv; charset=utf-8"
	if in.Format == actions.AuditJSON {
		kind = "application/x-ndjson"
	}
	return a.download("export-audit", kind, "audit."+in.Format, func(ctx huma.Context) error {
		return export.Write(ctx.Context(), ctx.BodyWriter())
	}), nil
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
