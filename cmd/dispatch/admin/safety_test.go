package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// Confirmation is not a matter of the page: whoever asks, and however, types what
// they act on, or nothing happens.
func TestAnEmergencyIsConfirmedByWhatItActsOn(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	const target = `{"app":"mobile","region":"sh","cluster":"k1","policy":"staff","expect":"active","from":"sh-main","to":"sh-spare","state":"off"}`
	const other = `{"app":"corporate","region":"hf","cluster":"k1","policy":"home","expect":"active","from":"sh-main","to":"sh-spare","state":"off"}`
	for name, want := range map[string]string{
		`"action":"swap","targets":[` + target + `]`:                             "sh",
		`"action":"region_state","targets":[` + other + "," + target + `]`:       "hf,sh",
		`"action":"region_state","targets":[` + target + "," + target + `]`:      "sh",
		`"action":"cluster_state","targets":[` + target + `]`:                    "sh/k1",
		`"action":"abort_gray","targets":[` + target + `]`:                       "staff",
		`"action":"freeze","targets":[{"expect":"open","state":"frozen"}]`:       "freeze",
		`"action":"freeze","targets":[{"expect":"frozen","state":"open"}]`:       "unfreeze",
		`"override":["flap_wait"],"action":"swap","targets":[` + target + `]`:    "sh",
		`"confirm":"sh ","action":"region_state","targets":[` + other + `]`:      "hf",
		`"confirm":"hf","action":"region_state","targets":[` + target + `]`:      "sh",
		`"confirm":"sh,hf","action":"region_state","targets":[` + target + `]`:   "sh",
		`"confirm":"prod/sh","action":"region_state","targets":[` + target + `]`: "sh",
	} {
		if !strings.Contains(name, `"confirm"`) {
			name = `"confirm":"yes",` + name
		}
		c.untouched(func() {
			p := c.emergency(`{"reason":"test",`+name+`}`).refused(http.StatusUnprocessableEntity, "confirm_mismatch")
			if string(p.Data) != `{"confirm":"`+want+`"}` || !strings.HasSuffix(p.Hint, ": "+want) {
				t.Errorf("%s: wanted is %s, said is %s and %q", name, want, p.Data, p.Hint)
			}
		})
	}
	relive := func(confirm string) *reply {
		return c.post(actions.OnCall, "/releases/1/relive", fmt.Sprintf(`{"reason":"test","confirm":%q}`, confirm))
	}
	c.untouched(func() {
		for _, confirm := range []string{"", "1", "release 2", "relive"} {
			relive(confirm).refused(http.StatusUnprocessableEntity, "confirm_mismatch")
		}
	})
	relive(" Release 1 ").ok()
	c.emergency(strings.Replace(swapOut, `"swap",`, `"swap","confirm":"SH",`, 1)).ok()

	// With the environment before it, the right word on the wrong installation is refused.
	opt := c.do.Options
	opt.Env = "prod"
	do, err := actions.New(opt)
	must(t, err)
	back := actions.Emergency{Action: actions.SwapEndpoints, Targets: []actions.Target{{App: "mobile", Region: "sh", Expect: "sh-spare", From: "sh-spare", To: "sh-main"}}}
	if do.Confirmation(back) != "prod/sh" || do.ConfirmRelive(7) != "prod/release 7" {
		t.Errorf("in prod %q and %q are typed", do.Confirmation(back), do.ConfirmRelive(7))
	}
	if _, err := do.Emergency(t.Context(), confirmed(engineer, "sh"), back); err == nil {
		t.Error("without the environment it was done")
	}
	if _, err := do.Emergency(t.Context(), confirmed(engineer, "prod/sh"), back); err != nil {
		t.Error(err)
	}
}

// seen is a prober's row of a host, as it looks after its last five probes, newest last.
func seen(prober, host, state, shots string, ago time.Duration) ledger.Probe {
	now := time.Now()
	p := ledger.Probe{Host: host, Prober: prober, State: state, Since: now.Add(-ago - time.Minute), Last: now.Add(-ago), Expires: now.Add(1000 * time.Hour), Recent: []ledger.ProbeShot{}}
	for i, shot := range shots {
		s := ledger.ProbeShot{At: p.Last.Add(-time.Duration(len(shots)-1-i) * 5 * time.Second), OK: shot == '1', Millis: 7}
		if !s.OK {
			s.Problem = "connect: refused"
		}
		p.Recent = append([]ledger.ProbeShot{s}, p.Recent...)
		p.Problem = s.Problem
	}
	return p
}

