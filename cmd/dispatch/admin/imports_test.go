package admin_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// ten is the list of ten devices that these tests begin with: one of them is a tenth.
const ten = "d-1\nd-2\nd-3\nd-4\nd-5\nd-6\nd-7\nd-8\nd-9\nd-10\n"

// careful is a control node with four eyes on, whose list has ten ids.
func careful(t *testing.T, kind string) *control {
	t.Helper()
	c := published(t, kind)
	c.bring(ten, "").ok()
	c.do.FourEyes = true
	return c
}

func eachCareful(t *testing.T, test func(t *testing.T, c *control)) {
	t.Helper()
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, careful(t, kind))
		})
	}
}

// waiting is the import behind a refusal needs_approval.
func (r *reply) waiting() (i actions.ListImport) {
	r.t.Helper()
	p := r.refused(http.StatusForbidden, "needs_approval")
	if err := json.Unmarshal(p.Data, &i); err != nil || len(i.Digest) != 64 {
		r.t.Fatalf("%s: the refusal carries %s (%v)", r.what, p.Data, err)
	}
	return i
}

func (c *control) imports() []actions.ListImport {
	c.t.Helper()
	var list struct{ Imports []actions.ListImport }
	c.get(actions.Viewer, "/lists/staff/imports").ok().into(&list)
	return list.Imports
}

func (c *control) sign(role, digest string) *reply {
	c.t.Helper()
	return c.post(role, "/lists/staff/approve", fmt.Sprintf(`{"reason":"compared with the rota","digest":%q}`, digest))
}

func (c *control) size() int {
	c.t.Helper()
	return c.keeper.Current().Lists.Count("staff")
}

// e59: whitelists are under the rule of two people. A tenth is one person's, more is not.
func TestRemovingMoreThanATenthTakesTwoPeople(t *testing.T) {
	eachCareful(t, func(t *testing.T, c *control) {
		nine := strings.TrimSuffix(ten, "d-10\n")
		if o := c.bring(nine+"d-11\n", "").outcome(); o.Release != 3 || o.Report.Removed != 1 {
			t.Errorf("one of ten: %+v", o)
		}
		// Two of ten: shown before, typed, and then it waits.
		var dry actions.ImportOutcome
		c.bring("d-1\n", "dry_run=true").ok().into(&dry)
		if len(dry.Needs) != 1 || dry.Needs[0].Code != "list_removal" || dry.Confirm != "staff" || dry.Report.Removed != 9 {
			t.Errorf("the dry run says %+v", dry)
		}
		c.untouched(func() {
			p := c.post(actions.ListManager, "/lists/staff/import?reason=test", "d-1\n").refused(http.StatusUnprocessableEntity, "confirm_mismatch")
			if !strings.Contains(p.Hint, "staff") {
				t.Errorf("the hint is %q", p.Hint)
			}
			c.post(actions.ListManager, "/lists/staff/import?reason=test&confirm=other", "d-1\n").refused(http.StatusUnprocessableEntity, "confirm_mismatch")
		})
		first := c.bring("d-1\n", "").waiting()
		if again := c.bring("d-1\n", "").waiting(); again.ID != first.ID || len(c.imports()) != 1 {
			t.Errorf("the same import waits twice: %+v and %+v", first, again)
		}
		if c.size() != 10 || c.current() != 3 {
			t.Fatalf("the list has %d ids before anybody signed", c.size())
		}
		// Not its author, not by a second token, and not another content.
		c.sign(actions.ListManager, first.Digest).refused(http.StatusForbidden, "self_approval")
		for _, role := range []string{actions.Approver, actions.ListManager} {
			var made struct{ Secret string }
			c.post(actions.Administrator, "/tokens", fmt.Sprintf(`{"name":"List-Manager","role":%q,"reason":"test"}`, role)).ok().into(&made)
			c.tokens["second token"] = made.Secret
			c.sign("second token", first.Digest).refused(http.StatusForbidden, "self_approval")
		}
		c.sign(actions.Approver, strings.Repeat("0", 64)).refused(http.StatusNotFound, "unknown_import")
		c.sign(actions.Approver, "nonsense").refused(http.StatusUnprocessableEntity, "bad_request")
		c.sign(actions.Viewer, first.Digest).refused(http.StatusForbidden, "role")

		o := c.sign(actions.Approver, first.Digest).outcome()
		if o.Release != 4 || c.size() != 1 || !c.contains("staff", "d-1") || len(c.imports()) != 0 {
			t.Errorf("after the signature: %+v, %d ids, %v waits", o, c.size(), c.imports())
		}
		row := c.trail("import")[0]
		for _, part := range []string{`"author":"list-manager"`, `"approver":"approver"`, first.Digest, `"removed":9`} {
			if row.Release != 4 || row.Actor != actions.Approver || !strings.Contains(string(row.Details), part) {
				t.Errorf("the audit row is %+v %s", row, row.Details)
			}
		}
		c.sign(actions.Approver, first.Digest).refused(http.StatusNotFound, "unknown_import")
		// The signature of then does not serve for the same content again.
		c.bring(ten, "").ok()
		if second := c.bring("d-1\n", "").waiting(); second.Digest == first.Digest {
			t.Error("the signature of the first import would serve for the second")
		}
	})
}

