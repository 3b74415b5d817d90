package admin_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/store"
	"dispatch.example/dispatch/whitelist"
)

func (c *control) contains(list, id string) bool {
	c.t.Helper()
	var found struct{ Contains bool }
	c.get(actions.ListManager, "/lists/"+list+"/contains?id="+url.QueryEscape(id)).ok().into(&found)
	return found.Contains
}

// bring imports as the list manager.
func (c *control) bring(body, query string) *reply {
	c.t.Helper()
	return c.post(actions.ListManager, "/lists/staff/import?reason=test&confirm=staff&"+query, body)
}

func (c *control) patch(body string, headers ...string) *reply {
	c.t.Helper()
	return c.call(request{role: actions.ListManager, method: http.MethodPatch, path: "/lists/staff", body: body, headers: headers})
}

func TestAnImportReplacesTheList(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		rows := c.rows()
		c.untouched(func() {
			o := c.bring("d-1002\nd-1003\n", "dry_run=true").outcome()
			if o.Release != 0 || o.Report.Added != 1 || o.Report.Removed != 1 || o.Report.Unchanged != 1 {
				t.Errorf("the dry run says %+v", o)
			}
		})
		r := c.bring("\ufeffd-1002\r\n\r\n  d-1003 \r\nd-1003\r\n", "")
		if o := r.outcome(); o.Release != 2 || o.Report.IDs != 2 || o.Report.Added != 1 || o.Report.Removed != 1 || r.header.Get("ETag") != `"2"` {
			t.Errorf("the answer is %s", r.body)
		}
		if c.rows() != rows+1 || c.contains("staff", "d-1001") || !c.contains("staff", "d-1003") {
			t.Errorf("%d rows, or the ids are wrong", c.rows()-rows)
		}
		if o := c.bring("name,device\na,d-1\nb,\"d-2\"\n", "column=device&format=csv").outcome(); o.Report.IDs != 2 || !c.contains("staff", "d-2") {
			t.Errorf("CSV: %+v", o.Report)
		}
		var lists struct {
			Lists []struct {
				Key, Of, Owner, Expires string
				Count                   int
				Folds                   bool
			}
		}
		c.get(actions.Viewer, "/lists").ok().into(&lists)
		if len(lists.Lists) != 1 || lists.Lists[0].Count != 2 || lists.Lists[0].Of != "device" || lists.Lists[0].Owner != "release-team" {
			t.Errorf("lists are %+v", lists.Lists)
		}
	})
}

func TestABadImportChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		bad := "d-1\nnull\nd-2\n" + strings.Repeat("x", 300) + "\n"
		c.untouched(func() {
			r := c.bring(bad, "max_bad=1")
			p := r.refused(http.StatusUnprocessableEntity, "bad_lines")
			if len(p.Problems) != 2 || p.Problems[0].Line != 2 || p.Problems[1].Line != 4 || !strings.Contains(string(p.Data), `"bad":2`) {
				t.Errorf("the refusal is %s", r.body)
			}
			c.bring("", "").refused(http.StatusUnprocessableEntity, "empty_import")
			c.bring("PK\x03\x04", "").refused(http.StatusUnprocessableEntity, "bad_encoding")
			c.bring("a,b\n1,2\n", "").refused(http.StatusUnprocessableEntity, "bad_header")
			c.bring("d-1\n", "format=xlsx").refused(http.StatusUnprocessableEntity, "bad_request")
			c.bring("d-1\n", "max_bad=-1").refused(http.StatusUnprocessableEntity, "bad_request")
			c.post(actions.ListManager, "/lists/other/import?reason=test", "d-1\n").refused(http.StatusNotFound, "unknown_list")
			c.post(actions.ListManager, "/lists/staff/import", "d-1\n").refused(http.StatusUnprocessableEntity, "bad_request").at(t, "query.reason")
		})
		c.bring(bad, "max_bad=2").ok()
		c.bring("", "allow_empty=true").ok()
		if c.contains("staff", "d-1") {
			t.Error("the emptied list still holds an id")
		}
	})
}

// A body that breaks off applies nothing.
func TestAnImportThatBreaksOffChangesNothing(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.untouched(func() {
		r, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, "d-7\n")
			_ = w.CloseWithError(io.ErrUnexpectedEOF)
		}()
		if reply, err := c.try(t.Context(), request{role: actions.ListManager, method: http.MethodPost, path: "/lists/staff/import?reason=test"}, r); err == nil && reply.status == http.StatusOK {
			t.Errorf("half an import was taken: %s", reply.body)
		}
	})
}

