package pages

import (
	"net/url"
	"slices"
	"strings"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/rules"
)

// growth is a version of the service that grows in one environment, or could.
type growth struct {
	Service, Env string
	From         string             // the rule's main version
	Gray         *actions.InnerGray // nil: none runs
	Versions     []string           // that could
	Key          bool               // its start takes a second person
	Form         growthForm
}

// Path is where its forms go.
func (g growth) Path() string {
	return servicePath(g.Service) + "/gray/" + url.PathEscape(g.Env)
}

// growthForm is what a form said that was refused; Do is empty when none was.
type growthForm struct {
	Do, Version, Steps, Digest, Reason, Typed string
	ByKey, WithoutFallback                    bool
}

// growths are those of the page's service, by environment.
func (v *visit) growths(page *servicePage, view *directory.View, form growthForm) (all []growth, err error) {
	set := page.Rules.Set
	var running []actions.InnerGray
	if len(set.Grays) > 0 {
		if running, err = v.do.InnerGrays(v.r.Context(), v.Actor); err != nil {
			return nil, err
		}
	}
	for _, r := range set.Rules {
		if r.Service != page.Name || len(all) > 0 && all[len(all)-1].Env == r.Selector.Env || page.Env != "" && page.Env != r.Selector.Env {
			continue // another service, a shadowed rule, an environment that was not asked for
		}
		g := growth{Service: page.Name, Env: r.Selector.Env, From: r.Strategy.Version, Key: page.Key, Form: growthForm{Steps: "5, 20, 50, 100"}}
		if v.r.PathValue("env") == g.Env {
			g.Form = form
		}
		for i := range running {
			if running[i].Service == g.Service && running[i].Env == g.Env {
				g.Gray = &running[i]
			}
		}
		g.Versions = couldGrow(set, r, view)
		if g.Gray != nil || len(g.Versions) > 0 {
			all = append(all, g)
		}
	}
	return all, nil
}

// couldGrow are the versions that a start beside the rule would not be refused for.
func couldGrow(set rules.Set, r rules.Rule, view *directory.View) (versions []string) {
	steps := rules.DefaultSteps()
	for _, s := range view.Services {
		for _, in := range s.Instances {
			if s.Name != r.Service || in.Env != r.Selector.Env || slices.Contains(versions, in.Version) || view.Match(r.Service, r.Selector, in.Version) == 0 {
				continue
			}
			g := rules.Gray{Service: r.Service, Env: r.Selector.Env, Version: in.Version, Share: steps[0], Steps: steps, WithoutFallback: true} // the form has a box for it
			if _, err := set.WithGray(g); err == nil {
				versions = append(versions, in.Version)
			}
		}
	}
	slices.Sort(versions)
	return versions
}

// growVersion starts a gray, takes a step or takes everything back, as the path says.
func (v *visit) growVersion(do string, act func(actions.Write, actions.InnerRef, growthForm) (actions.RulesApplied, error)) error {
	f := v.r.PostForm
	to := actions.InnerRef{Service: v.r.PathValue("name"), Env: v.r.PathValue("env")}
	form := growthForm{Do: do, Version: f.Get("version"), Steps: f.Get("steps"), Digest: strings.TrimSpace(f.Get("digest")), Reason: f.Get("reason"), Typed: f.Get("confirm"),
		ByKey: f.Get("by_key") != "", WithoutFallback: f.Get("without_fallback") != ""}
	out, err := act(v.write(), to, form)
	if err == nil && out.Number == 0 && do != "approve" {
		return v.done(servicePath(to.Service), "services.gray.did.nothing")
	}
	if err == nil {
		return v.done(servicePath(to.Service), "services.gray.did."+do, "Env", to.Env, "Number", out.Number)
	}
	page, gone := v.servicePageWith(form)
	if gone != nil {
		return gone
	}
	return v.refuse("service", page, err)
}

// startVersion lets the version of the form take its first step.
func (v *visit) startVersion() error {
	return v.growVersion("start", func(w actions.Write, to actions.InnerRef, f growthForm) (actions.RulesApplied, error) {
		return v.do.StartInnerGray(v.r.Context(), w, f.start(to))
	})
}

// start is what the form asks to start.
func (f growthForm) start(of actions.InnerRef) actions.InnerStart {
	in := actions.InnerGrayInput{Version: f.Version, ByKey: f.ByKey, WithoutFallback: f.WithoutFallback}
	for _, text := range strings.FieldsFunc(f.Steps, func(r rune) bool { return strings.ContainsRune(" ,;，、→%", r) }) {
		in.Steps = append(in.Steps, int(number64(text))) // what is no number is 0, and refused
	}
	return actions.InnerStart{InnerRef: of, InnerGrayInput: in}
}

// approveVersion signs the start that somebody else asked for.
func (v *visit) approveVersion() error {
	return v.growVersion("approve", func(w actions.Write, to actions.InnerRef, f growthForm) (actions.RulesApplied, error) {
		_, err := v.do.ApproveInnerGray(v.r.Context(), w, f.start(to), f.Digest)
		return actions.RulesApplied{}, err
	})
}

// stepVersion takes the step of the form's button.
func (v *visit) stepVersion() error {
	return v.growVersion("step", func(w actions.Write, to actions.InnerRef, _ growthForm) (actions.RulesApplied, error) {
		f := v.r.PostForm
		return v.do.StepInnerGray(v.r.Context(), w, to, actions.InnerStep{Expect: int(number64(f.Get("expect"))), Version: f.Get("version"), To: int(number64(f.Get("to")))})
	})
}

// abortVersion takes everything back.
func (v *visit) abortVersion() error {
	return v.growVersion("abort", func(w actions.Write, to actions.InnerRef, _ growthForm) (actions.RulesApplied, error) {
		return v.do.AbortInnerGray(v.r.Context(), w, to)
	})
}