// e59: an edit by hand is held to the same.
func TestAPatchThatRemovesMuchWaits(t *testing.T) {
	eachCareful(t, func(t *testing.T, c *control) {
		const two = `{"remove":["d-1","d-2"],"reason":"two left"`
		c.patch(`{"remove":["d-10"],"reason":"one left"}`).ok()
		c.patch(two+`}`).refused(http.StatusUnprocessableEntity, "confirm_mismatch")
		waits := c.patch(two + `,"confirm":"staff"}`).waiting()
		c.patch(`{"add":["d-20"],"reason":"one joined"}`).ok()
		if list := c.imports(); len(list) != 1 || !list[0].Stale || list[0].Action != "patch" {
			t.Errorf("%+v waits, want a stale patch", list)
		}
		c.sign(actions.Approver, waits.Digest).refused(http.StatusConflict, "list_changed")
		var gone actions.ListImport
		c.post(actions.Approver, "/lists/staff/imports/"+waits.ID+"/withdraw", `{"reason":"made anew"}`).ok().into(&gone)
		c.sign(actions.Approver, waits.Digest).refused(http.StatusNotFound, "unknown_import")
		again := c.patch(two + `,"confirm":"STAFF"}`).waiting()
		c.sign(actions.Approver, again.Digest).ok()
		if gone.State != actions.Withdrawn || c.size() != 8 || c.contains("staff", "d-2") || !c.contains("staff", "d-20") {
			t.Errorf("%s, %d ids", gone.State, c.size())
		}
	})
}

// A document that brings ids, or leaves a list out, is no way around.
func TestADocumentCannotEmptyAListByItself(t *testing.T) {
	eachCareful(t, func(t *testing.T, c *control) {
		for name, document := range map[string]string{
			"other ids": strings.Replace(bank, "[d-1001, d-1002]", "[d-1, d-2, e-1, e-2, e-3, e-4, e-5, e-6, e-7, e-8, e-9]", 1),
			"no ids":    strings.Replace(bank, "[d-1001, d-1002]", "[]", 1),
			"no list":   strings.NewReplacer("lists:\n  - {key: staff, of: device, owner: release-team, expires: 2099-12-31}\n", "", "when: {in_list: staff}", "when: {attr: {staff: 'yes'}}").Replace(kept),
		} {
			p := c.publish(2, document, "allow_empty=true").refused(http.StatusForbidden, "needs_approval")
			if !slices.ContainsFunc(p.Problems, func(one fault.Problem) bool { return strings.Contains(one.Detail, "list_removal") }) {
				t.Errorf("%s: the refusal is %+v", name, p)
			}
		}
		c.publish(2, strings.Replace(bank, "[d-1001, d-1002]", "["+strings.ReplaceAll(strings.TrimSuffix(ten, "d-10\n"), "\n", ", ")+"e-1]", 1), "").ok()
		c.rotate("list") // and with ids that are hashed under another key than those before
		c.do.FourEyes = true
		c.publish(3, strings.Replace(bank, "[d-1001, d-1002]", "[d-1, d-2]", 1), "").refused(http.StatusForbidden, "needs_approval")
		c.publish(3, strings.Replace(bank, "[d-1001, d-1002]", "["+strings.ReplaceAll(strings.TrimSuffix(ten, "d-10\n"), "\n", ", ")+"e-1]", 1), "").ok()
	})
}

