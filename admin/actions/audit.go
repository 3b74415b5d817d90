package actions

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// Audit is the audit trail, newest first.
func (a *Actions) Audit(ctx context.Context, f ledger.AuditFilter) ([]ledger.AuditEntry, error) {
	return a.Ledger.Audit(ctx, f)
}

// AuditChecked is what the last verification by this process found.
type AuditChecked struct {
	At      time.Time
	Head    ledger.AuditHead // the last good row
	Problem string           // what is wrong behind it; empty: nothing
}

// LastAuditCheck is the last verification by this process; At is zero without one.
func (a *Actions) LastAuditCheck() AuditChecked {
	if c := a.audited.Load(); c != nil {
		return *c
	}
	return AuditChecked{}
}

// VerifyAudit walks the whole chain, and compares it with heads that were kept
// outside. A broken one is the conflict audit_broken, which names the first bad row.
func (a *Actions) VerifyAudit(ctx context.Context, known ...ledger.AuditHead) (ledger.AuditHead, error) {
	check, err := a.Ledger.VerifyAudit(ctx, known...)
	if err != nil {
		return ledger.AuditHead{}, fmt.Errorf("verify audit trail: %w", err)
	}
	found := AuditChecked{At: a.now(), Head: check.Head}
	if check.Bad != 0 {
		found.Problem = fmt.Sprintf("row %d of the audit trail: %s", check.Bad, check.Problem)
	}
	a.audited.Store(&found)
	if found.Problem != "" {
		return check.Head, fault.New(fault.Conflict, "audit_broken", "%s", found.Problem).
			WithHint("somebody changed the database by hand; compare with a backup before trusting anything after row " + fmt.Sprint(check.Head.Seq))
	}
	return check.Head, nil
}

// The forms of an audit export.
const (
	AuditCSV  = "csv"  // with a header; made safe to open in a spreadsheet
	AuditJSON = "json" // one row a line
)

// auditPage is how many rows of an export are held at a time.
const auditPage = 1000

// AuditExport is the audit trail on its way out.
type AuditExport struct {
	actions *Actions
	filter  ledger.AuditFilter
	form    string
	limit   int
}

// ExportAudit exports the rows of the filter, newest first, as CSV or JSON; a limit of
// 0 is all. Who took them is written down before the first one leaves, and is the
// newest row of an export without filter.
func (a *Actions) ExportAudit(ctx context.Context, who Actor, form string, f ledger.AuditFilter) (*AuditExport, error) {
	if form != AuditCSV && form != AuditJSON {
		return nil, fault.New(fault.Invalid, "bad_format", "the audit trail is exported as csv or json, not %q", form)
	}
	asked := map[string]any{"format": form}
	for name, value := range map[string]string{"actor": f.Actor, "action": f.Action, "target": f.Target, "since": stamp(f.Since), "until": stamp(f.Until)} {
		if value != "" {
			asked[name] = value
		}
	}
	if f.Release > 0 {
		asked["release"] = f.Release
	}
	c := Write{Actor: who, Reason: "export of the audit trail"}.change("export_audit", "audit")
	var err error
	if c.Details, err = json.Marshal(asked); err != nil {
		return nil, fmt.Errorf("write audit details of export_audit: %w", err)
	}
	if err := a.Ledger.Record(ctx, c); err != nil {
		return nil, fmt.Errorf("record export of the audit trail: %w", err)
	}
	e := &AuditExport{actions: a, filter: f, form: form, limit: f.Limit}
	e.filter.Limit = auditPage
	return e, nil
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Write writes all rows, a page at a time.
func (e *AuditExport) Write(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriter(w)
	row := e.lines(out)
	if e.form == AuditCSV {
		row = e.cells(out)
	}
	f, n := e.filter, 0
	for {
		// Each page has the database's time of a request.
		rows, err := e.actions.Ledger.Audit(Patient(ctx), f)
		if err != nil {
			return fmt.Errorf("export audit trail: %w", err)
		}
		for _, r := range rows {
			if n++; e.limit > 0 && n > e.limit {
				return out.Flush()
			}
			if err := row(r); err != nil {
				return err
			}
			f.Before = r.Seq
		}
		if len(rows) < auditPage {
			return out.Flush()
		}
	}
}

// lines writes rows as JSON, one a line.
func (e *AuditExport) lines(out *bufio.Writer) func(ledger.AuditEntry) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return func(r ledger.AuditEntry) error {
		return enc.Encode(struct {
			ledger.AuditEntry
			Hash string `json:"hash"`
		}{r, r.Hash.String()})
	}
}

// cells writes rows as CSV. Nothing in it is a formula, whoever wrote it.
func (e *AuditExport) cells(out *bufio.Writer) func(ledger.AuditEntry) error {
	table := csv.NewWriter(out)
	_ = table.Write(strings.Fields("seq at actor action target reason stream release details hash")) // Flush says it
	return func(r ledger.AuditEntry) error {
		number := ""
		if r.Release > 0 {
			number = strconv.FormatUint(r.Release, 10)
		}
		cells := []string{strconv.FormatUint(r.Seq, 10), r.At.UTC().Format(time.RFC3339Nano), r.Actor, r.Action, r.Target, r.Reason,
			r.Stream, number, string(r.Details), r.Hash.String()}
		for i := range cells {
			cells[i] = cell(cells[i])
		}
		_ = table.Write(cells)
		table.Flush()
		return table.Error()
	}
}
