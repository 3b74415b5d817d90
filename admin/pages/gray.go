package pages

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// grays are all shares with their plans.
func (v *visit) grays() error {
	all, err := v.do.Grays(v.r.Context())
	if err != nil {
		return err
	}
	return v.show("gray", all)
}

// grayPage is one gray: its card, what can be done to it, and its plan.
type grayPage struct {
	actions.Gray
	Form grayForm
	// Editing shows the plan as a form.
	Editing bool
	// Reason and Typed are what a form that was refused said.
	Reason, Typed string
	// Shares is the last hour by the minute.
	Shares shares
}

// Path is where the page lives.
func (p grayPage) Path() string { return grayPath(p.App, p.Policy) }

// Started says whether somebody may be inside because of the plan.
func (p grayPage) Started() bool {
	return p.State == actions.GrayRunning || p.State == actions.GrayPaused
}

// Last says whether all steps were taken.
func (p grayPage) Last() bool { return p.Started() && p.Next == 0 }

// Bake is what is left of the bake.
func (p grayPage) Bake() time.Duration { return time.Duration(p.BakeLeft * float64(time.Second)) }

func grayPath(app, policy string) string {
	return "/gray/" + url.PathEscape(app) + "/" + url.PathEscape(policy)
}

func (v *visit) grayRef() actions.GrayRef {
	return actions.GrayRef{App: v.r.PathValue("app"), Policy: v.r.PathValue("policy")}
}

// grayPage reads the gray of the path.
func (v *visit) grayPage() (grayPage, error) {
	to := v.grayRef()
	g, err := v.do.GrayOf(v.r.Context(), to.App, to.Policy)
	if err != nil {
		return grayPage{}, err
	}
	p := grayPage{Gray: g, Form: formOf(g), Editing: v.r.URL.Query().Has("edit") || g.Rev == 0}
	if v.r.Method == "POST" {
		p.Reason, p.Typed = v.write().Reason, v.write().Confirm
	}
	if p.Shares, err = v.sharesOf(g); err != nil {
		return grayPage{}, err
	}
	return p, nil
}

// gray shows one gray.
func (v *visit) gray() error {
	p, err := v.grayPage()
	if err != nil {
		return err
	}
	return v.show("grayrun", p)
}

// turnGray does what a button says.
func (v *visit) turnGray() error {
	f := v.r.PostForm
	out, err := v.do.TurnGray(v.r.Context(), v.write(), v.grayRef(),
		actions.GrayTurn{Action: f.Get("action"), Expect: f.Get("expect"), Hard: f.Get("hard") != ""})
	if err != nil {
		return v.againGray(err, nil)
	}
	if out.Draft != "" {
		return v.done("/changes/"+url.PathEscape(out.Draft), "gray.said.default")
	}
	to := v.grayRef()
	return v.done(grayPath(to.App, to.Policy), "gray.said."+out.State, "Share", share(out.Share), "Release", out.Release)
}

// againGray shows the page again with what was wrong, and the form as it was filled in.
func (v *visit) againGray(err error, form *grayForm) error {
	p, gone := v.grayPage()
	if gone != nil {
		return err
	}
	if form != nil {
		p.Form, p.Editing = *form, true
	}
	return v.refuse("grayrun", p, err)
}

// approveGray signs the plan that the page showed.
func (v *visit) approveGray() error {
	to := v.grayRef()
	if _, err := v.do.ApproveGray(v.r.Context(), v.write(), to, v.r.PostFormValue("digest")); err != nil {
		return v.againGray(err, nil)
	}
	return v.done(grayPath(to.App, to.Policy), "gray.said.signed")
}

// planGray writes the plan of the form.
func (v *visit) planGray() error {
	form := readGrayForm(v.r.PostForm)
	plan, err := form.plan()
	if err != nil {
		return v.againGray(err, &form)
	}
	to := v.grayRef()
	to.Rev = form.Rev
	g, err := v.do.PlanGray(v.r.Context(), v.write(), to, plan)
	if err != nil {
		return v.againGray(err, &form)
	}
	return v.done(grayPath(to.App, to.Policy), "gray.said."+g.State, "Share", share(g.Share), "Release", 0)
}

// grayPreview is whom a step would move.
type grayPreview struct {
	actions.GrayPreview
	App, Policy string
}

// Path is where the gray is.
func (p grayPreview) Path() string { return grayPath(p.App, p.Policy) }

// Moved is how many of 10,000 synthetic requests of the app would move.
func (p grayPreview) Moved() int { return p.Outcome.Preview.Moved[p.App] }

// Real is the app's part of the impact on real requests; nil: there are none.
func (p grayPreview) Real() *actions.AppImpact { return realOf(p.Impact, p.App) }

// Part is the part of real requests that would move.
func (p grayPreview) Part() float64 {
	if r := p.Real(); r != nil {
		return float64(r.Moved) / float64(r.Sampled)
	}
	return 0
}

