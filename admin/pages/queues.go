package pages

import (
	"slices"

	"dispatch.example/dispatch/discovery/directory"
)

// queuesPage is everything that nobody is sent to, and what people do about it.
type queuesPage struct {
	inner
	Waiting    []queued // for a person: the fingerprint does not fit
	Suspicious []directory.Suspect
	Isolated   []isolation
	Open       verdict // what was decided and refused
}

// queued is an entry with the form about it.
type queued struct {
	directory.Suspect
	Open bool // the form was refused and is shown again
}

// isolation is a verdict that holds, with the form that lifts it.
type isolation struct {
	directory.Verdict
	Open bool
}

// Seen is when the entry says that its process began, as a form carries it.
func (q queued) Seen() string { return seen(q.Fingerprint) }

// Seen is the same for an isolated instance.
func (i isolation) Seen() string { return seen(i.Fingerprint) }

func seen(f directory.Fingerprint) string {
	var d verdict
	d.Started = f.Started
	return d.Seen()
}

// queues shows what waits.
func (v *visit) queues() error {
	page, err := v.queuesPage(verdict{})
	if err != nil {
		return err
	}
	return v.show("queues", page)
}

// decide accepts or refuses an entry of the queue, or lifts an isolation.
func (v *visit) decide() error {
	d := v.verdictOf()
	err := v.do.JudgeInstance(v.r.Context(), v.write(), d.VerdictInput)
	if err == nil {
		return v.done("/queues", "inner.did."+d.Do, "ID", d.ID)
	}
	page, unread := v.queuesPage(d)
	if unread != nil {
		return unread
	}
	return v.refuse("queues", page, err)
}

func (v *visit) queuesPage(open verdict) (queuesPage, error) {
	page := queuesPage{Open: open}
	head, view, err := v.inner()
	if err != nil {
		return page, err
	}
	is := func(service string, f directory.Fingerprint) bool {
		return open.ID != "" && open.ID == f.ID && open.Service == service && open.Address == f.Address.String()
	}
	page.inner, page.Suspicious = head, slices.Clone(view.Suspicious)
	for _, s := range view.Queue {
		page.Waiting = append(page.Waiting, queued{s, is(s.Service, s.Fingerprint)})
	}
	for _, one := range view.Isolated {
		page.Isolated = append(page.Isolated, isolation{one, is(one.Service, one.Fingerprint)})
	}
	newest := func(a, b directory.Suspect) int { return b.Since.Compare(a.Since) }
	slices.SortStableFunc(page.Suspicious, newest)
	slices.SortStableFunc(page.Waiting, func(a, b queued) int { return newest(a.Suspect, b.Suspect) })
	slices.SortStableFunc(page.Isolated, func(a, b isolation) int { return b.At.Compare(a.At) })
	return page, nil
}
