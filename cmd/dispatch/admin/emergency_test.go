package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

func (c *control) emergency(body string, headers ...string) *reply {
	c.t.Helper()
	return c.post(actions.OnCall, "/emergency", body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

// set is an emergency that gives regions a state: app/region:expect:state.
func (c *control) set(targets ...string) *reply {
	c.t.Helper()
	var list []string
	for _, t := range targets {
		p := strings.FieldsFunc(t, func(r rune) bool { return r == '/' || r == ':' })
		list = append(list, fmt.Sprintf(`{"app":%q,"region":%q,"expect":%q,"state":%q}`, p[0], p[1], p[2], p[3]))
	}
	return c.emergency(`{"action":"region_state","reason":"test","targets":[` + strings.Join(list, ",") + `]}`)
}

// cluster is an emergency that gives a cluster of sh a state.
func (c *control) cluster(app, cluster, expect, state string) *reply {
	c.t.Helper()
	return c.emergency(fmt.Sprintf(`{"action":"cluster_state","reason":"test","targets":[{"app":%q,"region":"sh","cluster":%q,"expect":%q,"state":%q}]}`,
		app, cluster, expect, state))
}

const swapOut = `{"action":"swap","reason":"sh-main burns","targets":[{"app":"mobile","region":"sh","expect":"sh-main","from":"sh-main","to":"sh-spare"}]}`

func (c *control) state(app, region string) string {
	c.t.Helper()
	var view struct {
		Regions []struct{ Key, State string }
	}
	c.get(actions.Viewer, "/apps/"+app).ok().into(&view)
	for _, r := range view.Regions {
		if r.Key == region {
			return r.State
		}
	}
	return ""
}

func TestASwapIsOneReleaseAndOneRow(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		rows := c.rows()
		r := c.emergency(swapOut)
		if o := r.outcome(); o.Release != 2 || o.Acknowledged.Replicas != 1 || r.header.Get("ETag") != `"2"` {
			t.Errorf("the answer is %s", r.body)
		}
		if c.serves("mobile", "sh") != "wapabst2.a.com.cn" || c.current() != 2 || c.rows() != rows+1 {
			t.Errorf("%s serves in release %d, %d rows", c.serves("mobile", "sh"), c.current(), c.rows()-rows)
		}
		c.untouched(func() { // the same click, too late
			p := c.emergency(swapOut).refused(http.StatusConflict, "expect_mismatch")
			p.at(t, "targets[0]")
			if string(p.Data) != `{"current":"sh-spare"}` {
				t.Errorf("the data is %s", p.Data)
			}
		})
	})
}

func TestTargetsChangeTogetherOrNotAtAll(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.untouched(func() {
			p := c.set("mobile/sh:active:draining", "corporate/hf:draining:off", "corporate/xx:active:off", "other/sh:active:off").refused(http.StatusConflict, "expect_mismatch")
			p.at(t, "targets[1]", "targets[2]", "targets[3]")
			if !strings.HasPrefix(p.Problems[0].Detail, "corporate/hf: ") {
				t.Errorf("a target is not named: %+v", p.Problems)
			}
		})
		if o := c.set("mobile/hf:active:off", "corporate/hf:active:off").outcome(); o.Release != 2 {
			t.Errorf("two targets made release %d, want 2", o.Release)
		}
		if c.state("mobile", "hf") != "off" || c.state("corporate", "hf") != "off" {
			t.Errorf("states are %s and %s", c.state("mobile", "hf"), c.state("corporate", "hf"))
		}
		c.untouched(func() {
			for _, body := range []string{
				`{"action":"swap","reason":"test","targets":[]}`,
				`{"action":"burn","reason":"test","targets":[{"app":"mobile","region":"sh","expect":"a"}]}`,
				`{"action":"swap","reason":"test","targets":[{"app":"mobile","region":"sh"}]}`,
				`{"action":"cluster_state","reason":"test","targets":[{"app":"mobile","region":"sh","expect":"active","state":"off"}]}`,
				`{"action":"abort_gray","reason":"test","targets":[{"app":"mobile","expect":"500"}]}`,
				`{"action":"freeze","reason":"test","targets":[{"expect":"open"}]}`,
				`{"action":"swap","reason":"no","targets":[{"app":"mobile","region":"sh","expect":"a","from":"a","to":"b"}]}`,
				`{"action":"swap","reason":"    ","targets":[{"app":"mobile","region":"sh","expect":"a","from":"a","to":"b"}]}`,
				`{"action":"swap","reason":"test","targets":[{"app":"mobile","region":"sh","expect":"a","from":"a","too":"b"}]}`,
				`{"action":"swap","reason":"test"`,
				``,
			} {
				if r := c.emergency(body); r.status/100 != 4 || r.header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("%s: %d %s", body, r.status, r.body)
				}
			}
			c.emergency(`{"action":"swap","reason":"test","targets":[{"app":"mobile","region":"sh","expect":"sh-main","from":"sh-main"}]}`).
				refused(http.StatusUnprocessableEntity, "bad_emergency").at(t, "targets[0].to")
		})
	})
}

