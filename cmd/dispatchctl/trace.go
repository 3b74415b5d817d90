package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// traceCmd asks no server: logs are files.
type traceCmd struct {
	ID   string `arg:"" help:"Trace: the 32 hexadecimal digits that log lines call traceId, or a whole traceparent."`
	Logs string `required:"" type:"existingdir" placeholder:"DIR" help:"Folder with the JSON log files of services and the decision logs of replicas, .gz too; folders below it are read as well, and files that links lead to."`
}

// Help is what the help of this command says besides.
func (*traceCmd) Help() string {
	return "TOOK is - for hops whose lines do not say how long they were; those of the edge, in decision logs, never do."
}

var traceForm = regexp.MustCompile(`^(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?$`)

// Run prints the hops of a trace as a tree, in their order, and names the one at fault.
func (c *traceCmd) Run(p *program) error {
	id := traceForm.FindStringSubmatch(strings.ToLower(strings.TrimSpace(c.ID)))
	if id == nil {
		return usageError{fmt.Errorf("%q is no trace\ntry: the 32 hexadecimal digits of traceId in the log line of the failed request", c.ID)}
	}
	r, err := readLogs(c.Logs, id[1])
	if err != nil {
		return err
	}
	for _, problem := range r.broken {
		fmt.Fprintln(p.log, printable("warning: not read to its end: "+problem))
	}
	for _, problem := range r.skipped {
		fmt.Fprintln(p.log, printable("warning: not read: "+problem))
	}
	if r.tooLong+r.tooMany > 0 {
		fmt.Fprintf(p.log, "warning: left out %d lines longer than 1 MiB, and %d of hops after the first %d\n", r.tooLong, r.tooMany, maxHops)
	}
	if len(r.hops) == 0 {
		return fmt.Errorf("no line of %d files under %s names trace %s\ntry: the logs of the minute in which the request failed, also those that were rotated; a hop without traceId in its lines needs httpcall.Middleware or grpccall.ServerOptions, and the log handler of package trace",
			len(r.seen), c.Logs, id[1])
	}
	t := grow(r.hops)
	answer, err := json.Marshal(struct {
		Trace string    `json:"traceId"`
		Hops  []treeHop `json:"hops"`
		Fault string    `json:"fault,omitempty"`
	}{id[1], t.order, t.fault()})
	if err != nil {
		return fmt.Errorf("print trace: %w", err)
	}
	return p.show(answer, t.text(p.color))
}

// treeHop is a hop at its place in the tree.
type treeHop struct {
	*logHop
	Depth   int    `json:"depth"`
	Missing bool   `json:"parentMissing,omitempty"` // its caller wrote no line
	Good    string `json:"madeGoodBy,omitempty"`    // who made good that it failed

	self time.Duration // without the time of the hops that it called
}

// Who makes good what failed.
const (
	byAttempt = "another attempt"
	byCaller  = "its caller" // which did not fail, in whatever way
)

// tree is the hops from the first to the last: each behind its caller, and those of
// one caller by their start.
type tree struct{ order []treeHop }

// grow builds a tree of hops. What names itself as its own caller begins one.
func grow(hops map[string]*logHop) *tree {
	called := map[string][]*logHop{} // by the span of the caller, empty for none that is known
	for _, span := range slices.Sorted(maps.Keys(hops)) {
		h := hops[span]
		parent := h.Parent
		if hops[parent] == nil {
			parent = ""
		}
		called[parent] = append(called[parent], h)
	}
	for _, list := range called {
		slices.SortStableFunc(list, byStart)
	}
	t, seen := &tree{}, map[string]bool{}
	var add func(h *logHop, depth int, good string)
	add = func(h *logHop, depth int, good string) { // good: who made good whatever failed from here on
		seen[h.Span] = true
		if depth > 0 && !hops[h.Parent].decision && retried(h, called[h.Parent]) {
			good = byAttempt
		}
		at := len(t.order)
		t.order = append(t.order, treeHop{logHop: h, Depth: depth, Missing: depth == 0 && h.Parent != "" && hops[h.Parent] == nil, self: h.took()})
		if h.Failed {
			t.order[at].Good = good
		}
		if good == "" && h.Status != 0 && !h.Failed {
			good = byCaller
		}
		for _, next := range called[h.Span] {
			if seen[next.Span] {
				continue
			}
			t.order[at].self -= next.took()
			add(next, depth+1, good)
		}
	}
	for _, h := range called[""] {
		add(h, 0, "")
	}
	for _, h := range slices.SortedFunc(maps.Values(hops), byStart) {
		if !seen[h.Span] { // of a ring, which no service makes
			add(h, 0, "")
		}
	}
	return t
}