// An upload that is kept is read once, looked at, and applied or given up.
func TestAKeptImportIsAppliedLater(t *testing.T) {
	eachCareful(t, func(t *testing.T, c *control) {
		keep := func(body string) (o actions.ImportOutcome) {
			c.bring(body, "keep=true&max_bad=1").ok().into(&o)
			return o
		}
		apply := func(id, more string) *reply {
			return c.post(actions.ListManager, "/lists/staff/imports/"+id+"/apply", `{"reason":"looked at it"`+more+`}`)
		}
		o := keep(ten + "d-11\nnull\n")
		if o.Release != 0 || o.Kept == nil || o.Kept.Added != 1 || o.Kept.Bad != 1 || o.Kept.State != actions.Kept || c.size() != 10 {
			t.Fatalf("kept: %+v", o)
		}
		if list := c.imports(); len(list) != 1 || list[0].ID != o.Kept.ID || list[0].Stale || list[0].Confirm != "" {
			t.Errorf("%+v waits", list)
		}
		if done := apply(o.Kept.ID, "").outcome(); done.Release != 3 || c.size() != 11 {
			t.Errorf("applied: %+v, %d ids", done, c.size())
		}
		apply(o.Kept.ID, "").refused(http.StatusConflict, "import_state")
		apply("none", "").refused(http.StatusNotFound, "unknown_import")

		large := keep("d-1\n")
		apply(large.Kept.ID, "").refused(http.StatusUnprocessableEntity, "confirm_mismatch")
		waits := apply(large.Kept.ID, `,"confirm":"staff"`).waiting()
		if waits.ID != large.Kept.ID || waits.State != actions.Submitted {
			t.Errorf("it waits as %+v", waits)
		}
		c.sign(actions.Approver, waits.Digest).ok()
		if c.size() != 1 {
			t.Errorf("%d ids", c.size())
		}
		one := keep("d-1\nd-2\n").Kept.ID
		c.post(actions.ListManager, "/lists/staff/imports/"+one+"/withdraw", `{"reason":"wrong file"}`).ok()
		c.post(actions.ListManager, "/lists/other/imports/"+one+"/apply", `{"reason":"test"}`).refused(http.StatusNotFound, "unknown_import")
		apply(one, "").refused(http.StatusConflict, "import_state")
	})
}

// With four eyes off one person is enough, and the answer says so.
func TestWithFourEyesOffTheAnswerWarns(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	o := c.bring("d-1\n", "").outcome()
	if o.Release != 2 || len(o.Warnings) != 1 || !strings.Contains(o.Warnings[0].Detail, "list_removal") {
		t.Errorf("%+v", o)
	}
}

// An answer that got lost is asked for again under its key, and nothing is done twice.
func TestAnApprovalIsRepeatedUnderItsKey(t *testing.T) {
	t.Parallel()
	c := careful(t, "sqlite")
	waits := c.bring("d-1\n", "").waiting()
	body := fmt.Sprintf(`{"reason":"compared","digest":%q}`, waits.Digest)
	first := c.post(actions.Approver, "/lists/staff/approve", body, "Idempotency-Key", "k1").outcome()
	rows := c.rows()
	second := c.post(actions.Approver, "/lists/staff/approve", body, "Idempotency-Key", "k1").outcome()
	if first.Release != 3 || second.Release != 3 || c.rows() != rows {
		t.Errorf("%+v and %+v, %d rows more", first, second, c.rows()-rows)
	}
}