// P21, e58: no lane and no path leaves an app without a usable region.
func TestP21LastRegionStays(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		clusters := edit(t, "domain: corp-sh.bank.example}", "domain: corp-sh.bank.example, cluster: k1}")
		onlyHefei := "apps:\n" + kept[strings.Index(kept, "  - key: corporate"):]
		onlyHefei = strings.Replace(onlyHefei, "      - key: sh\n        failover: [hf]\n        endpoints:\n          - {key: main, domain: corp-sh.bank.example}\n", "", 1)
		onlyHefei = strings.NewReplacer("        failover: [sh]\n", "", "otherwise: {region: sh}", "otherwise: {region: hf}").Replace(onlyHefei)
		c.publish(1, onlyHefei, "approve_region_removed=true&approve_big_move=true").ok() // release 2, for relive
		c.publish(2, clusters, "approve_big_move=true").ok()
		c.set("corporate/hf:active:off").ok()
		c.untouched(func() {
			for _, state := range []string{"off", "draining"} {
				c.set("corporate/sh:active:"+state).refused(http.StatusUnprocessableEntity, "last_region")
			}
			c.set("mobile/sh:active:off", "mobile/hf:active:off").refused(http.StatusUnprocessableEntity, "last_region")
			c.set("mobile/sh:active:draining", "mobile/hf:active:off").refused(http.StatusUnprocessableEntity, "last_region")
			for _, state := range []string{"off", "standby"} {
				p := c.cluster("corporate", "k1", "active", state).refused(http.StatusUnprocessableEntity, "region_empty")
				if !strings.Contains(p.Detail, "rule region_empty") {
					t.Errorf("the rule is not named: %s", p.Detail)
				}
			}

			// Break glass that took the other region on one replica.
			w := newCrew(c, map[string][]string{"e1": everything})
			w.of("e1").override = &release.Override{ID: "o1", Actions: []release.OverrideAction{
				{Region: &release.SetRegion{App: "corporate", Region: "sh", State: "off"}}}}
			p := c.post(actions.OnCall, "/overrides/reconcile", `{"replica":"e1","reason":"test"}`).refused(http.StatusUnprocessableEntity, "override_unfit")
			if len(p.Problems) != 1 || !strings.Contains(p.Problems[0].Detail, "rule last_region") {
				t.Errorf("the rule is not named: %+v", p.Problems)
			}

			// A document whose other region is off by hand, by review and by relive.
			for _, r := range []*reply{
				c.publish(4, onlyHefei, "approve_region_removed=true&approve_big_move=true"),
				c.post(actions.OnCall, "/releases/2/relive", `{"reason":"test"}`),
				c.publish(4, edit(t, "        failover: [hf]\n        endpoints:\n          - {key: main,", "        failover: [hf]\n        state: \"off\"\n        endpoints:\n          - {key: main,"), "approve_big_move=true"),
				c.publish(4, edit(t, "        failover: [hf]\n        endpoints:\n          - {key: main,", "        failover: [hf]\n        state: draining\n        endpoints:\n          - {key: main,"), "dry_run=true"),
			} {
				p := r.refused(http.StatusUnprocessableEntity, "bad_document")
				if !strings.Contains(fmt.Sprint(p.Problems), "last_region") {
					t.Errorf("the rule is not named: %+v", p.Problems)
				}
			}
		})
	})
}

func TestReliveBringsADocumentBackAndKeepsTheNight(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.publish(1, edit(t, "capacity: 60", "capacity: 99"), "").ok()
		c.emergency(swapOut).ok()
		rows := c.rows()
		if o := c.post(actions.OnCall, "/releases/1/relive", `{"reason":"back to the first"}`).outcome(); o.Release != 4 {
			t.Errorf("relive made release %d, want 4", o.Release)
		}
		if c.rows() != rows+1 || c.current() != 4 {
			t.Errorf("%d rows, release %d", c.rows()-rows, c.current())
		}
		if got := c.serves("mobile", "sh"); got != "wapabst2.a.com.cn" {
			t.Errorf("after relive %s serves: the swap was undone", got)
		}
		var diff struct{ Changes []release.Difference }
		c.get(actions.Viewer, "/releases/1/diff/4").ok().into(&diff)
		for _, d := range diff.Changes {
			if !strings.HasPrefix(d.Path, "operational.") {
				t.Errorf("the document differs: %s", d)
			}
		}
		c.untouched(func() {
			c.post(actions.OnCall, "/releases/77/relive", `{"reason":"test"}`).refused(http.StatusNotFound, "unknown_release")
			c.post(actions.OnCall, "/releases/x/relive", `{"reason":"test"}`).refused(http.StatusUnprocessableEntity, "bad_request")
		})

		must(t, c.store.RevokeHost(t.Context(), "wapabst2.a.com.cn", ledger.Change{By: "test", Reason: "sold"}))
		c.untouched(func() {
			p := c.post(actions.OnCall, "/releases/2/relive", `{"reason":"test"}`).refused(http.StatusUnprocessableEntity, "host_not_approved")
			p.at(t, "apps[0].regions[0].endpoints[1].domain")
		})
	})
}

// An emergency is tried again on whatever release is newest; a document is not.
func TestAnEmergencySurvivesConcurrentReleases(t *testing.T) {
	t.Parallel()
	var c, other *control
	var once sync.Once
	c = empty(t, "mysql", func(s *store.Store) actions.Ledger {
		return overtaken{s, func(w ledger.Write) {
			if w.Base == 1 {
				once.Do(func() { other.publish(1, edit(t, "capacity: 60", "capacity: 70"), "").ok() })
			}
		}}
	})
	c.publish(0, bank, "").ok()
	other = c.second()
	if o := c.emergency(swapOut).outcome(); o.Release != 3 {
		t.Errorf("the swap is release %d, want 3: after the publication that came first", o.Release)
	}
	if c.keeper.Current().Manifest.Document.Apps[0].Regions[0].Capacity != 70 || c.serves("mobile", "sh") != "wapabst2.a.com.cn" {
		t.Error("one of the two changes is lost")
	}
}

// overtaken is a store in which somebody else may be faster.
type overtaken struct {
	*store.Store
	before func(ledger.Write)
}

func (o overtaken) Append(ctx context.Context, w ledger.Write) error {
	o.before(w)
	return o.Store.Append(ctx, w)
}