// previewGray shows whom the next step would move.
func (v *visit) previewGray() error {
	to := v.grayRef()
	p, err := v.do.PreviewGray(v.r.Context(), to, int(number64(v.r.URL.Query().Get("to"))))
	if err != nil {
		return err
	}
	return v.show("graypreview", grayPreview{p, to.App, to.Policy})
}

// grayForm is a plan as its form has it: shares in percent, times in minutes.
type grayForm struct {
	Rev     uint64
	Steps   string
	Bake    string
	Sample  string
	OnFail  string
	Auto    bool
	Probe   bool
	Errors  bool
	Most    string // of the errors signal, in percent
	Queries []grayQuery
	Hooks   []string
}

// grayQuery is one Prometheus signal.
type grayQuery struct{ URL, Query, Op, Threshold string }

// formOf is the form of a gray's plan, of the default one where there is none, with
// an empty row for one more signal of each kind.
func formOf(g actions.Gray) grayForm {
	f := grayForm{Rev: g.Rev, Steps: "5, 20, 50, 100", Bake: "10", Sample: "500", OnFail: actions.OnFailPause, Probe: g.Plan == nil, Most: "1"}
	if g.Plan != nil {
		f.Steps, f.Bake, f.Sample = percents(g.Plan.Steps), decimal(time.Duration(g.Plan.Bake).Minutes()), fmt.Sprint(g.Plan.Sample)
		f.OnFail, f.Auto = g.Plan.OnFail, g.Plan.Auto
		for _, s := range g.Plan.Signals {
			switch s.Kind {
			case actions.SignalProbe:
				f.Probe = true
			case actions.SignalErrors:
				f.Errors, f.Most = true, decimal(s.Threshold*100)
			case actions.SignalPrometheus:
				f.Queries = append(f.Queries, grayQuery{s.URL, s.Query, s.Op, decimal(s.Threshold)})
			case actions.SignalWebhook:
				f.Hooks = append(f.Hooks, s.URL)
			}
		}
	}
	f.Queries, f.Hooks = append(f.Queries, grayQuery{Op: "<"}), append(f.Hooks, "")
	return f
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// percents are shares of 10,000 as people write them: 5, 20, 50, 100.
func percents(steps []int) string {
	var parts []string
	for _, s := range steps {
		parts = append(parts, decimal(float64(s)/100))
	}
	return strings.Join(parts, ", ")
}

func readGrayForm(f url.Values) grayForm {
	form := grayForm{Rev: number64(f.Get("rev")), Steps: f.Get("steps"), Bake: f.Get("bake"), Sample: f.Get("sample"), OnFail: f.Get("on_fail"),
		Auto: f.Get("auto") != "", Probe: f.Get("probe") != "", Errors: f.Get("errors") != "", Most: f.Get("most"), Hooks: f["hook"]}
	at := func(name string, i int) string {
		if i < len(f[name]) {
			return f[name][i]
		}
		return ""
	}
	for i := range f["query"] {
		form.Queries = append(form.Queries, grayQuery{at("url", i), at("query", i), at("op", i), at("threshold", i)})
	}
	return form
}

// plan is what the form says. Empty rows of signals are left out.
func (f grayForm) plan() (actions.GrayPlan, error) {
	var wrong fault.Problems
	read := func(path, text string) float64 {
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || math.Abs(n) > 1e9 {
			wrong.Addf(path, "%q is not a number", text)
			return 0
		}
		return n
	}
	p := actions.GrayPlan{OnFail: f.OnFail, Auto: f.Auto}
	for i, text := range strings.FieldsFunc(f.Steps, func(r rune) bool { return strings.ContainsRune(" ,;，、→%", r) }) {
		p.Steps = append(p.Steps, int(math.Round(read(fmt.Sprintf("steps[%d]", i), text)*100)))
	}
	p.Bake = release.Duration(read("bake", f.Bake) * float64(time.Minute))
	p.Sample = uint64(max(0, read("sample", f.Sample)))
	if f.Probe {
		p.Signals = append(p.Signals, actions.Signal{Kind: actions.SignalProbe})
	}
	if f.Errors {
		p.Signals = append(p.Signals, actions.Signal{Kind: actions.SignalErrors, Threshold: read("errors", cmp.Or(f.Most, "1")) / 100})
	}
	for i, q := range f.Queries {
		if q.URL != "" || q.Query != "" {
			p.Signals = append(p.Signals, actions.Signal{Kind: actions.SignalPrometheus, URL: q.URL, Query: q.Query, Op: q.Op,
				Threshold: read(fmt.Sprintf("threshold[%d]", i), q.Threshold)})
		}
	}
	for _, hook := range f.Hooks {
		if hook != "" {
			p.Signals = append(p.Signals, actions.Signal{Kind: actions.SignalWebhook, URL: hook})
		}
	}
	return p, wrong.Err("bad_plan", "the plan has mistakes; nothing was changed")
}
