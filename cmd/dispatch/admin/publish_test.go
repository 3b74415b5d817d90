package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

func TestPublishMakesTheNextReleaseAndServesIt(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		rows := c.rows()
		r := c.publish(1, edit(t, "of: 6000", "of: 5900", "of: 4000", "of: 4100"), "")
		o := r.outcome()
		if o.Release != 2 || r.header.Get("ETag") != `"2"` || o.Acknowledged.Replicas != 1 || o.Acknowledged.Of != 1 {
			t.Errorf("the answer is %s with ETag %s", r.body, r.header.Get("ETag"))
		}
		if c.current() != 2 || c.rows() != rows+1 { // e50, P24
			t.Errorf("release %d is served and %d rows were written, want 2 and 1", c.current(), c.rows()-rows)
		}
		if n := c.keeper.Current().Lists.Count("staff"); n != 2 {
			t.Errorf("the list that the document leaves out has %d ids, want its 2", n)
		}
		if strings.Contains(string(must2(c.store.Latest(t.Context(), release.StreamEdge))(t).Manifest), "d-1001") {
			t.Error("the manifest holds a raw id")
		}
	})
}

// e56: who does not say what they started from is told so, and whoever started
// from an older release gets both sides.
func TestPublishComparesWithItsBase(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.untouched(func() {
			p := c.post(actions.ReleaseEngineer, "/releases?reason=test", kept).refused(http.StatusPreconditionRequired, "if_match")
			if !strings.Contains(p.Hint, "/api/v1/releases") {
				t.Errorf("the hint is %q", p.Hint)
			}
			c.post(actions.ReleaseEngineer, "/releases?reason=test", kept, "If-Match", "latest").refused(http.StatusUnprocessableEntity, "if_match")
		})
		c.publish(1, edit(t, "capacity: 60", "capacity: 70"), "").ok()
		c.untouched(func() {
			p := c.publish(1, edit(t, "capacity: 40", "capacity: 50"), "").refused(http.StatusConflict, "stale_base")
			var data struct {
				Base, Head    uint64
				Theirs, Yours []release.Difference
			}
			must(t, json.Unmarshal(p.Data, &data))
			theirs := release.Difference{Path: "apps[mobile].regions[sh].capacity", Kind: release.Changed, From: "60", To: "70"}
			yours := release.Difference{Path: "apps[mobile].regions[hf].capacity", Kind: release.Changed, From: "40", To: "50"}
			if data.Base != 1 || data.Head != 2 || len(data.Theirs) != 1 || data.Theirs[0] != theirs || len(data.Yours) != 1 || data.Yours[0] != yours {
				t.Errorf("the three-way difference is %s", p.Data)
			}
			c.publish(7, kept, "").refused(http.StatusConflict, "stale_base")
			c.publish(0, kept, "").refused(http.StatusConflict, "stale_base")
		})
	})
}

func TestADryRunWritesNothing(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.untouched(func() {
			o := c.publish(1, edit(t, "of: 6000", "of: 5500", "of: 4000", "of: 4500"), "dry_run=true").outcome()
			if o.Release != 0 || o.Preview == nil {
				t.Fatalf("the answer is %+v", o)
			}
			if moved := o.Preview.Moved["mobile"]; moved < 400 || moved > 600 || o.Preview.Moved["corporate"] != 0 {
				t.Errorf("of 10,000 requests %v move, want about 500 of mobile only", o.Preview.Moved)
			}
			exact := release.BucketMove{App: "mobile", Policy: "otherwise", From: "sh", To: "hf", Buckets: 500} // e11
			if len(o.Preview.Buckets) != 1 || o.Preview.Buckets[0] != exact {
				t.Errorf("the buckets %v move, want %v alone", o.Preview.Buckets, exact)
			}
			if len(o.Preview.Changes) == 0 || !strings.Contains(o.Preview.Changes[0].Path, "apps[mobile].otherwise") || o.Preview.Refused != nil {
				t.Errorf("the preview is %+v", o.Preview)
			}
			o = c.publish(1, edit(t, "of: 6000", "of: 1000", "of: 4000", "of: 9000"), "dry_run=true").outcome()
			if o.Preview.Refused == nil || o.Preview.Refused.Code != "big_move" || o.Preview.Moved["mobile"] < 4500 {
				t.Errorf("a big move previews as %+v", o.Preview)
			}
			c.publish(1, kept, "dryrun=true").refused(http.StatusUnprocessableEntity, "bad_request") // misspelt, it must not publish
		})
		fresh := empty(t, c.kind, nil)
		fresh.untouched(func() {
			if o := fresh.publish(0, bank, "dry_run=true").outcome(); len(o.Preview.Changes) == 0 {
				t.Errorf("the first release previews as %+v", o.Preview)
			}
		})
	})
}