// e29: a few ids change and all others stay.
func TestAPatchTouchesOnlyWhatItNames(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		var ids strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&ids, "d-%05d\n", i)
		}
		c.bring(ids.String(), "").ok()
		rows := c.rows()
		o := c.patch(`{"add":["e-1"," e-2 ","d-00001"],"remove":["d-00002","never"],"reason":"two joined, one left"}`).outcome()
		if o.Release != 3 || o.Added != 2 || o.Removed != 1 || o.Already != 1 || o.Unknown != 1 || c.rows() != rows+1 {
			t.Errorf("the patch says %+v in %d rows", o, c.rows()-rows)
		}
		if !c.contains("staff", "e-2") || c.contains("staff", "d-00002") || !c.contains("staff", "d-19999") {
			t.Error("the ids are wrong")
		}
		if n := c.keeper.Current().Lists.Count("staff"); n != 20_001 {
			t.Errorf("the list holds %d ids, want 20,001", n)
		}
		c.untouched(func() {
			if o := c.patch(`{"add":["e-3"],"dry_run":true,"reason":"test"}`).outcome(); o.Release != 0 || o.Added != 1 {
				t.Errorf("the dry run says %+v", o)
			}
			if o := c.patch(`{"add":["e-1"],"reason":"test"}`).outcome(); o.Release != 3 || o.Already != 1 {
				t.Errorf("a patch that changes nothing says %+v", o)
			}
			c.patch(`{"reason":"test"}`).refused(http.StatusUnprocessableEntity, "bad_ids")
			p := c.patch(`{"add":["ok","null"],"remove":[" "],"reason":"test"}`).refused(http.StatusUnprocessableEntity, "bad_ids")
			p.at(t, "add[1]", "remove[0]")
		})
		var found struct {
			Contains bool
			Absent   string
		}
		c.get(actions.ListManager, "/lists/staff/contains?id=null").ok().into(&found)
		if found.Contains || found.Absent != "placeholder" {
			t.Errorf("an absent id: %+v", found)
		}
		c.get(actions.ListManager, "/lists/other/contains?id=a").refused(http.StatusNotFound, "unknown_list")
		c.get(actions.ListManager, "/lists/staff/contains").refused(http.StatusUnprocessableEntity, "bad_request")
	})
}

// e28: a list far larger than a JSON body may be goes through as a stream, and
// an emergency waits neither for the reading nor for the storing of it.
func TestAnEmergencyDoesNotWaitForAnImport(t *testing.T) {
	t.Parallel()
	storing, resume := make(chan struct{}), make(chan struct{})
	armed := false
	c := empty(t, "sqlite", func(s *store.Store) actions.Ledger {
		return slowBlobs{s, func() {
			if armed {
				armed = false
				close(storing)
				<-resume
			}
		}}
	})
	c.publish(0, bank, "").ok()
	armed = true
	r, w := io.Pipe()
	done := make(chan *reply, 1)
	go func() {
		reply, _ := c.try(t.Context(), request{role: actions.ListManager, method: http.MethodPost, path: "/lists/staff/import?reason=test&confirm=staff"}, r)
		done <- reply
	}()
	// 200,000 ids of 64 bytes are 13 MB.
	line := func(i int) string { return fmt.Sprintf("%063d\n", i) }
	for i := range 100_000 {
		must2(io.WriteString(w, line(i)))(t)
	}
	c.emergency(swapOut).ok() // while it is read
	for i := range 100_000 {
		must2(io.WriteString(w, line(100_000+i)))(t)
	}
	must(t, w.Close())
	select {
	case <-storing:
	case reply := <-done:
		t.Fatalf("the ids were never stored apart from the release: %+v", reply)
	}
	c.set("mobile/hf:active:draining").ok() // while it is stored
	close(resume)
	if reply := <-done; reply == nil || reply.outcome().Report.IDs != 200_000 || reply.outcome().Release != 4 {
		t.Errorf("the import: %+v", reply)
	}
	if c.serves("mobile", "sh") != "wapabst2.a.com.cn" || c.state("mobile", "hf") != "draining" || !c.contains("staff", strings.TrimSpace(line(199_999))) {
		t.Error("one of the three changes is lost")
	}
}

// slowBlobs is a store that takes its time with blobs.
type slowBlobs struct {
	*store.Store
	wait func()
}

