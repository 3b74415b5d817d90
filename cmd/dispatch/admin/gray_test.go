package admin_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// grayDocument is bank with a gray, a share of buckets and a share by conditions.
func grayDocument(t *testing.T) string {
	return edit(t, "        then: {region: hf}\n", `        then: {region: hf}
      - {key: ranges, when: {platform: android}, then: {share: {region: hf, buckets: [[0, 99]]}}}
      - {key: small, when: {platform: ios}, then: {share: {region: hf, of: 100}}}
      - {key: gray, match_all: true, then: {share: {region: hf, of: 0}}}
`)
}

// gauge is a Prometheus that says what a test wants.
type gauge struct {
	*httptest.Server
	answer atomic.Pointer[http.HandlerFunc]
}

// says answers with the text as JSON.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
	}
}

// value is what Prometheus answers to a query with one series.
func value(v string) http.HandlerFunc {
	return says(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"` + v + `"]}]}}`)
}

func newGauge(t *testing.T) *gauge {
	g := new(gauge)
	g.set(value("0.001"))
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*g.answer.Load())(w, r) }))
	t.Cleanup(g.Close)
	return g
}

func (g *gauge) set(h http.HandlerFunc) { g.answer.Store(&h) }

// graying is a control node with a gray whose signal is a gauge, and a clock.
type graying struct {
	*control
	gauge *gauge
}

// grays makes the node of a test one with grays.
func grays(t *testing.T, c *control) *graying {
	t.Helper()
	g := &graying{c, newGauge(t)}
	c.do.Now, c.do.FourEyes, c.do.Signals = c.clock.now, true, []string{strings.TrimPrefix(g.gauge.URL, "http://")}
	c.publish(c.current(), grayDocument(t), "approve_big_move=true").ok()
	return g
}

// plan is the body of a plan; more is more of it.
func (g *graying) plan(rev uint64, more string) string {
	return fmt.Sprintf(`{"reason":"test","rev":%d,"region":"hf","signals":[{"kind":"prometheus","url":%q,"query":"errors","op":"<","threshold":0.01}]%s}`,
		rev, g.gauge.URL, more)
}

// planned writes and signs a plan.
func (g *graying) planned(more string) {
	g.t.Helper()
	g.put(actions.ReleaseEngineer, "/grays/mobile/gray", g.plan(g.gray().Rev, more)).ok()
	if now := g.gray(); now.State == actions.GraySubmitted {
		g.post(actions.Approver, "/grays/mobile/gray/approve", fmt.Sprintf(`{"reason":"read it","digest":%q}`, now.Digest)).ok()
	}
}

func (g *graying) put(role, path, body string) *reply {
	g.t.Helper()
	return g.call(request{role: role, method: http.MethodPut, path: path, body: body})
}

func (g *graying) gray() (view actions.Gray) {
	g.t.Helper()
	g.get(actions.Viewer, "/grays/mobile/gray").ok().into(&view)
	return view
}

// turn does something to the gray, expecting the share that is shown.
func (g *graying) turn(role, action string) *reply {
	g.t.Helper()
	return g.post(role, "/grays/mobile/gray", fmt.Sprintf(`{"reason":"test","action":%q,"expect":%q,"confirm":"gray"}`, action, g.gray().Share))
}

// look moves the clock by a window and looks.
func (g *graying) look() {
	g.t.Helper()
	g.clock.ahead.Add(int64(actions.GrayWindow))
	must(g.t, g.do.LookAtGrays(g.t.Context(), slog.New(slog.NewJSONHandler(g.log, nil))))
}

// ripen lets a step bake and gives it its sample.
func (g *graying) ripen() {
	g.t.Helper()
	g.look() // every replica serves it
	g.clock.ahead.Add(int64(11 * time.Minute))
	g.answered(500)
	g.look()
	g.look()
}

// answered adds answers of the gray in the minute that was.
func (g *graying) answered(n uint64) {
	g.t.Helper()
	minute := g.clock.now().Add(-time.Minute).Truncate(time.Minute)
	must(g.t, g.store.AddCounts(g.t.Context(), ledger.Counts{Replica: "e1", Boot: fmt.Sprint(g.current()), Counts: []fleet.Count{
		{Minute: minute, App: "mobile", Region: "hf", Endpoint: "hf-main", Policy: "gray", Reason: "POLICY", Release: g.current(), N: n},
		{Minute: minute, App: "mobile", Region: "sh", Endpoint: "sh-main", Reason: "DEFAULT", Release: g.current(), N: 19 * n},
		{Minute: minute, App: "mobile", Region: "hf", Endpoint: "hf-main", Reason: "STICKY", Release: g.current(), N: 1000 * n}}}))
}

func (g *graying) expect(state, share, why string) {
	g.t.Helper()
	if now := g.gray(); now.State != state || now.Share != share || !strings.Contains(now.Why, why) {
		g.t.Errorf("the gray is %s at %s (%s), want %s at %s (%s)", now.State, now.Share, now.Why, state, share, why)
	}
}

// Plan, sign, start, four steps and the end, as console.md section 5 has it.
func TestAGrayGrowsStepByStep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *control) {
		g := grays(t, c)
		g.expect(actions.GrayNone, "0", "")
		g.turn(actions.ReleaseEngineer, "start").refused(http.StatusNotFound, "no_plan")
		g.put(actions.ReleaseEngineer, "/grays/mobile/gray", g.plan(0, "")).ok()
		g.expect(actions.GraySubmitted, "0", "second person")
		g.turn(actions.ReleaseEngineer, "start").refused(http.StatusForbidden, "not_approved")
		plan := g.gray()
		if !plan.TwoPeople || plan.Next != 500 || len(plan.Steps) != 4 || plan.Plan.Sample != 500 || time.Duration(plan.Plan.Bake) != 10*time.Minute {
			t.Errorf("the plan is %+v %+v", plan, plan.Plan)
		}
		sign := fmt.Sprintf(`{"reason":"read it","digest":%q}`, plan.Digest)
		g.post(actions.ReleaseEngineer, "/grays/mobile/gray/approve", sign).refused(http.StatusForbidden, "role")
		g.put(actions.ReleaseEngineer, "/grays/mobile/gray", g.plan(0, "")).refused(http.StatusConflict, "paper_exists")
		g.put(actions.ReleaseEngineer, "/grays/mobile/gray", g.plan(plan.Rev, `,"sample":400`)).ok()
		g.post(actions.Approver, "/grays/mobile/gray/approve", sign).refused(http.StatusConflict, "stale_plan")
		g.planned("")
		if now := g.gray(); now.State != actions.GrayPlanned || now.ApprovedBy != actions.Approver {
			t.Fatalf("the plan is %s, signed by %q", now.State, now.ApprovedBy)
		}
		g.turn(actions.ReleaseEngineer, "next").refused(http.StatusConflict, "gray_state")
		g.turn(actions.ReleaseEngineer, "start").ok()
		for i, share := range []string{"500", "2000", "5000", "10000"} {
			g.expect(actions.GrayRunning, share, "")
			if i == 3 {
				break
			}
			p := g.turn(actions.ReleaseEngineer, "next").refused(http.StatusConflict, "not_ready")
			if !strings.Contains(fmt.Sprint(p.Problems), "replica") {
				t.Errorf("before everybody serves it: %v", p.Problems)
			}
			g.look()
			p = g.turn(actions.ReleaseEngineer, "next").refused(http.StatusConflict, "not_ready")
			if text := fmt.Sprint(p.Problems); !strings.Contains(text, "bake:") || !strings.Contains(text, "sample: 0 of 500") || !strings.Contains(text, "signals:") {
				t.Errorf("at once: %v", p.Problems)
			}
			g.ripen()
			if now := g.gray(); !now.Ready || now.Sample != 500 || now.Windows < 2 || now.Seen == nil || now.Seen.Of != 500*uint64(i+1) && now.Seen.Of != 500 || now.Seen.Low >= now.Seen.Part {
				t.Errorf("step %d: %+v, seen %+v", i, now, now.Seen)
			}
			g.turn(actions.ReleaseEngineer, "next").ok()
		}
		g.turn(actions.ReleaseEngineer, "finish").refused(http.StatusConflict, "not_everywhere")
		g.look()
		var out actions.GrayOutcome
		g.turn(actions.ReleaseEngineer, "finish").ok().into(&out)
		if out.State != actions.GrayFinished || !strings.Contains(out.Prompt, "dispatchctl gray default mobile/gray") {
			t.Errorf("finished as %+v", out)
		}
		if steps := g.trail("gray_step"); len(steps) != 4 {
			t.Errorf("the trail has %d steps", len(steps))
		}
		if check := must2(g.store.VerifyAudit(t.Context()))(t); check.Bad != 0 {
			t.Errorf("the trail is broken: %+v", check)
		}
	})
}

// badSignals are what a Prometheus may do instead of an answer.
func badSignals() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"500":             func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"503 with a body": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503); value("0.001")(w, r) },
		"empty":           says(""),
		"no series":       says(`{"status":"success","data":{"resultType":"vector","result":[]}}`),
		"two series":      says(`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"0"]},{"value":[1,"0"]}]}}`),
		"a matrix":        says(`{"status":"success","data":{"resultType":"matrix","result":[{"values":[[1,"0"]]}]}}`),
		"NaN":             value("NaN"),
		"+Inf":            value("+Inf"),
		"-Inf":            value("-Inf"),
		"a word":          value("good"),
		"nothing":         value(""),
		"a bare number":   says(`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,0.001]}]}}`),
		"an error":        says(`{"status":"error","error":"bad query"}`),
		"null":            says(`null`),
		"a list":          says(`[]`),
		"half":            says(`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"0.0`),
		"HTML":            func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>log in</html>") },
		"JSON as text": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"0"]}}`)
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"too much":   says(`{"status":"success","pad":"` + strings.Repeat("x", 65<<10) + `"}`),
		"a cut":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"no answer":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a slow body": func(w http.ResponseWriter, r *http.Request) {
			says(`{"status":`)(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	}
}

// P19 of safety.md: a gray whose signal fails or is missing pauses within two
// windows, and never grows, though bake and sample are reached and it may by itself.
func TestP19BadSignalsPauseAndNeverAdvance(t *testing.T) {
	t.Parallel()
	bad := badSignals()
	bad["fails"] = value("0.5")
	for name, answer := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := grays(t, published(t, "sqlite"))
			g.planned(`,"auto":true`)
			g.turn(actions.ReleaseEngineer, "start").ok()
			g.look() // everybody serves it
			g.look()
			g.expect(actions.GrayRunning, "500", "")
			g.gauge.set(answer)
			g.clock.ahead.Add(int64(time.Hour))
			g.answered(100_000)
			before := g.current()
			for range 2 {
				g.look()
			}
			why := "no data"
			if name == "fails" {
				why = "a signal fails"
			}
			g.expect(actions.GrayPaused, "500", why)
			for range 5 {
				g.look()
			}
			g.turn(actions.ReleaseEngineer, "next").refused(http.StatusConflict, "gray_state")
			if g.current() != before {
				t.Errorf("release %d became %d", before, g.current())
			}
			if !strings.Contains(g.log.String(), `"a gray stands"`) {
				t.Error("nobody is told")
			}
			g.gauge.set(value("0.001")) // a person goes on, and it has to pass twice again
			g.turn(actions.ReleaseEngineer, "resume").ok()
			g.look()
			g.expect(actions.GrayRunning, "500", "")
			g.look()
			g.expect(actions.GrayRunning, "2000", "")
		})
	}
}

// One window without data is borne, and starts the count of good ones anew.
func TestOneBadWindowPausesNothing(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	g.planned(`,"auto":true`)
	g.turn(actions.ReleaseEngineer, "start").ok()
	g.look()
	g.clock.ahead.Add(int64(time.Hour))
	g.answered(1000)
	for range 3 {
		g.gauge.set(value("0.001"))
		g.look()
		g.gauge.set(value("NaN"))
		g.look()
		g.expect(actions.GrayRunning, "500", "")
	}
	g.gauge.set(value("0.001"))
	g.look()
	g.expect(actions.GrayRunning, "500", "")
	g.look()
	g.expect(actions.GrayRunning, "2000", "")
}

// Without requests a gray waits, however long: there is nothing to judge it by.
func TestNoTrafficNeverAdvances(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	g.planned(`,"auto":true`)
	g.turn(actions.ReleaseEngineer, "start").ok()
	g.look()
	for range 20 {
		g.clock.ahead.Add(int64(time.Hour))
		g.look()
	}
	g.expect(actions.GrayRunning, "500", "")
	g.turn(actions.ReleaseEngineer, "next").refused(http.StatusConflict, "not_ready")
}

// A timer takes steps up to a half, and leaves the rest to a person.
func TestATimerNeverPassesAHalf(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	g.planned(`,"auto":true`)
	g.turn(actions.ReleaseEngineer, "start").ok()
	for _, share := range []string{"2000", "5000"} {
		g.ripen()
		g.expect(actions.GrayRunning, share, "")
	}
	for range 4 {
		g.ripen()
	}
	g.expect(actions.GrayRunning, "5000", "")
	if now := g.gray(); !now.Ready || now.Next != 10_000 {
		t.Errorf("the last step is not ready: %v", now.Waits)
	}
	g.turn(actions.ReleaseEngineer, "next").ok()
	g.expect(actions.GrayRunning, "10000", "")
}

// What follows when a signal fails twice in a row.
func TestOnFail(t *testing.T) {
	t.Parallel()
	for onFail, want := range map[string]struct{ state, share string }{
		actions.OnFailPause: {actions.GrayPaused, "2000"},
		actions.OnFailBack:  {actions.GrayPaused, "500"},
		actions.OnFailZero:  {actions.GrayAborted, "0"},
	} {
		t.Run(onFail, func(t *testing.T) {
			t.Parallel()
			g := grays(t, published(t, "sqlite"))
			g.planned(`,"on_fail":"` + onFail + `"`)
			g.turn(actions.ReleaseEngineer, "start").ok()
			g.ripen()
			g.turn(actions.ReleaseEngineer, "next").ok()
			g.look()
			g.gauge.set(value("0.5"))
			g.look()
			g.expect(actions.GrayRunning, "2000", "")
			g.look()
			g.expect(want.state, want.share, "")
		})
	}
}

// While changes are frozen, or an emergency waits for its review, nothing grows by itself.
func TestAFreezeHoldsGrays(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	g.planned(`,"auto":true,"on_fail":"zero"`)
	g.turn(actions.ReleaseEngineer, "start").ok()
	g.look()
	g.post(actions.OnCall, "/emergency", `{"reason":"holidays","action":"freeze","targets":[{"expect":"open","state":"frozen"}]}`).ok()
	for range 3 {
		g.ripen()
	}
	g.expect(actions.GrayRunning, "500", "")
	g.turn(actions.ReleaseEngineer, "next").refused(http.StatusConflict, "frozen")
	g.turn(actions.OnCall, "abort").ok()
	g.expect(actions.GrayAborted, "0", "")
}

// Abort needs no plan, no fresh plan, no patience and no luck.
func TestAbortAlwaysWins(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *control) {
		g := grays(t, c)
		g.post(actions.OnCall, "/grays/mobile/gray", `{"reason":"test","action":"abort"}`).refused(http.StatusUnprocessableEntity, "confirm_mismatch")
		g.post(actions.Viewer, "/grays/mobile/gray", `{"reason":"test","action":"abort","confirm":"gray"}`).refused(http.StatusForbidden, "role")
		g.post(actions.OnCall, "/grays/mobile/small", `{"reason":"test","action":"abort","confirm":"small"}`).ok() // no plan
		g.post(actions.OnCall, "/grays/mobile/ranges", `{"reason":"test","action":"abort","confirm":"ranges"}`).ok()
		g.planned("")
		g.turn(actions.OnCall, "start").refused(http.StatusForbidden, "role")
		g.turn(actions.ReleaseEngineer, "start").ok()
		other := g.second()
		other.do.Now = g.clock.now
		for range 3 { // the plan changes all the time
			g.turn(actions.OnCall, "pause").ok()
			g.turn(actions.ReleaseEngineer, "resume").ok()
		}
		must2(other.do.AbortGray(t.Context(), actions.Write{Actor: actions.Actor{Name: "on call", Roles: []string{actions.OnCall}}, Reason: "it burns", Confirm: "gray"},
			actions.GrayRef{App: "mobile", Policy: "gray"}, true))(t)
		must(t, g.keeper.Accept(t.Context(), must2(g.store.Latest(t.Context(), release.StreamEdge))(t), g.store, "database"))
		g.expect(actions.GrayAborted, "0", "it burns")
		head := g.current()
		g.turn(actions.OnCall, "abort").ok()
		if g.current() != head {
			t.Errorf("aborting twice made release %d of %d", g.current(), head)
		}
		g.turn(actions.ReleaseEngineer, "resume").refused(http.StatusConflict, "gray_state")
		if epoch := g.keeper.Current().Manifest.Operational.Apps["mobile"].Policies["gray"].Epoch; epoch != 1 {
			t.Errorf("a hard abort leaves epoch %d", epoch)
		}
	})
}

// An abort that is posted as an emergency is one too: the plan follows.
func TestThePlanFollowsTheRelease(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	g.planned("")
	g.turn(actions.ReleaseEngineer, "start").ok()
	g.post(actions.OnCall, "/emergency", `{"reason":"it burns","action":"abort_gray","targets":[{"app":"mobile","policy":"gray","expect":"500"}]}`).ok()
	g.turn(actions.ReleaseEngineer, "next").refused(http.StatusConflict, "expect_mismatch")
	g.look()
	g.expect(actions.GrayAborted, "0", "set to 0")

	g.planned("")
	g.turn(actions.ReleaseEngineer, "start").ok()
	g.turn(actions.OnCall, "pause").ok()
	g.post(actions.OnCall, "/emergency", `{"reason":"it burns","action":"abort_gray","targets":[{"app":"mobile","policy":"gray","expect":"500"}]}`).ok()
	g.look()
	g.expect(actions.GrayAborted, "0", "set to 0")

	g.planned("")
	g.turn(actions.ReleaseEngineer, "start").ok()
	salted := strings.Replace(grayDocument(t), "{key: gray, match_all: true,", "{key: gray, match_all: true, salt: another,", 1)
	g.publish(g.current(), salted, "approve_big_move=true").ok()
	g.look()
	g.expect(actions.GrayPaused, "500", "the salt was changed")
	g.turn(actions.ReleaseEngineer, "resume").refused(http.StatusConflict, "gray_changed")
}

func TestPlansAreChecked(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	signals := func(text string) string { return `{"reason":"test","rev":0,"region":"hf","signals":[` + text + `]}` }
	for name, test := range map[string]struct{ body, says string }{
		"another region":       {strings.Replace(g.plan(0, ""), `"hf"`, `"sh"`, 1), "goes to hf"},
		"steps that shrink":    {g.plan(0, `,"steps":[500,400]`), "400 is not above 500"},
		"a step past all":      {g.plan(0, `,"steps":[10001]`), "at most 10000"},
		"a moment's bake":      {g.plan(0, `,"bake":"1s"`), "1s is not between"},
		"a host of its own":    {signals(`{"kind":"webhook","url":"http://169.254.169.254/latest"}`), "--signal-hosts"},
		"another port":         {signals(`{"kind":"webhook","url":"http://127.0.0.1:1/"}`), "--signal-hosts"},
		"a password":           {signals(`{"kind":"webhook","url":"http://a:b@` + strings.TrimPrefix(g.gauge.URL, "http://") + `/"}`), "password"},
		"a file":               {signals(`{"kind":"webhook","url":"file:///etc/passwd"}`), "no address"},
		"a query without a op": {signals(`{"kind":"prometheus","url":"` + g.gauge.URL + `","query":"up"}`), "not one of <"},
		"a probe of something": {signals(`{"kind":"probe","url":"` + g.gauge.URL + `"}`), "takes no url"},
	} {
		t.Run(name, func(t *testing.T) {
			p := g.put(actions.ReleaseEngineer, "/grays/mobile/gray", test.body).refused(http.StatusUnprocessableEntity, "bad_plan")
			if !strings.Contains(fmt.Sprint(p.Problems), test.says) {
				t.Errorf("problems do not say %q: %v", test.says, p.Problems)
			}
		})
	}
	g.put(actions.ReleaseEngineer, "/grays/mobile/gray", signals("")).refused(http.StatusUnprocessableEntity, "bad_request")
	g.put(actions.ReleaseEngineer, "/grays/mobile/ranges", g.plan(0, "")).refused(http.StatusUnprocessableEntity, "share_form")
	g.put(actions.ReleaseEngineer, "/grays/mobile/staff", g.plan(0, "")).refused(http.StatusUnprocessableEntity, "no_gray")
	g.put(actions.OnCall, "/grays/mobile/gray", g.plan(0, "")).refused(http.StatusForbidden, "role")
}

