package admin_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
)

// SEC31: who looks people up has a role for it, a bound, and a row in the audit trail
// for each; the id itself is nowhere but in the question. Two nodes count together.
func TestSEC31LookUpsAreBoundedAndSeen(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := published(t, kind)
			var mu sync.Mutex
			var heard []actions.LookUp
			c.do.LookedUp = func(l actions.LookUp) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, l)
			}
			const person = "customer-7310"
			ask := func(node *control, role string) *reply {
				return node.post(role, "/explain", `{"app":"mobile","device_id":"`+person+`"}`)
			}
			for _, role := range []string{actions.Viewer, actions.ListManager, actions.Approver, actions.UserAdmin} {
				ask(c, role).refused(http.StatusForbidden, "role")
			}
			rows := c.rows()
			ask(c, actions.OnCall).ok()
			if c.rows() != rows+1 || c.contentsHave(person) || strings.Contains(c.log.String(), person) {
				t.Error("a look-up leaves no row, or the raw id")
			}

			// 98 more at once, on two nodes, and by both kinds of look-up.
			other := c.second()
			var wait sync.WaitGroup
			for i := range 98 {
				wait.Go(func() {
					node := []*control{c, other}[i%2]
					if i%3 == 0 {
						node.get(actions.OnCall, "/lists/staff/contains?id="+person).ok()
						return
					}
					ask(node, actions.OnCall).ok()
				})
			}
			wait.Wait()
			for _, l := range heard {
				if l.Alert {
					t.Errorf("alarm after 99 look-ups: %+v", l)
				}
			}
			ask(c, actions.OnCall).ok() // the hundredth
			if last := heard[len(heard)-1]; !last.Alert || last.By != actions.OnCall {
				t.Errorf("after a hundred look-ups the alarm is %+v", last)
			}
			rows = c.rows()
			r := ask(c, actions.OnCall)
			p := r.refused(http.StatusTooManyRequests, "too_many_look_ups")
			if after, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || after < 1 || after > 3600 || !strings.Contains(p.Hint, "wait") {
				t.Errorf("Retry-After is %q, the hint %q", r.header.Get("Retry-After"), p.Hint)
			}
			ask(other, actions.OnCall).refused(http.StatusTooManyRequests, "too_many_look_ups")
			c.get(actions.OnCall, "/lists/staff/contains?id=x").refused(http.StatusTooManyRequests, "too_many_look_ups")
			if c.rows() != rows || c.contentsHave(person) {
				t.Error("a refused look-up left a row, or an id")
			}
			if last := heard[len(heard)-1]; !last.Refused || last.Alert {
				t.Errorf("a refusal is heard as %+v", last)
			}
			ask(c, actions.ReleaseEngineer).ok() // somebody else has an hour of their own
			c.clock.ahead.Store(int64(61 * time.Minute))
			ask(c, actions.OnCall).ok()
		})
	}
}

// A burst of one person's look-ups is counted one by one.
func TestSEC31ABurstIsCountedOneByOne(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	var wait sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for range 130 {
		wait.Go(func() {
			r := c.post(actions.OnCall, "/explain", `{"app":"mobile","device_id":"d-1"}`)
			mu.Lock()
			defer mu.Unlock()
			answers[r.status]++
		})
	}
	wait.Wait()
	if answers[http.StatusOK] != actions.LookUpsAnHour || answers[http.StatusTooManyRequests] != 30 {
		t.Errorf("of 130 at once: %v", answers)
	}
}

// Explain answers for the release in use, for any before it, and for a draft.
func TestExplainAsksAnyReleaseOrDraft(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.patch(`{"add":["d-7"],"reason":"one joined"}`).ok() // release 2
		ask := func(more string) (e actions.Explanation) {
			c.post(actions.OnCall, "/explain", `{"app":"mobile","device_id":"d-7"`+more+`}`).ok().into(&e)
			return e
		}
		if e := ask(""); e.Release != 2 || !e.Live || e.Domain != "wapcdst.b.com.cn" || !strings.Contains(e.Text, "staff") {
			t.Errorf("live: %+v", e)
		}
		if e := ask(`,"release":2`); !e.Live || e.Release != 2 {
			t.Errorf("by its number: %+v", e)
		}
		now, before := ask(""), ask(`,"release":1`)
		if before.Release != 1 || before.Live || before.Digest == "" || before.Digest == now.Digest || before.Text == now.Text {
			t.Errorf("before d-7 joined: %+v", before)
		}
		d := c.draft(actions.ReleaseEngineer, edit(t, "when: {in_list: staff}\n        then: {region: hf}", "when: {in_list: staff}\n        then: {region: sh}"), 2)
		if e := ask(fmt.Sprintf(`,"draft":%q`, d.ID)); e.Draft != d.ID || e.Release != 2 || e.Live || e.Domain != "wapabst.a.com.cn" || e.Digest != "" {
			t.Errorf("the draft: %+v", e)
		}
		if row := c.trail("explain")[0]; row.Target != "mobile/draft "+d.ID {
			t.Errorf("the audit row is %+v", row)
		}
		c.post(actions.OnCall, "/explain", `{"release":99}`).refused(http.StatusNotFound, "unknown_release")
		c.post(actions.OnCall, "/explain", `{"draft":"none"}`).refused(http.StatusNotFound, "unknown_draft")
		c.post(actions.OnCall, "/explain", `{"draft":"none","release":1}`).refused(http.StatusUnprocessableEntity, "two_questions")
	})
}