func TestListsSayWhereTheyAreUsedAndWhenTheyEnd(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	info := func() (l actions.ListInfo) {
		c.get(actions.Viewer, "/lists/staff").ok().into(&l)
		return l
	}
	if l := info(); l.Expiry != actions.ExpiresLater || !slices.Equal(l.UsedBy, []actions.ListUse{{App: "mobile", Policy: "staff"}}) {
		t.Errorf("%+v", l)
	}
	day := func(d time.Duration) string { return c.clock.now().Add(d).UTC().Format(time.DateOnly) }
	const end = "expires: 2099-12-31"
	c.publish(1, edit(t, end, "expires: "+day(20*24*time.Hour), "when: {in_list: staff}", "when: {attr: {staff: 'yes'}, not: {in_list: staff}}"), "approve_big_move=true").ok()
	if l := info(); l.Expiry != actions.ExpiresSoon || len(l.UsedBy) != 1 || !l.UsedBy[0].Not {
		t.Errorf("%+v", l)
	}
	c.clock.ahead.Store(int64(22 * 24 * time.Hour))
	if l := info(); l.Expiry != actions.Expired {
		t.Errorf("%+v", l)
	}
	c.get(actions.Viewer, "/lists/none").refused(http.StatusNotFound, "unknown_list")
}

// SEC21, the half that comes in: nothing that is no list of ids gets into one, and
// nothing makes the process read or hold more than its limits.
func TestSEC21ImportsRefuse(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.untouched(func() {
		for name, test := range map[string]struct{ body, query, code string }{
			"a NUL":                {"d-1\nd-\x002\n", "", "bad_lines"},
			"no UTF-8":             {"d-1\nd-\xff\xfe2\n", "", "bad_lines"},
			"UTF-16":               {"\xff\xfed\x00-\x001\x00", "", "bad_encoding"},
			"an id of 257 bytes":   {strings.Repeat("d", 257) + "\n", "", "bad_lines"},
			"a line of a megabyte": {strings.Repeat("d", 1<<20) + "\nd-1\n", "", "bad_lines"},
			"a header twice":       {"id,ID\nd-1,d-2\n", "format=csv", "bad_header"},
			"no header":            {"d-1\nd-2\n", "format=csv", "bad_header"},
			"a table":              {"\t=1\nd-2\n", "", "bad_header"},
			"a workbook":           {"PK\x03\x04" + strings.Repeat("\x00", 100), "", "bad_encoding"},
			"gzip":                 {"\x1f\x8b\x08\x00", "", "bad_encoding"},
			"nothing":              {"\n\n", "", "empty_import"},
			"an open quote":        {"id\n\"d-1\n", "format=csv", "bad_lines"},
		} {
			if p := c.bring(test.body, test.query).refused(http.StatusUnprocessableEntity, test.code); strings.Contains(p.Detail+p.Hint, "d-2") {
				t.Errorf("%s: the refusal repeats an id: %+v", name, p)
			}
		}
		for _, encoding := range []string{"gzip", "br", "deflate", "gzip, gzip"} {
			c.post(actions.ListManager, "/lists/staff/import?reason=test", "d-1\n", "Content-Encoding", encoding).
				refused(http.StatusUnprocessableEntity, "bad_encoding")
		}
	})
	// What looks like a formula is an id like others.
	c.bring("=HYPERLINK(1)\n\"\t=1\"\n+86\n", "format=lines").ok()
	if !c.contains("staff", "=1") || !c.contains("staff", "+86") {
		t.Error("ids that begin like formulas are lost")
	}
}

// SEC21: a line without an end is read up to the limit of an import and never held.
// Not parallel: it measures the memory of the process.
func TestSEC21ALineOfTwoGigabytesIsNotHeld(t *testing.T) {
	c := published(t, "sqlite")
	var r *reply
	held := peak(func() {
		r = c.send(t.Context(), request{role: actions.ListManager, method: http.MethodPost, path: "/lists/staff/import?reason=test"}, &endless{left: 2 << 30})
	})
	r.refused(http.StatusRequestEntityTooLarge, "too_large")
	if held > 32<<20 {
		t.Errorf("a line of 2 GB costs %d MiB", held>>20)
	}
}

