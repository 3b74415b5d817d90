package pages

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/internal/fault"
)

// inner is what the pages of the inner layer have in common: whose services they
// show, as of when, what is missing, and which rules count.
type inner struct {
	Region   string
	At       time.Time
	Deaf     bool              // the node follows no registry
	Starting bool              // no registry has answered yet
	Away     []directory.State // registries that are not heard from
	Doubtful []directory.State // those that answer, but not about all of their services
	Blind    bool              // the database does not say which rules count
	Rules    actions.RulesView
}

// Empty says that nothing is known that could be shown.
func (i inner) Empty() bool { return i.Deaf || i.Starting }

// inner reads what all of these pages show. What is missing is said on the page,
// which has the rest: the view is empty, never nil.
func (v *visit) inner() (inner, *directory.View, error) {
	var i inner
	view, err := v.do.Directory(v.r.Context(), v.Actor)
	switch code := fault.CodeOf(err); {
	case code == "no_registry":
		i.Deaf, view = true, &directory.View{}
	case code == "directory_starting":
		i.Starting, view = true, &directory.View{}
	case err != nil:
		return i, nil, err
	}
	i.Deaf = i.Deaf || !i.Starting && len(view.Registries) == 0
	for _, r := range view.Registries {
		switch {
		case !r.OK:
			i.Away = append(i.Away, r)
		case r.Problem != "":
			i.Doubtful = append(i.Doubtful, r)
		}
	}
	if i.Rules, err = v.do.RegionRules(v.r.Context(), v.Actor); err != nil && fault.CodeOf(err) != "no_region" {
		i.Blind = true
	}
	i.At, i.Region = view.At, cmp.Or(view.Region, i.Rules.Region, v.do.Region)
	return i, view, nil
}

// word is a word of the inner layer in the visitor's language, or as it came where
// the catalogue has none.
func (v *visit) word(beginning, word string) string {
	if id := beginning + word; v.catalogue.has(id) {
		return v.say(id)
	}
	return word
}

// tally is how often a value occurs.
type tally struct {
	Name string
	N    int
}

// tallied counts values, the most frequent first.
func tallied(values []string) (all []tally) {
	counts := map[string]int{}
	for _, value := range values {
		counts[value]++
	}
	for name, n := range counts {
		all = append(all, tally{name, n})
	}
	slices.SortFunc(all, func(a, b tally) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	return all
}

// partner is a service at the other end of calls.
type partner struct {
	Name string
	Envs []string // of the callers
	Last time.Time
}

// partners are who calls the service, or whom it calls.
func partners(calls []directory.Call, of func(directory.Call) (name string, counts bool)) (all []partner) {
	at := map[string]int{}
	for _, c := range calls {
		name, counts := of(c)
		if !counts {
			continue
		}
		i, known := at[name]
		if !known {
			i, at[name] = len(all), len(all)
			all = append(all, partner{Name: name})
		}
		p := &all[i]
		if !slices.Contains(p.Envs, c.Env) {
			p.Envs = append(p.Envs, c.Env)
		}
		if c.Last.After(p.Last) {
			p.Last = c.Last
		}
	}
	slices.SortFunc(all, func(a, b partner) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// servicePath is where a service is shown.
func servicePath(name string) string { return "/services/" + url.PathEscape(name) }

// verdict is an entry that somebody decides about, as the form carries it.
type verdict struct {
	actions.VerdictInput
	Reason  string // as it was typed
	Problem *fault.Body
}

// Seen is Started as the form carries it.
func (d verdict) Seen() string {
	if d.Started.IsZero() {
		return ""
	}
	return d.Started.UTC().Format(time.RFC3339Nano)
}

// verdictOf reads the form.
func (v *visit) verdictOf() verdict {
	form := v.r.PostForm
	d := verdict{Reason: form.Get("reason"), VerdictInput: actions.VerdictInput{Service: form.Get("service"), ID: form.Get("id"), Address: form.Get("address"), Do: form.Get("do")}}
	d.Started, _ = time.Parse(time.RFC3339Nano, form.Get("started")) // zero: the entry says no time, or it does not fit
	return d
}
