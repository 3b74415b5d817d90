package admin_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
)

func TestTheTrailIsFilteredByTimeToo(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		from := c.clock.now().Add(time.Hour)
		c.clock.ahead.Store(int64(2 * time.Hour))
		c.patch(`{"add":["d-7"],"reason":"an hour later"}`).ok()
		at := func(t time.Time) string { return url.QueryEscape(t.UTC().Format(time.RFC3339)) }
		if rows := c.auditRows("since=" + at(from)); len(rows) != 1 || rows[0].Reason != "an hour later" {
			t.Errorf("since then: %+v", rows)
		}
		for _, row := range c.auditRows("limit=1000&until=" + at(from)) {
			if row.Reason == "an hour later" {
				t.Error("a row after the end is shown")
			}
		}
		c.get(actions.Viewer, "/audit?since=yesterday").refused(http.StatusUnprocessableEntity, "bad_request")
	})
}

// The export has every row once, in pages, and begins with its own.
func TestTheTrailIsExported(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		for i := range 2100 { // more than two pages
			must(t, c.store.Record(t.Context(), ledger.Change{By: "robot", Action: "note", Target: fmt.Sprint(i), Reason: "a \"quote\", a comma\nand a line"}))
		}
		total := c.rows() + 1
		r := c.get(actions.Viewer, "/audit/export?format=json").ok()
		var seen uint64
		lines := bufio.NewScanner(bytes.NewReader(r.body))
		lines.Buffer(nil, 1<<20)
		for want := total; lines.Scan(); want-- {
			var row struct {
				Seq    uint64
				Action string
				Hash   string
			}
			if err := json.Unmarshal(lines.Bytes(), &row); err != nil || row.Seq != want || len(row.Hash) != 64 {
				t.Fatalf("row %d is %s (%v)", want, lines.Text(), err)
			}
			if seen++; seen == 1 && row.Action != "export_audit" {
				t.Errorf("the newest row is %s, not the export", row.Action)
			}
		}
		if seen != total {
			t.Errorf("%d rows, want %d", seen, total)
		}
		r = c.get(actions.Viewer, "/audit/export?action=note&limit=1500").ok()
		rows, err := csv.NewReader(bytes.NewReader(r.body)).ReadAll()
		if err != nil || len(rows) != 1501 || rows[1][4] != "2099" || rows[1][5] != "a \"quote\", a comma\nand a line" {
			t.Errorf("%d rows (%v)", len(rows), err)
		}
		if row := c.trail("export_audit")[0]; row.Actor != actions.Viewer || !strings.Contains(string(row.Details), `"action":"note"`) {
			t.Errorf("the export left %+v %s", row, row.Details)
		}
		c.get(actions.Viewer, "/audit/export?format=xlsx").refused(http.StatusUnprocessableEntity, "bad_request")
		c.get(actions.Viewer, "/audit/verify").ok()
	})
}

func TestTheAuditPage(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		for i := range 60 {
			must(t, c.store.Record(t.Context(), ledger.Change{By: "robot", Action: "note", Target: fmt.Sprintf("object-%d", i), Reason: "<b>bold</b>",
				Details: json.RawMessage(`{"before":{"a":{"b":1},"c":"same"},"after":{"a":{"b":2},"c":"same"},"why":"because"}`)}))
		}
		show := func(path string) string { return string(c.page(actions.Viewer, http.MethodGet, path, nil).ok().body) }
		all := show("/audit?action=note")
		for _, part := range []string{"object-59", "&lt;b&gt;bold", "<del>1</del>", "<ins>2</ins>", ">a.b<", ">because<", "before=", "not verified by this node yet"} {
			if !strings.Contains(all, part) {
				t.Errorf("the page has no %q", part)
			}
		}
		if strings.Contains(all, "<b>bold") || strings.Contains(all, "object-1<") || strings.Contains(all, ">same<") {
			t.Error("the page shows markup, a row too many, or a part that did not change")
		}
		_, rest, _ := strings.Cut(all, `href="/audit?`)
		for !strings.HasPrefix(rest, "action=note&amp;before=") {
			var more bool
			if _, rest, more = strings.Cut(rest, `href="/audit?`); !more {
				t.Fatal("there is no link to older rows")
			}
		}
		link, _, _ := strings.Cut(rest, `"`)
		if older := show("/audit?" + strings.ReplaceAll(link, "&amp;", "&")); !strings.Contains(older, "object-0<") || strings.Contains(older, "object-59<") {
			t.Error("the next page has other rows")
		}
		if one := show("/audit?actor=robot&target=object-7"); strings.Count(one, `class="mono">object-`) != 1 {
			t.Error("the filter does not narrow")
		}
		c.page(actions.Viewer, http.MethodGet, "/audit?since=yesterday&release=x", nil).pageRefused(http.StatusUnprocessableEntity, "bad_filter")
		if none := show("/audit?actor=nobody"); !strings.Contains(none, "Widen the search") {
			t.Error("an empty search says no next step")
		}

		if r := c.page(actions.Viewer, http.MethodPost, "/audit/verify", url.Values{}); r.status != http.StatusSeeOther {
			t.Errorf("verify: %d %s", r.status, r.body)
		}
		if !strings.Contains(show("/audit"), "chain verified to") {
			t.Error("the verification is not shown")
		}
		r := c.page(actions.Viewer, http.MethodPost, "/audit/export", url.Values{"format": {"csv"}, "actor": {"robot"}}).ok()
		if rows, err := csv.NewReader(bytes.NewReader(r.body)).ReadAll(); err != nil || len(rows) != 61 {
			t.Errorf("%d rows (%v)", len(rows), err)
		}
	})
}

// pageRefused fails unless the page shows the refusal with the status and code.
func (r *reply) pageRefused(status int, code string) *reply {
	r.t.Helper()
	if r.status != status || !strings.Contains(string(r.body), "<code>"+code+"</code>") || !strings.Contains(string(r.body), `role="alert"`) {
		r.t.Fatalf("%s: %d, want a page with %d %s:\n%s", r.what, r.status, status, code, r.body)
	}
	return r
}