// Small steps are one person's; with four eyes off, large ones are too, and it is told.
func TestWhoSignsAPlan(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	g.put(actions.ReleaseEngineer, "/grays/mobile/gray", g.plan(0, `,"steps":[1000,2000,3000]`)).ok()
	g.expect(actions.GrayPlanned, "0", "")
	g.turn(actions.ReleaseEngineer, "start").ok()

	off := grays(t, published(t, "sqlite"))
	off.do.FourEyes = false
	off.planned(`,"steps":[5000]`)
	o := off.turn(actions.ReleaseEngineer, "start").outcome()
	if len(o.Warnings) != 1 || !strings.Contains(o.Warnings[0].Detail, "four eyes are off") {
		t.Errorf("one person moved half: %v", o.Warnings)
	}
}

// The preview names the buckets, counts, and gives ids that explain says the same of.
func TestPreviewOfAStep(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	var p actions.GrayPreview
	g.get(actions.ReleaseEngineer, "/grays/mobile/gray/preview").ok().into(&p)
	if p.From != 0 || p.To != 500 || p.Buckets != [2]int{0, 499} || p.Salt != "mobile/gray" || len(p.MadeUp) != 10 {
		t.Errorf("the preview is %+v", p)
	}
	if b := p.Outcome.Preview.Buckets; len(b) != 1 || b[0].Buckets != 500 || b[0].To != "hf" {
		t.Errorf("buckets that move: %v", b)
	}
	if moved := p.Outcome.Preview.Moved["mobile"]; moved < 150 || moved > 450 { // 500, less the 40 % that are in hf by the split and those without an id
		t.Errorf("%d of 10,000 synthetic requests move", moved)
	}
	for _, id := range p.MadeUp {
		text := string(g.post(actions.OnCall, "/explain", fmt.Sprintf(`{"app":"mobile","device_id":%q}`, id)).ok().body)
		if !strings.Contains(text, "enters when the share reaches") {
			t.Errorf("%s is not explained: %s", id, text)
		}
	}
	g.get(actions.ReleaseEngineer, "/grays/mobile/gray/preview?to=2000").ok().into(&p)
	if p.To != 2000 || p.Buckets != [2]int{0, 1999} {
		t.Errorf("to 2000: %+v", p)
	}
	if g.current() != 2 || len(g.trail("gray_step")) != 0 {
		t.Error("a preview changed something")
	}
}
