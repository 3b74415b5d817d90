package pages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// auditRows is how many rows the page shows at once.
const auditRows = 50

// auditPage is a part of the audit trail.
type auditPage struct {
	Form    auditForm
	Rows    []auditRow
	Older   string // the query of the next page; empty: this is the last
	Narrow  bool   // something is asked for
	Checked actions.AuditChecked
}

// auditForm is what people ask for, as they typed it.
type auditForm struct{ Actor, Action, Target, Release, Since, Until string }

// auditRow is one row, its details as people read them.
type auditRow struct {
	ledger.AuditEntry
	Facts   []fact
	Changes []change
}

// fact is one of the details.
type fact struct{ Name, Value string }

// change is a part that was one thing and is another.
type change struct{ Path, Before, After string }

func auditFormOf(q url.Values) auditForm {
	return auditForm{Actor: strings.TrimSpace(q.Get("actor")), Action: strings.TrimSpace(q.Get("action")), Target: strings.TrimSpace(q.Get("target")),
		Release: strings.TrimPrefix(strings.TrimSpace(q.Get("release")), "v"), Since: q.Get("since"), Until: q.Get("until")}
}

// query is the form as an address has it.
func (f auditForm) query(before uint64) string {
	q := url.Values{}
	for name, value := range map[string]string{"actor": f.Actor, "action": f.Action, "target": f.Target, "release": f.Release, "since": f.Since, "until": f.Until} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if before > 0 {
		q.Set("before", strconv.FormatUint(before, 10))
	}
	return "?" + q.Encode()
}

// filter reads the form. Times are in UTC, as the page shows them.
func (f auditForm) filter() (ledger.AuditFilter, error) {
	filter := ledger.AuditFilter{Actor: f.Actor, Action: f.Action, Target: f.Target}
	var p fault.Problems
	if f.Release != "" {
		n, err := strconv.ParseUint(f.Release, 10, 64)
		if err != nil {
			p.Addf("release", "%q is no number of a release", f.Release)
		}
		filter.Release = n
	}
	for _, t := range []struct {
		name, text string
		to         *time.Time
	}{{"since", f.Since, &filter.Since}, {"until", f.Until, &filter.Until}} {
		if t.text == "" {
			continue
		}
		at, err := moment(t.text)
		if err != nil {
			p.Addf(t.name, "%q is no time; write 2027-02-05T02:30", t.text)
		}
		*t.to = at
	}
	return filter, p.Err("bad_filter", "this cannot be looked for")
}

// moment is a time as browsers and people write it.
func moment(text string) (at time.Time, err error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339, time.DateOnly} {
		if at, err = time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return at, err
}

func (v *visit) audit() error {
	q := v.r.URL.Query()
	p := auditPage{Form: auditFormOf(q), Checked: v.do.LastAuditCheck()}
	p.Narrow = p.Form != auditForm{}
	f, err := p.Form.filter()
	if err != nil {
		return v.refuse("audit", p, err)
	}
	f.Before, f.Limit = number64(q.Get("before")), auditRows+1
	rows, err := v.do.Audit(v.r.Context(), f)
	if err != nil {
		return err
	}
	if len(rows) > auditRows {
		rows = rows[:auditRows]
		p.Older = p.Form.query(rows[auditRows-1].Seq)
	}
	for _, row := range rows {
		p.Rows = append(p.Rows, auditRowOf(row))
	}
	return v.show("audit", p)
}

// verifyAudit walks the chain. It changes nothing, and is a form because it takes
// seconds when the trail is long.
func (v *visit) verifyAudit() error {
	_, err := v.do.VerifyAudit(v.r.Context())
	if err == nil {
		return v.done("/audit", "audit.said.verified", "Seq", v.do.LastAuditCheck().Head.Seq)
	}
	return v.refuse("audit", auditPage{Checked: v.do.LastAuditCheck()}, err)
}

// exportAudit is a form and no link, because the export is written down.
func (v *visit) exportAudit() error {
	p := auditPage{Form: auditFormOf(v.r.PostForm), Checked: v.do.LastAuditCheck()}
	f, err := p.Form.filter()
	if err != nil {
		return v.refuse("audit", p, err)
	}
	form, kind := actions.AuditCSV, "text/csv; charset=utf-8"
	if v.r.PostFormValue("format") == actions.AuditJSON {
		form, kind = actions.AuditJSON, "application/x-ndjson"
	}
	export, err := v.do.ExportAudit(v.r.Context(), v.Actor, form, f)
	if err != nil {
		return v.refuse("audit", p, err)
	}
	return v.download(kind, "audit."+form, func() error { return export.Write(v.r.Context(), v.w) })
}

// auditRowOf reads the details of a row: facts, and where it says what was before and
// what is after, the parts that differ.
func auditRowOf(e ledger.AuditEntry) auditRow {
	row := auditRow{AuditEntry: e}
	var details map[string]any
	dec := json.NewDecoder(bytes.NewReader(e.Details))
	dec.UseNumber()
	if dec.Decode(&details) != nil {
		return row
	}
	before, had := details["before"]
	after, has := details["after"]
	if had && has {
		row.Changes = differ(flat(before), flat(after))
		delete(details, "before")
		delete(details, "after")
	}
	for name, value := range details {
		row.Facts = append(row.Facts, fact{name, text(value)})
	}
	slices.SortFunc(row.Facts, func(x, y fact) int { return cmp.Compare(x.Name, y.Name) })
	return row
}

// flat is a value's leaves by their paths.
func flat(value any) map[string]string {
	leaves := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		parts, ok := value.(map[string]any)
		if !ok {
			leaves[path] = text(value)
		}
		for name, part := range parts {
			walk(strings.TrimPrefix(path+"."+name, "."), part)
		}
	}
	walk("", value)
	return leaves
}

func differ(before, after map[string]string) (changes []change) {
	for path, was := range before {
		if now := after[path]; now != was {
			changes = append(changes, change{path, was, now})
		}
	}
	for path, now := range after {
		if _, had := before[path]; !had {
			changes = append(changes, change{path, "", now})
		}
	}
	slices.SortFunc(changes, func(x, y change) int { return cmp.Compare(x.Path, y.Path) })
	return changes
}

// text is a value of JSON as people read it.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		out, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(out)
	}
}