// endless is one line.
type endless struct{ left int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	e.left -= int64(len(p)) // whatever is in it: no line ends there
	clear(p)
	return len(p), nil
}

// peak is by how much live objects grow while f runs, as the garbage collector finds
// them, looked at every few milliseconds.
func peak(f func()) uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	read := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	before, most := read(), uint64(0)
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most = max(most, read())
			case <-done:
				return
			}
		}
	})
	f()
	close(done)
	wait.Wait()
	return max(most, before) - before
}

// formulas are the beginnings that spreadsheets run.
var formulas = []string{"=HYPERLINK(\"http://evil.example\")", "+1", "-1", "@SUM(A1)"}

// SEC21, the half that goes out: no cell of an export is a formula, whoever wrote it.
func TestSEC21ExportsAreText(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.bring(strings.Join(formulas, "\n")+"\nd-1\n", "format=lines").ok()
	for i, formula := range append(formulas, "\t=1", "\r=1") {
		must(t, c.store.Record(t.Context(), ledger.Change{By: "somebody", Action: "note", Target: fmt.Sprint(i), Reason: formula}))
	}
	cells := 0
	for _, path := range []string{"/lists/staff/export?format=csv", "/audit/export?format=csv"} {
		r := c.get(actions.ListManager, path).ok()
		if kind := r.header.Get("Content-Type"); kind != "text/csv; charset=utf-8" || !strings.HasPrefix(r.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s is %q, %q", path, kind, r.header.Get("Content-Disposition"))
		}
		rows, err := csv.NewReader(strings.NewReader(string(r.body))).ReadAll()
		must(t, err)
		for _, row := range rows {
			for _, cell := range row {
				if cell != "" && strings.Contains("=+-@\t\r", cell[:1]) {
					t.Errorf("%s: the cell %q is a formula", path, cell)
				}
				if strings.HasPrefix(cell, "'") {
					cells++
				}
			}
		}
	}
	if cells < 10 {
		t.Errorf("%d cells were made safe, want the four ids and the reasons", cells)
	}
	// One id a line is what an import takes: nothing is added to it.
	r := c.get(actions.ListManager, "/lists/staff/export").ok()
	lines := strings.Split(strings.TrimSpace(string(r.body)), "\n")
	slices.Sort(lines)
	want := append(slices.Clone(formulas), "d-1")
	slices.Sort(want)
	if !slices.Equal(lines, want) || r.header.Get("X-Count") != "5" {
		t.Errorf("the list is exported as %q", lines)
	}
	if row := c.trail("export_list")[0]; row.Actor != actions.ListManager || row.Target != "staff" || !strings.Contains(string(row.Details), `"count":5`) {
		t.Errorf("the export left %+v", row)
	}
	c.get(actions.OnCall, "/lists/staff/export").refused(http.StatusForbidden, "role")
}

// Ids do not pile up in memory: what is held is the ids themselves, not the body, the
// chunks or their sealed copies. A million of them go in by the page, in a browser.
// Not parallel: it measures the memory of the process.
func TestAnImportHoldsItsIDsAlone(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			c := published(t, kind)
			const n = 150_000
			var took time.Duration
			held := peak(func() {
				start := time.Now()
				r := c.send(t.Context(), request{role: actions.ListManager, method: http.MethodPost, path: "/lists/staff/import?reason=test&confirm=staff"}, &numbered{n: n})
				took = time.Since(start)
				if o := r.outcome(); o.Report.IDs != n {
					t.Errorf("the import says %+v", o.Report)
				}
			})
			t.Logf("%d ids in %s, %d MiB held at most", n, took.Round(time.Millisecond), held>>20)
			if held > 40<<20 {
				t.Errorf("%d MiB are held, want at most 40", held>>20)
			}
		})
	}
}

// numbered is n lines of 20 bytes.
type numbered struct {
	n, i int
	rest []byte
}

func (r *numbered) Read(p []byte) (int, error) {
	for len(r.rest) < len(p) && r.i < r.n {
		r.rest = fmt.Appendf(r.rest, "device-%012d\n", r.i)
		r.i++
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = append(r.rest[:0], r.rest[n:]...)
	return n, nil
}
