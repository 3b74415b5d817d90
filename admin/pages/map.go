package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/directory"
)

// mapPage says who may call whom: services by environments.
type mapPage struct {
	inner
	Asked   mapFilter
	Envs    []string // all that there are
	Columns []string // those that are shown
	Rows    []mapRow
	Of      int // services, before the filter
	Failing int // cells in which calls fail now, before the filter
	Graph   *graph
	Crowded bool // too many services call each other to draw them
	Switch  switching
}

// Long says whether the page would be heavy with the text of every rule: the pages of
// the services have them.
func (p *mapPage) Long() bool { return len(p.Rows) > manyRows }

// manyRows are services of which the map shows less each.
const manyRows = 60

// mapFilter is what the address asks for.
type mapFilter struct {
	Service, Env string
	Problem      bool // only where calls fail
}

// Narrow says whether anything is left out.
func (f mapFilter) Narrow() bool { return f != mapFilter{} }

// mapRow is one service.
type mapRow struct {
	Service  string
	Group    string
	Key      bool
	Bad      bool
	CalledBy []partner
	Envs     []mapEnv // as many as mapPage.Columns
}

// mapEnv is a service in one environment: a cell for each cluster whose callers reach
// it differently.
type mapEnv struct {
	Env   string
	Cells []mapCell
}

// mapCell is what callers get.
type mapCell struct {
	actions.MapCell
	Clustered bool // its environment has other cells
	Parts     []mapPart
	Target    string // where the rule sends callers; empty: there is none
	Next      string // an id of the catalogue: what to do about the problem
}

// Text is the rule's file.
func (c mapCell) Text() string { return c.Rule.Text() }

// mapPart is one version and its piece of the bar.
type mapPart struct {
	actions.MapVersion
	Class string // of the style sheet: s1 to s6
	Path  string // the outline; empty: it takes nothing
	Note  string // an id of the catalogue: why it takes nothing; empty: it takes its share
	// Serves is how many of its instances do, in words.
	Serves string
}

// switching is the form of the kill switch.
type switching struct {
	Confirm       string // what must be typed
	Typed, Reason string // what was
	Open          bool
	Growing       []actions.Growing // what throwing it does to versions that grow
}

// callMap shows who may call whom.
func (v *visit) callMap() error {
	page, err := v.mapPage()
	if err != nil {
		return err
	}
	return v.show("map", page)
}

// switchRules throws the kill switch, or takes it back.
func (v *visit) switchRules() error {
	direct := v.r.PostFormValue("direct") == "true"
	w := v.write()
	out, err := v.do.SwitchRules(v.r.Context(), w, direct)
	switch {
	case err == nil && out.Number == 0:
		return v.done("/map", "map.did.nothing")
	case err == nil && direct:
		return v.done("/map", "map.did.direct", "Number", out.Number)
	case err == nil:
		return v.done("/map", "map.did.rules", "Number", out.Number)
	}
	page, gone := v.mapPage()
	if gone != nil {
		return gone
	}
	page.Switch.Typed, page.Switch.Reason, page.Switch.Open = w.Confirm, w.Reason, true
	return v.refuse("map", page, err)
}

func (v *visit) mapPage() (*mapPage, error) {
	query := v.r.URL.Query()
	page := &mapPage{Asked: mapFilter{Service: strings.TrimSpace(query.Get("service")), Env: query.Get("env"), Problem: query.Get("problem") != ""}}
	head, _, err := v.inner()
	if err != nil {
		return nil, err
	}
	page.inner, page.Switch.Confirm = head, v.do.ConfirmSwitch()
	if head.Empty() || head.Blind { // a map without its rules would be wrong
		return page, nil
	}
	m, err := v.do.CallMap(v.r.Context(), v.Actor)
	if err != nil {
		return nil, err
	}
	page.draw(m, v)
	if !head.Rules.Set.Direct {
		page.Switch.Growing = v.do.Growing(head.Rules.Set)
	}
	return page, nil
}