// probed is a control node with probers, which saw what the rows say.
func (c *control) probed(rows ...ledger.Probe) {
	c.t.Helper()
	c.do.Probes = true
	must(c.t, c.store.SaveProbes(c.t.Context(), rows))
}

// hosts of bank.
const mainHost, spareHost, hefei = "wapabst.a.com.cn", "wapabst2.a.com.cn", "wapcdst.b.com.cn"

// allUp is what a prober sees on a quiet day.
func allUp(prober string) (rows []ledger.Probe) {
	for _, host := range []string{mainHost, spareHost, hefei, "wap.bank.example", "corp.bank.example", "corp-sh.bank.example", "corp-hf.bank.example"} {
		rows = append(rows, seen(prober, host, "up", "11111", 2*time.Second))
	}
	return rows
}

const swapBack = `{"action":"swap","reason":"sh-main is back","targets":[{"app":"mobile","region":"sh","expect":"sh-spare","from":"sh-spare","to":"sh-main"}]}`

// with puts more members into a body.
func with(body, members string) string { return strings.Replace(body, "{", "{"+members+",", 1) }

// A swap goes to a host that enough probers see up, lately.
func TestASwapNeedsAFreshProbe(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	for name, one := range map[string]struct {
		rows []ledger.Probe
		says string // empty: it is allowed
	}{
		"nobody has probed it":                         {nil, "nobody has probed it within 30s"},
		"one prober, up":                               {[]ledger.Probe{seen("a", spareHost, "up", "11111", time.Second)}, ""},
		"one prober, long ago":                         {[]ledger.Probe{seen("a", spareHost, "up", "11111", time.Minute)}, "nobody has probed it within 30s"},
		"one prober, down":                             {[]ledger.Probe{seen("a", spareHost, "down", "11000", time.Second), seen("a", hefei, "up", "1", 0)}, "down since"},
		"one prober, not known yet":                    {[]ledger.Probe{seen("a", spareHost, "unknown", "1", time.Second)}, "seen up by 0 of 1 probers, 1 are needed"},
		"two probers, one up":                          {[]ledger.Probe{seen("a", spareHost, "up", "11", 0), seen("b", spareHost, "unknown", "1", 0)}, "seen up by 1 of 2 probers, 2 are needed"},
		"three probers, two up":                        {[]ledger.Probe{seen("a", spareHost, "up", "11", 0), seen("b", spareHost, "up", "11", 0), seen("d", spareHost, "down", "000", 0)}, ""},
		"three probers, one of them up and two silent": {[]ledger.Probe{seen("a", spareHost, "up", "11", 0), seen("b", spareHost, "down", "000", time.Hour/2), seen("d", spareHost, "down", "000", time.Hour/2)}, ""},
		"a prober that is distrusted and sees it fail": {[]ledger.Probe{seen("a", spareHost, "up", "110", 0), seen("a", hefei, "up", "110", 0)}, "the probers are distrusted"},
		"a prober that is distrusted and reaches it":   {[]ledger.Probe{seen("a", spareHost, "up", "111", 0), seen("a", hefei, "up", "110", 0), seen("a", mainHost, "up", "110", 0)}, ""},
	} {
		for _, host := range []string{spareHost, mainHost, hefei} { // rows of the case before
			for _, prober := range []string{"a", "b", "d"} {
				must(t, c.store.SaveProbes(t.Context(), []ledger.Probe{seen(prober, host, "unknown", "0", 59*time.Minute)}))
			}
		}
		c.probed(one.rows...)
		var preview actions.EmergencyPreview
		c.untouched(func() { c.post(actions.OnCall, "/emergency?dry_run=true", swapOut).ok().into(&preview) })
		i := slices.IndexFunc(preview.Rules, func(r actions.RuleResult) bool { return r.Rule == actions.ProbeFresh })
		if rule := preview.Rules[i]; rule.OK != (one.says == "") || !strings.Contains(rule.Detail, one.says) || !rule.OK && rule.Satisfy == "" {
			t.Errorf("%s: %+v, want %q", name, rule, one.says)
		}
		if one.says != "" {
			c.untouched(func() {
				p := c.emergency(swapOut).refused(http.StatusConflict, "safety_rule")
				if len(p.Problems) != 1 || p.Problems[0].Path != actions.ProbeFresh || !strings.Contains(p.Hint, `override: ["probe_fresh"]`) || !strings.Contains(p.Hint, "break-glass") {
					t.Errorf("%s: the refusal is %+v", name, p)
				}
			})
		}
	}
}