func (s slowBlobs) PutBlobs(ctx context.Context, blobs iter.Seq[whitelist.Blob]) error {
	s.wait()
	return s.Store.PutBlobs(ctx, blobs)
}

var _ actions.Ledger = slowBlobs{}

// Two who change one list at once do not lose each other's ids.
func TestConcurrentChangesOfOneListAreNoticed(t *testing.T) {
	t.Parallel()
	var c *control
	armed := false
	c = empty(t, "sqlite", func(s *store.Store) actions.Ledger {
		return slowBlobs{s, func() {
			if armed {
				armed = false
				c.patch(`{"add":["first"],"reason":"test"}`).ok()
			}
		}}
	})
	c.publish(0, bank, "").ok()
	armed = true
	c.bring("second\n", "").refused(http.StatusConflict, "list_changed")
	if !c.contains("staff", "first") || c.contains("staff", "second") {
		t.Error("a change was lost")
	}
}

func TestTables(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		const document = "tables:\n  - {key: cn, digest: "
		use := edit(t, "    policies:\n", "    origins: [{table: cn}]\n    policies:\n      - {key: home, when: {origin: east}, then: {region: hf}}\n")
		rows, current := c.rows(), c.current()
		var table actions.TableOutcome
		c.post(actions.ReleaseEngineer, "/tables/cn?reason=test", "10.0.0.0/8,east\n2001:db8::/32,west\n").ok().into(&table)
		if table.Prefixes != 2 || len(table.Labels) != 2 || len(table.Digest) != 64 || c.rows() != rows+1 || c.current() != current {
			t.Errorf("the upload says %+v in %d rows", table, c.rows()-rows)
		}
		c.untouched(func() {
			c.post(actions.ReleaseEngineer, "/tables/cn?reason=test", "10.0.0.0/8\nnonsense,x\n").refused(http.StatusUnprocessableEntity, "bad_table")
			c.post(actions.ReleaseEngineer, "/tables/c%20n?reason=test", "10.0.0.0/8,east\n").refused(http.StatusUnprocessableEntity, "bad_key")
			c.publish(1, use+document+strings.Repeat("0", 64)+"}\n", "").refused(http.StatusUnprocessableEntity, "bad_document").at(t, "tables[0].digest")
			c.publish(1, use+"tables:\n  - {key: cn, file: cn.csv}\n", "").refused(http.StatusUnprocessableEntity, "bad_document").at(t, "tables[0]")
		})
		c.publish(1, use+document+table.Digest+"}\n", "").ok()
		c.publish(2, use+"tables:\n  - {key: cn, file: cn.csv}\n", "").ok() // as it was
		var answer explanation
		c.post(actions.OnCall, "/explain", `{"app":"mobile","address":"10.1.2.3","device_id":"x"}`).ok().into(&answer)
		if answer.Domain != "wapcdst.b.com.cn" || !strings.Contains(answer.Text, "east") {
			t.Errorf("the table does not decide: %+v", answer)
		}
		c.untouched(func() { // a digest that is mistyped is not passed over for the one before
			c.publish(3, use+document+"abc}\n", "").refused(http.StatusUnprocessableEntity, "bad_document").at(t, "tables[0].digest")
		})
		big := io.MultiReader(strings.NewReader("10.0.0.0/8,east\n"), io.LimitReader(zeros{}, actions.MaxTable))
		r := c.send(t.Context(), request{role: actions.ReleaseEngineer, method: http.MethodPost, path: "/tables/cn?reason=test"}, big)
		r.refused(http.StatusRequestEntityTooLarge, "table_too_large")
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

// A document that brings ids, and a release that comes back, replace what was
// patched since; the answer says so. The same ids warn of nothing.
func TestReplacedIDsAreNamed(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.patch(`{"add":["e-1"],"reason":"one joined"}`).ok() // release 2
		warns := func(o outcome) bool {
			for _, w := range o.Warnings {
				if w.Path == "lists[0]" && strings.Contains(w.Detail, "are replaced by") {
					return true
				}
			}
			return false
		}
		if o := c.publish(2, bank, "").outcome(); !warns(o) {
			t.Errorf("a document with other ids warns of %v", o.Warnings)
		}
		if o := c.publish(3, bank, "").outcome(); warns(o) {
			t.Errorf("a document with the same ids warns of %v", o.Warnings)
		}
		if o := c.post(actions.OnCall, "/releases/2/relive", `{"reason":"back"}`).outcome(); !warns(o) {
			t.Errorf("a relive that brings ids back warns of %v", o.Warnings)
		}
	})
}