// draw lays the map out for what was asked.
func (p *mapPage) draw(m actions.CallMap, v *visit) {
	rows := map[string][]actions.MapCell{}
	var names []string
	for _, c := range m.Cells {
		if rows[c.Service] == nil {
			names = append(names, c.Service)
		}
		rows[c.Service] = append(rows[c.Service], c)
		if c.Problem != "" {
			p.Failing++
		}
		if !slices.Contains(p.Envs, c.Env) {
			p.Envs = append(p.Envs, c.Env)
		}
	}
	slices.Sort(p.Envs)
	p.Of = len(names)
	if p.Columns = p.Envs; p.Asked.Env != "" {
		p.Columns = slices.DeleteFunc(slices.Clone(p.Envs), func(env string) bool { return env != p.Asked.Env })
	}
	calls := slices.DeleteFunc(slices.Clone(m.Calls), func(c directory.Call) bool { return p.Asked.Env != "" && c.Env != p.Asked.Env })
	callers := map[string][]directory.Call{}
	for _, c := range calls {
		callers[c.To] = append(callers[c.To], c)
	}
	serves := remember(func(n, of int) string { return v.say("map.serving", "N", n, "Of", of) })
	for _, name := range names {
		if !strings.Contains(strings.ToLower(name), strings.ToLower(p.Asked.Service)) {
			continue
		}
		row := rowOfMap(rows[name], p.Columns)
		row.say(serves)
		row.CalledBy = partners(callers[name], func(c directory.Call) (string, bool) { return c.From, true })
		if len(row.Envs) > 0 && (row.Bad || !p.Asked.Problem) {
			p.Rows = append(p.Rows, row)
		}
	}
	p.Graph, p.Crowded = p.calls(calls, v)
}

// remember asks once for each pair: a thousand cells say a few different things.
func remember(say func(n, of int) string) func(n, of int) string {
	said := map[[2]int]string{}
	return func(n, of int) string {
		text, known := said[[2]int{n, of}]
		if !known {
			text = say(n, of)
			said[[2]int{n, of}] = text
		}
		return text
	}
}

// say puts words to the numbers of a row.
func (r mapRow) say(serves func(n, of int) string) {
	for _, in := range r.Envs {
		for _, c := range in.Cells {
			for i := range c.Parts {
				c.Parts[i].Serves = serves(c.Parts[i].Serving, c.Parts[i].Instances)
			}
		}
	}
}

// rowOfMap is the row of one service, whose cells these are. It has no Envs when the
// service is in none of the columns.
func rowOfMap(cells []actions.MapCell, columns []string) mapRow {
	row := mapRow{Service: cells[0].Service}
	classes := classesOf(cells)
	byEnv := make([]mapEnv, len(columns))
	seen := false
	for i, env := range columns {
		byEnv[i].Env = env
		for _, c := range cells {
			if c.Env != env {
				continue
			}
			seen = true
			cell := cellOfMap(c, classes)
			row.Group, row.Key, row.Bad = cmp.Or(row.Group, c.Group), row.Key || c.Key, row.Bad || c.Problem != ""
			byEnv[i].Cells = append(byEnv[i].Cells, cell)
		}
		for n := range byEnv[i].Cells {
			byEnv[i].Cells[n].Clustered = len(byEnv[i].Cells) > 1
		}
	}
	if seen {
		row.Envs = byEnv
	}
	return row
}

// classesOf gives each version of a service its colour, the same in all environments,
// in the order in which they come: the largest part of the first cell has the first.
func classesOf(cells []actions.MapCell) map[string]string {
	classes := map[string]string{}
	for _, c := range cells {
		for _, one := range c.Versions {
			if classes[one.Version] == "" {
				classes[one.Version] = fmt.Sprintf("s%d", min(len(classes), maxSeries)+1)
			}
		}
	}
	return classes
}

// The length of a whole bar, what is left between its pieces, and the least that is
// drawn of one that takes anything.
const barWhole, barGap, barLeast = 1000.0, 8.0, 4.0