// A rule is gone past by its name, by who has the role for it, and that is written down.
func TestARuleIsOverriddenByNameWithTheRole(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.probed(seen("a", spareHost, "down", "000", 0), seen("a", hefei, "up", "111", 0), seen("a", mainHost, "up", "111", 0))
		past := func(role, rules string) *reply {
			return c.post(role, "/emergency", with(swapOut, `"override":[`+rules+`]`))
		}
		c.untouched(func() {
			past(actions.OnCall, `"probe_fresh"`).refused(http.StatusForbidden, "role")
			past(actions.ReleaseEngineer, `"flap_wait"`).refused(http.StatusForbidden, "role")
			past(actions.BreakGlass, `"flap_wait","rate"`).refused(http.StatusConflict, "safety_rule")
			for _, name := range []string{`"usable_region"`, `"dangling_name"`, `"capacity"`, `"all"`, `""`} {
				past(actions.BreakGlass, name).refused(http.StatusUnprocessableEntity, "bad_override")
			}
		})
		o := past(actions.BreakGlass, `"probe_fresh","rate"`).outcome()
		if !slices.ContainsFunc(o.Warnings, func(w fault.Problem) bool {
			return w.Path == "probe_fresh" && strings.HasPrefix(w.Detail, "overridden: ")
		}) {
			t.Errorf("the warnings are %+v", o.Warnings)
		}
		row := c.auditRows("action=swap")[0]
		if !strings.Contains(string(row.Details), `"overridden":["probe_fresh"]`) || row.Actor != actions.BreakGlass {
			t.Errorf("the row is %s by %s", row.Details, row.Actor)
		}
		if log := c.log.String(); !strings.Contains(log, `"level":"WARN","msg":"safety rules are overridden","rules":["probe_fresh"]`) {
			t.Errorf("the log is silent:\n%s", log)
		}
	})
}

// Rest of a region and a person's rate, whichever control node did what came before.
func TestARegionRestsAndAPersonIsBounded(t *testing.T) {
	t.Parallel()
	c := published(t, "mysql")
	other := c.second()
	c.strict.Store(true)
	age := func(by time.Duration) { // the store's clock says when an emergency was done
		c.clock.ahead.Add(-int64(by))
	}
	rule := func(r *reply, names ...string) problem {
		t.Helper()
		p := r.refused(http.StatusConflict, "safety_rule")
		var got []string
		for _, one := range p.Problems {
			got = append(got, one.Path)
			if one.Hint == "" {
				t.Errorf("rule %s does not say what would satisfy it", one.Path)
			}
		}
		if !slices.Equal(got, names) {
			t.Errorf("the rules are %q, want %q", got, names)
		}
		return p
	}
	age(9 * time.Minute)
	c.emergency(swapOut).ok()
	age(-9*time.Minute + 30*time.Second)
	other.emergency(swapBack).ok() // nine minutes and then 30 s ago: two within ten minutes
	age(-30 * time.Second)
	c.follows(t)
	c.untouched(func() {
		if p := rule(c.emergency(swapOut), "flap_wait"); !strings.Contains(p.Detail, "2 times within 10m") {
			t.Errorf("the refusal is %q", p.Detail)
		}
		// Another region rests for itself, and aborting and freezing never wait.
		var preview actions.EmergencyPreview
		c.post(actions.OnCall, "/emergency?dry_run=true", `{"action":"region_state","reason":"test","targets":[{"app":"mobile","region":"hf","expect":"active","state":"draining"}]}`).ok().into(&preview)
		for _, r := range preview.Rules {
			if !r.OK {
				t.Errorf("hf has to wait: %+v", r)
			}
		}
		preview = actions.EmergencyPreview{}
		c.post(actions.OnCall, "/emergency?dry_run=true", `{"action":"freeze","reason":"test","targets":[{"expect":"open","state":"frozen"}]}`).ok().into(&preview)
		if len(preview.Rules) != 0 || preview.Confirm != "freeze" {
			t.Errorf("freezing has rules: %+v", preview.Rules)
		}
	})
	c.set("mobile/hf:active:draining").ok() // the third of this person
	c.untouched(func() {
		rule(c.emergency(swapOut), "flap_wait", "rate")
		rule(c.post(actions.OnCall, "/releases/1/relive", `{"reason":"test"}`), "rate")
		rule(c.set("mobile/hf:draining:active"), "flap_wait", "rate")
		rule(other.post(actions.ReleaseEngineer, "/emergency", swapOut), "flap_wait") // a second person
	})
	c.post(actions.OnCall, "/emergency", `{"action":"freeze","reason":"test","targets":[{"expect":"open","state":"frozen"}]}`).ok()
	c.post(actions.BreakGlass, "/emergency", with(swapOut, `"override":["flap_wait"]`)).ok()
}