func byStart(a, b *logHop) int {
	return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Span, b.Span))
}

// retried says whether a caller asked another instance of a service after one that
// failed, and that one did not. list is all that it called, by their start.
//
// Log lines do not say which attempt they are of: a later call for something else
// looks the same.
func retried(failed *logHop, list []*logHop) bool {
	if !failed.Failed || failed.Service == "" {
		return false
	}
	return slices.ContainsFunc(list[slices.Index(list, failed)+1:], func(h *logHop) bool {
		return h.Service == failed.Service && h.Status != 0 && !h.Failed && (h.At == "" || h.At != failed.At)
	})
}

// at is where the hop at fault stands: the deepest that failed and was not made good,
// neither itself nor one above it; the earliest of several; -1 if there is none.
func (t *tree) at() int {
	found := -1
	for i, h := range t.order {
		if h.Failed && h.Good == "" && (found < 0 || h.Depth > t.order[found].Depth) {
			found = i
		}
	}
	return found
}

// fault is the span at fault, empty if none is.
func (t *tree) fault() string {
	if at := t.at(); at >= 0 {
		return t.order[at].Span
	}
	return ""
}

// maxIndent keeps a very deep tree on the screen.
const maxIndent = 20

// text is the tree for people, and the answer to their question below it.
func (t *tree) text(red bool) string {
	at, first := t.at(), slices.MinFunc(t.order, func(a, b treeHop) int { return byStart(a.logHop, b.logHop) }).Start
	rows := [][]string{{"HOP", "START", "TOOK", "OUTCOME", ""}}
	for i, h := range t.order {
		name, mark := strings.Repeat("  ", min(h.Depth, maxIndent))+h.name(), ""
		if h.Missing {
			name = "… " + name
		}
		switch {
		case i == at:
			mark = "← at fault"
		case h.Good != "":
			mark = "made good by " + h.Good
		}
		rows = append(rows, []string{name, "+" + short(h.Start.Sub(first)), h.length(), h.outcome(), mark})
	}
	text := "began " + first.UTC().Format("2006-01-02 15:04:05.000Z") + "\n" + table(rows, red)
	if slices.ContainsFunc(t.order, func(h treeHop) bool { return h.Missing }) {
		text += "… called by a hop that wrote no line here: give its logs, too\n"
	}
	return text + printable(strings.ReplaceAll(t.verdict(at), "\n", " ")) + "\n"
}

// verdict is one sentence: who is at fault, or where the time went.
func (t *tree) verdict(at int) string {
	if at >= 0 {
		h := t.order[at]
		return fmt.Sprintf("at fault: %s, span %s: %s", h.name(), h.Span, h.outcome())
	}
	said := "no hop failed"
	if i := slices.IndexFunc(t.order, func(h treeHop) bool { return h.Failed }); i >= 0 {
		h := t.order[i]
		said += fmt.Sprintf("; %s, span %s, failed and was made good by %s", h.name(), h.Span, h.Good)
	}
	slowest := slices.MaxFunc(t.order, func(a, b treeHop) int { return cmp.Compare(a.self, b.self) })
	if slowest.self <= 0 {
		return said
	}
	return fmt.Sprintf("%s; most of the time was spent in %s itself: %s of %s", said, slowest.name(), short(slowest.self), slowest.length())
}

func (h *logHop) name() string {
	name := cmp.Or(h.Service, "span "+h.Span)
	if h.At != "" {
		name += " " + h.At
	}
	return name
}

func (h *logHop) length() string {
	if h.took() == 0 {
		return "-"
	}
	return short(h.took())
}

// outcome is the status and what the lines say of it.
func (h *logHop) outcome() string {
	words := "ok"
	if h.Failed {
		words = "failed"
	}
	if h.Status != 0 {
		words = fmt.Sprint(h.Status)
	}
	if h.Said != "" {
		words += ", " + h.Said
	}
	return words
}

// short is a time with three digits, enough to compare hops.
func short(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}
