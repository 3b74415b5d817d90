package pages

import (
	"net/url"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// explainPage is a question, and the walk that answers it. Ids are never in an
// address, where proxies would write them down: the form is posted.
type explainPage struct {
	Apps   []actions.AppView
	Asked  actions.Question
	Answer *explained
	Live   *explained // the same question to the release in use, where another was asked
}

// explained is an answer with its steps as the page draws them.
type explained struct {
	actions.Explanation
	Steps []explainStep
}

type explainStep struct {
	policy.Step
	Word string // of the outcome, in the catalogue
}

// Class colours the mark of a step.
func (s explainStep) Class() string {
	if s.Outcome == policy.Decides {
		return "ok"
	}
	return ""
}

// ask shows the form. An address may name the release or the draft to ask.
func (v *visit) ask() error {
	query := v.r.URL.Query()
	_, apps := v.do.Apps()
	return v.show("explain", explainPage{Apps: apps,
		Asked: actions.Question{App: query.Get("app"), Release: number64(query.Get("release")), Draft: query.Get("draft")}})
}

// explain answers the form's question.
func (v *visit) explain() error {
	_, apps := v.do.Apps()
	page := explainPage{Apps: apps}
	var err error
	if page.Asked, err = questionOf(v.r.PostForm); err != nil {
		return v.refuse("explain", page, err)
	}
	if page.Answer, err = v.explained(page.Asked); err != nil {
		return v.refuse("explain", page, err)
	}
	if !page.Answer.Live {
		live := page.Asked
		live.Release, live.Draft = 0, ""
		if page.Live, err = v.explained(live); err != nil {
			return v.refuse("explain", page, err)
		}
	}
	return v.show("explain", page)
}

func (v *visit) explained(q actions.Question) (*explained, error) {
	answer, err := v.do.Explain(v.r.Context(), v.Actor, q)
	if err != nil {
		return nil, err
	}
	e := &explained{Explanation: answer}
	for _, s := range answer.Trace.Steps {
		e.Steps = append(e.Steps, explainStep{s, "explain.outcome." + strings.ReplaceAll(string(s.Outcome), " ", "-")})
	}
	return e, nil
}

// questionOf reads the form. Attributes are lines of NAME=VALUE.
func questionOf(form url.Values) (actions.Question, error) {
	q := actions.Question{App: form.Get("app"), DeviceID: form.Get("device_id"), UserID: form.Get("user_id"),
		AppVersion: form.Get("app_version"), Platform: form.Get("platform"), Channel: form.Get("channel"),
		Carrier: form.Get("carrier"), Locale: form.Get("locale"), Origin: form.Get("origin"),
		Address: strings.TrimSpace(form.Get("address")), Session: strings.TrimSpace(form.Get("session")),
		Release: number64(form.Get("release")), Draft: strings.TrimSpace(form.Get("draft"))}
	for line := range strings.Lines(form.Get("attr")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			if q.Attr == nil {
				q.Attr = map[string]string{}
			}
			q.Attr[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	if at := strings.TrimSpace(form.Get("at")); at != "" {
		var err error
		if q.At, err = time.ParseInLocation("2006-01-02T15:04", at, time.UTC); err != nil {
			return q, fault.New(fault.Invalid, "bad_time", "%q is no time", at).WithHint("write it as 2026-11-30T08:15, in UTC").Because(err)
		}
	}
	return q, nil
}