// follows lets another node take what was released here.
func (c *control) follows(t *testing.T) {
	t.Helper()
	newest, err := c.store.Latest(t.Context(), release.StreamEdge)
	must(t, err)
	if c.current() < newest.Number {
		must(t, c.keeper.Accept(t.Context(), newest, c.store, "database"))
	}
}

// A clock that was set back makes nobody wait for a future that does not come.
func TestP16AClockThatWasSetBackHoldsNoEmergencyUp(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.strict.Store(true)
	c.clock.ahead.Store(int64(24 * time.Hour))
	c.emergency(swapOut).ok()
	c.clock.ahead.Store(0)
	c.emergency(swapBack).ok()
}

// P21, e58: what the settings ask for beyond the one region that always stays.
func TestP21TheSettingsAskForMoreRegions(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	s := actions.DefaultSettings()
	s.Safety.MinUsableRegions = 2
	body, err := json.Marshal(map[string]any{"settings": s})
	must(t, err)
	_, err = c.store.SavePaper(t.Context(), ledger.Paper{Kind: ledger.Settings, ID: "settings", State: "in_force", By: "test", Body: body},
		ledger.Change{By: "test", Reason: "test", Action: "settings_save", Target: "settings"})
	must(t, err)
	off := `{"action":"region_state","reason":"test","targets":[{"app":"mobile","region":"hf","expect":"active","state":"off"}]}`
	c.untouched(func() {
		p := c.emergency(off).refused(http.StatusConflict, "safety_rule")
		if len(p.Problems) != 1 || p.Problems[0].Path != "usable_region" || strings.Contains(p.Hint, "override") {
			t.Errorf("the refusal is %+v", p)
		}
		c.post(actions.BreakGlass, "/emergency", with(off, `"override":["usable_region"]`)).refused(http.StatusUnprocessableEntity, "bad_override")
		var preview actions.EmergencyPreview
		last := `{"action":"region_state","reason":"test","targets":[{"app":"mobile","region":"hf","expect":"active","state":"off"},{"app":"mobile","region":"sh","expect":"active","state":"off"}]}`
		c.post(actions.OnCall, "/emergency?dry_run=true", last).ok().into(&preview)
		if len(preview.Rules) != 1 || !preview.Rules[0].Never || preview.Rules[0].OK || preview.Confirm != "hf,sh" {
			t.Errorf("the preview is %+v", preview)
		}
	})
}