// pieces are the outlines of the parts of a bar, empty for one that takes nothing.
func pieces(shares []float64) (paths []string) {
	at := 0.0
	for _, share := range shares {
		begin, path := at, ""
		if at += share * barWhole; share > 0 {
			end := at
			if at < barWhole-1 { // another one follows
				end = max(begin+barLeast, at-barGap)
			}
			path = fmt.Sprintf("M%.0f 0H%.0fV10H%.0fz", begin, end, begin)
		}
		paths = append(paths, path)
	}
	return paths
}

func cellOfMap(c actions.MapCell, classes map[string]string) mapCell {
	cell := mapCell{MapCell: c, Next: nextStep(c)}
	if c.Rule != nil {
		cell.Target = strings.Join([]string{c.Rule.Selector.Cluster, c.Rule.Selector.Region, c.Rule.Selector.Env}, " / ")
	}
	var shares []float64
	for _, one := range c.Versions {
		shares = append(shares, one.Share)
	}
	for i, path := range pieces(shares) {
		one := c.Versions[i]
		cell.Parts = append(cell.Parts, mapPart{MapVersion: one, Class: classes[one.Version], Path: path, Note: noteOf(one, c)})
	}
	return cell
}

// noteOf is why a version takes no calls.
func noteOf(one actions.MapVersion, c actions.MapCell) string {
	r := c.Rule
	switch {
	case one.Instances == 0:
		return "map.nobody"
	case one.Serving == 0:
		return "map.drained"
	case c.Gray != nil && one.Share > 0: // the rule in Git does not say so
		return ""
	case c.Gray != nil && c.Gray.Share == 100,
		r != nil && one.Version == r.Strategy.Version && r.Strategy.Weight == 0,
		r != nil && r.Fallback != nil && one.Version == r.Fallback.Version && r.Fallback.Weight == 0:
		return "map.weightless"
	default:
		return ""
	}
}

// nextStep is what somebody does about calls that fail: it depends on the filter
// after which nobody is left.
func nextStep(c actions.MapCell) string {
	switch {
	case c.Problem == "":
		return ""
	case c.Counts.Cluster == 0:
		return "map.next.cluster"
	case c.Counts.Region == 0:
		return "map.next.region"
	case c.Counts.Env == 0:
		return "map.next.env"
	case c.Counts.Version == 0:
		return "map.next.version"
	default:
		return "map.next.weight"
	}
}

// calls draws who calls whom among the services that are shown.
func (p *mapPage) calls(calls []directory.Call, v *visit) (drawn *graph, crowded bool) {
	shown, failing := map[string]bool{}, map[string][]string{}
	for _, row := range p.Rows {
		shown[row.Service] = true
		for _, in := range row.Envs {
			if slices.ContainsFunc(in.Cells, func(c mapCell) bool { return c.Problem != "" }) {
				failing[row.Service] = append(failing[row.Service], in.Env)
			}
		}
	}
	var edges []callEdge
	for _, c := range calls {
		if p.Asked.Narrow() && !shown[c.From] && !shown[c.To] {
			continue
		}
		bad := slices.Contains(failing[c.To], c.Env)
		i := slices.IndexFunc(edges, func(e callEdge) bool { return e.From == c.From && e.To == c.To })
		if i < 0 {
			i, edges = len(edges), append(edges, callEdge{From: c.From, To: c.To})
		}
		edges[i].Envs, edges[i].Bad = append(edges[i].Envs, c.Env), edges[i].Bad || bad
		if len(edges) > maxEdges {
			return nil, true
		}
	}
	return drawCalls(edges, func(name string) (note string, bad bool) {
		if envs := failing[name]; len(envs) > 0 {
			return v.say("map.fails.in", "Envs", strings.Join(envs, ", ")), true
		}
		if !shown[name] && !p.Asked.Narrow() {
			return v.say("map.unregistered"), false
		}
		return "", false
	})
}