func TestADocumentCannotUndoNightWorkUnawares(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.emergency(`{"action":"region_state","targets":[{"app":"mobile","region":"hf","expect":"active","state":"draining"}],"reason":"test"}`).ok()
		if o := c.publish(2, edit(t, "capacity: 60", "capacity: 61"), "").outcome(); o.Release != 3 || c.state("mobile", "hf") != "draining" {
			t.Errorf("after a document that says nothing of it, hf is %s", c.state("mobile", "hf"))
		}
		other := edit(t, "capacity: 40", "capacity: 40\n        state: \"off\"")
		c.untouched(func() {
			p := c.publish(3, other, "").refused(http.StatusConflict, "held")
			if line := p.at(t, "apps[0].regions[1].state")["apps[0].regions[1].state"]; line != lineOf(t, other, "state: \"off\"") {
				t.Errorf("the problem is on line %d", line)
			}
		})
		c.publish(3, other, "release_holds=true&approve_big_move=true").ok()
		if c.state("mobile", "hf") != "off" {
			t.Errorf("hf is %s after the hold was released, want off", c.state("mobile", "hf"))
		}
	})
}

func TestEveryHostNeedsApproval(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		document := edit(t, "wapabst2.a.com.cn", "wapabst3.a.com.cn", "wap.bank.example", "wap2.bank.example")
		c.untouched(func() {
			p := c.publish(1, document, "").refused(http.StatusUnprocessableEntity, "host_not_approved")
			lines := p.at(t, "apps[0].fallback", "apps[0].regions[0].endpoints[1].domain")
			if lines["apps[0].fallback"] != 4 || lines["apps[0].regions[0].endpoints[1].domain"] != lineOf(t, document, "wapabst3") {
				t.Errorf("lines are %v", lines)
			}
			for _, one := range p.Problems {
				if one.File != "bank.yaml" || !strings.Contains(one.Hint, "POST /api/v1/approvals/") {
					t.Errorf("problem %+v", one)
				}
			}
		})
		c.approve("wapabst3.a.com.cn")
		c.approve("wap2.bank.example")
		c.publish(1, document, "").ok()
	})
}

func TestWhatOnePersonMayNotDoNeedsAMark(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		big := edit(t, "of: 6000", "of: 2000", "of: 4000", "of: 8000")
		gone := "apps:\n" + kept[strings.Index(kept, "  - key: corporate"):]
		c.untouched(func() {
			if p := c.publish(1, big, "").refused(http.StatusForbidden, "big_move"); !strings.Contains(p.Hint, "approve_big_move=true") {
				t.Errorf("the hint is %q", p.Hint)
			}
			if p := c.publish(1, gone, "approve_big_move=true").refused(http.StatusForbidden, "region_removed"); !strings.Contains(p.Hint, "approve_region_removed=true") {
				t.Errorf("the hint is %q", p.Hint)
			}
		})
		c.publish(1, big, "approve_big_move=true").ok()
		c.publish(2, gone, "approve_region_removed=true").ok()
	})
}