// SEC3: nobody is sent to an alias of a name that does not exist, by a document, a
// swap or an earlier release.
func TestSEC03DanglingNamesAreNotPublished(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	dangling := func(host string) ledger.Probe {
		p := seen("a", host, "down", "000", 0)
		p.Problem = "dangling_cname: " + host + " is an alias of sh-7.cdn.example, which does not exist"
		return p
	}
	c.probed(append(allUp("a"), dangling(spareHost))...)
	c.publish(1, edit(t, "capacity: 60", "capacity: 61"), "").ok() // a standby endpoint may dangle: nobody is sent there
	c.untouched(func() {
		p := c.post(actions.BreakGlass, "/emergency", with(swapOut, `"override":["probe_fresh"]`)).refused(http.StatusConflict, "safety_rule")
		if len(p.Problems) != 1 || p.Problems[0].Path != "dangling_name" || strings.Contains(p.Hint, "override") {
			t.Errorf("the refusal is %+v", p)
		}
	})
	c.probed(dangling(mainHost), dangling("corp.bank.example"))
	c.untouched(func() {
		p := c.publish(2, edit(t, "capacity: 60", "capacity: 62"), "").refused(http.StatusUnprocessableEntity, "dangling_name")
		lines := p.at(t, "apps[0].regions[0].endpoints[0].domain", "apps[1].fallback")
		if lines["apps[1].fallback"] == 0 {
			t.Errorf("the line is not named: %+v", p.Problems)
		}
		c.publish(2, edit(t, "capacity: 60", "capacity: 62"), "dry_run=true").refused(http.StatusUnprocessableEntity, "dangling_name")
		c.post(actions.OnCall, "/releases/1/relive", `{"reason":"test"}`).refused(http.StatusUnprocessableEntity, "dangling_name")
	})
	var health actions.Health
	c.get(actions.Viewer, "/probes").ok().into(&health)
	if h := health.Hosts[mainHost]; !h.Dangling || h.State != "down" || !strings.HasPrefix(h.Problem, "dangling_cname") {
		t.Errorf("the API says %+v", h)
	}
}

// e65, e66: no answer depends on health, and explain shows it: state, since when, and
// the last five.
func TestExplainShowsTheHealthOfTheDomain(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	var answer struct {
		Domain string
		Health *actions.HostHealth
	}
	ask := func() {
		t.Helper()
		answer.Health = nil
		c.post(actions.OnCall, "/explain", `{"device_id":"d-1001"}`).ok().into(&answer)
	}
	if ask(); answer.Health != nil {
		t.Errorf("without probers it says %+v", answer.Health)
	}
	down := seen("a", hefei, "down", "11000", time.Second)
	c.probed(append(allUp("a"), down)...)
	ask()
	if h := answer.Health; answer.Domain != hefei || h == nil || h.State != "down" || !h.Since.Equal(down.Since) || len(h.Recent) != 5 || h.Recent[0].OK || !h.Recent[4].OK || h.Of != 1 {
		t.Errorf("it says %+v of %s", h, answer.Domain)
	}
	rows := allUp("a")
	for i := range rows {
		rows[i] = seen("a", rows[i].Host, "down", "00000", 0)
	}
	c.probed(rows...) // everything is down: the answer stays what was released
	if ask(); answer.Domain != hefei || answer.Health.State == "up" {
		t.Errorf("when all are down: %s, %+v", answer.Domain, answer.Health)
	}
}

// An undo sets everything back, or is not offered.
func TestAnEmergencySaysItsUndo(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	undo := func(r *reply) *actions.Emergency {
		t.Helper()
		var o actions.Outcome
		r.ok().into(&o)
		return o.Undo
	}
	do := func(e *actions.Emergency) *reply {
		t.Helper()
		return c.emergency(with(jsonOf(t, e), `"reason":"undo"`))
	}
	back := undo(c.emergency(swapOut))
	if back == nil || back.Targets[0] != (actions.Target{App: "mobile", Region: "sh", Expect: "sh-spare", From: "sh-spare", To: "sh-main"}) {
		t.Fatalf("the undo of a swap is %+v", back)
	}
	do(back).ok()
	if c.serves("mobile", "sh") != mainHost {
		t.Error("the undo did not set the swap back")
	}
	back = undo(c.set("mobile/hf:active:draining", "corporate/hf:active:off"))
	if back == nil || len(back.Targets) != 2 {
		t.Fatalf("the undo of two regions is %+v", back)
	}
	do(back).ok()
	if c.state("mobile", "hf") != "active" || c.state("corporate", "hf") != "active" {
		t.Error("the undo did not set the regions back")
	}
	do(undo(c.post(actions.OnCall, "/emergency", `{"action":"freeze","reason":"test","targets":[{"expect":"open","state":"frozen"}]}`))).ok()
}