// e51: one bad policy of 50 refuses the whole import, and every mistake is named.
func TestABadDocumentChangesNothingAndNamesEveryMistake(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		var policies strings.Builder
		for n := range 50 {
			region := "hf"
			if n == 31 {
				region = "nowhere"
			}
			fmt.Fprintf(&policies, "      - {key: p%d, when: {platform: p%d}, then: {region: %s}}\n", n, n, region)
		}
		c.untouched(func() {
			document := edit(t, "    policies:\n", "    policies:\n"+policies.String())
			p := c.publish(1, document, "").refused(http.StatusUnprocessableEntity, "bad_document")
			if len(p.Problems) != 1 || p.Problems[0].Line != lineOf(t, document, "nowhere") {
				t.Errorf("problems: %+v", p.Problems)
			}

			// Mistakes of all parts come together, in the order of the text: names,
			// sums, ids, digests and tables.
			document = edit(t, "of: 6000", "of: 6001", "region: sh}\nlists", "region: xx}\nlists", "    fallback: corp.bank.example", "    fallback: CORP.bank.example",
				"expires: 2099-12-31}", `expires: 2099-12-31, ids: [d-1, "", "null"]}`) +
				"tables:\n  - {key: one, file: one.csv}\n  - {key: two, digest: xyz}\n  - {key: three, digest: " + strings.Repeat("ab", 32) + "}\n"
			p = c.publish(1, document, "").refused(http.StatusUnprocessableEntity, "bad_document")
			p.at(t, "apps[0].otherwise.split", "apps[1].fallback", "apps[1].otherwise.region", "lists[0].ids[1]", "lists[0].ids[2]",
				"tables[0]", "tables[1].digest", "tables[2].digest")
			for i := 1; i < len(p.Problems); i++ {
				if p.Problems[i].Line < p.Problems[i-1].Line || p.Problems[i].Line == 0 {
					t.Errorf("problems are not in the order of the text: %+v", p.Problems)
					break
				}
			}

			p = c.publish(1, edit(t, "fallback", "fallbak"), "").refused(http.StatusUnprocessableEntity, "bad_document")
			if len(p.Problems) < 2 || p.Problems[0].Line != 4 {
				t.Errorf("unknown keys: %+v", p.Problems)
			}
			c.publish(1, strings.Repeat("# much\n", 4<<20/7+1), "").refused(http.StatusRequestEntityTooLarge, "document_too_large")
		})
	})
}

// e46: what was cut off or emptied by mistake empties nothing.
func TestAnEmptyDocumentIsRefused(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		staff := kept[strings.Index(kept, "    policies:"):strings.Index(kept, "    otherwise: {split")]
		bare := edit(t, staff, "")
		c.untouched(func() {
			for _, text := range []string{"", "\n", "{}", "apps: []", "lists: []", "null", "# nothing\n"} {
				c.publish(1, text, "").refused(http.StatusUnprocessableEntity, "bad_document")
			}
			for _, text := range []string{bare, edit(t, staff, "    policies: []\n")} {
				p := c.publish(1, text, "").refused(http.StatusUnprocessableEntity, "bad_document")
				if len(p.Problems) != 1 || !strings.Contains(p.Problems[0].Detail, "app mobile has 1 policies") || !strings.Contains(p.Problems[0].Hint, "allow_empty=true") {
					t.Errorf("a document without policies: %+v", p.Problems)
				}
			}
			p := c.publish(1, edit(t, "expires: 2099-12-31}", "expires: 2099-12-31, ids: []}"), "").refused(http.StatusUnprocessableEntity, "bad_document")
			p.at(t, "lists[0].ids")
		})
		c.publish(1, bare, "allow_empty=true").ok()
	})
}

// Ids that are not read anew must mean what they meant.
func TestAListKeepsItsMeaning(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.untouched(func() {
			p := c.publish(1, edit(t, "of: device, owner", "of: user, owner"), "").refused(http.StatusUnprocessableEntity, "bad_document")
			p.at(t, "lists[0].of")
			p = c.publish(1, edit(t, "    default: true", "    default: true\n    id_case: fold"), "").refused(http.StatusUnprocessableEntity, "bad_document")
			p.at(t, "lists[0]")
			p = c.publish(1, edit(t, "    default: true", "    default: true\n    id_case: fold", // mixed
				"    otherwise: {region: sh}", "    policies: [{key: staff, when: {in_list: staff}, then: {region: hf}}]\n    otherwise: {region: sh}"), "").
				refused(http.StatusUnprocessableEntity, "bad_document")
			if len(p.Problems) == 0 || !strings.Contains(p.Problems[0].Hint, "one id_case") {
				t.Errorf("mixed id_case: %+v", p.Problems)
			}
		})
		c.publish(1, edit(t, "    default: true", "    default: true\n    id_case: fold", "expires: 2099-12-31}", "expires: 2099-12-31, ids: [D-1001]}"), "").ok()
		if !c.contains("staff", "d-1001") || c.contains("staff", "d-1002") {
			t.Error("the list was not read anew")
		}
	})
}

// P17: of 50 who publish from one base at once, exactly one wins, 100 times over
// where two nodes share a database; the others are told what both sides changed.
func TestP17OneWinner(t *testing.T) {
	const writers = 50
	each(t, func(t *testing.T, c *control) {
		nodes, rounds := []*control{c, c}, uint64(20)
		if c.kind == "mysql" { // two nodes share only the database
			nodes[1], rounds = c.second(), 100
		}
		for base := uint64(1); base <= rounds; base++ {
			var wg sync.WaitGroup
			errs := make([]error, writers)
			for i := range errs {
				document := strings.ReplaceAll(kept, "capacity: 60", fmt.Sprintf("capacity: %d", 100*base+uint64(i)))
				wg.Go(func() {
					_, errs[i] = nodes[i%2].do.Publish(t.Context(), engineer, actions.Publication{Document: []byte(document), Base: base})
				})
			}
			wg.Wait()
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
					continue
				}
				e, ok := errors.AsType[*fault.Error](err)
				if !ok || e.Code != "stale_base" || e.Kind != fault.Conflict {
					t.Fatalf("round %d: a loser gets %v", base, err)
				}
				if d, ok := e.Data.(actions.Conflict); !ok || d.Head != base+1 || len(d.Theirs) != 1 || len(d.Yours) != 1 || d.Theirs[0] == d.Yours[0] {
					t.Fatalf("round %d: a loser gets only %+v", base, e.Data)
				}
			}
			if newest := must2(c.store.Head(t.Context(), release.StreamEdge))(t); won != 1 || newest != base+1 {
				t.Fatalf("round %d: %d won, and release %d is the newest, want 1 and %d", base, won, newest, base+1)
			}
		}
		c.get(actions.Viewer, "/audit/verify").ok()
	})
}

// A caller who goes away after the change is written does not leave it unserved.
func TestALeavingCallerDoesNotLeaveUsBehind(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	c := empty(t, "sqlite", func(s *store.Store) actions.Ledger { return leaving{s, leave} })
	if _, err := c.do.Publish(ctx, actions.Write{Actor: actions.Actor{Name: "test"}, Reason: "test"}, actions.Publication{Document: []byte(bank)}); err != nil {
		t.Errorf("publish: %v", err)
	}
	if c.current() != 1 {
		t.Errorf("release %d is served, want 1", c.current())
	}
}

// leaving is a store whose caller goes away as soon as a release is written.
type leaving struct {
	*store.Store
	leave context.CancelFunc
}

func (l leaving) Append(ctx context.Context, w ledger.Write) error {
	defer l.leave()
	return l.Store.Append(ctx, w)
}

// lineOf is the line of a text that stands once in the document.
func lineOf(t *testing.T, document, text string) int {
	t.Helper()
	before, _, found := strings.Cut(document, text)
	if !found {
		t.Fatalf("the document has no %q", text)
	}
	return strings.Count(before, "\n") + 1
}
