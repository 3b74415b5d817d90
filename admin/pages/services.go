package pages

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/internal/fault"
)

// servicesPage is every service with what its instances have in common.
type servicesPage struct {
	inner
	Query, Env string
	Envs       []string
	Rows       []serviceRow
	Of         int // before the search
	Waiting    int // entries that nobody is sent to, of all services
	Registries []directory.State
}

// serviceRow is one service and how many of its instances are where and how.
type serviceRow struct {
	Name                              string
	Instances, Serving                int
	Envs, Clusters, Versions, Sources []tally
	Lowered                           []tally // why some take less than their weight, in words
}

// services shows the list.
func (v *visit) services() error {
	query := v.r.URL.Query()
	page := servicesPage{Query: strings.TrimSpace(query.Get("q")), Env: query.Get("env")}
	var view *directory.View
	var err error
	if page.inner, view, err = v.inner(); err != nil {
		return err
	}
	page.Of, page.Waiting, page.Registries = len(view.Services), len(view.Suspicious)+len(view.Queue), view.Registries
	for _, s := range view.Services {
		for _, in := range s.Instances {
			if !slices.Contains(page.Envs, in.Env) {
				page.Envs = append(page.Envs, in.Env)
			}
		}
		if !serviceFits(s, page.Query) {
			continue
		}
		row := v.serviceRow(s.Name, slices.DeleteFunc(slices.Clone(s.Instances), func(in directory.Instance) bool { return page.Env != "" && in.Env != page.Env }))
		if row.Instances > 0 || page.Env == "" {
			page.Rows = append(page.Rows, row)
		}
	}
	slices.Sort(page.Envs)
	return v.show("services", page)
}

// serviceFits says whether a search finds the service: by its name, or by the address or
// the id of one of its instances.
func serviceFits(s directory.Service, query string) bool {
	return holds(s.Name, query) || slices.ContainsFunc(s.Instances, func(in directory.Instance) bool {
		return holds(in.Address.String(), query) || holds(in.ID, query)
	})
}

func holds(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

func (v *visit) serviceRow(name string, instances []directory.Instance) serviceRow {
	row := serviceRow{Name: name, Instances: len(instances)}
	var envs, clusters, versions, sources, lowered []string
	for _, in := range instances {
		envs, clusters, versions = append(envs, in.Env), append(clusters, in.Cluster), append(versions, in.Version)
		sources = append(sources, in.Sources...)
		if takes(in) {
			row.Serving++
		}
		if in.Share() == 0 {
			lowered = append(lowered, v.say("inner.drained"))
		}
		if in.Scale != nil && in.Scale.Thousandths < 1000 {
			lowered = append(lowered, v.word("inner.why.", in.Scale.Why))
		}
	}
	row.Envs, row.Clusters, row.Versions, row.Sources, row.Lowered = tallied(envs), tallied(clusters), tallied(versions), tallied(sources), tallied(lowered)
	return row
}

// takes says whether an instance takes new calls.
func takes(in directory.Instance) bool {
	return in.Share() > 0 && (in.Scale == nil || in.Scale.Thousandths > 0)
}

// maxShown instances are on the page of a service at once; a search finds the others.
const maxShown = 200

// servicePage is one service: its rules, its instances by environment, and who calls it.
type servicePage struct {
	inner
	Name            string
	Row             serviceRow
	Query, Env      string
	Envs            []string
	Groups          []envGroup
	Shown, Of       int // instances, of those that the search finds
	CalledBy, Calls []partner
	Owner           *rules.Group
	Key             bool
	Waiting         int // its entries that nobody is sent to
	Judge           *judging
	Grows           []growth
}

// envGroup is a service in one environment.
type envGroup struct {
	Env       string
	Rule      *ruled
	Shadowed  []ruled
	Instances []instanceRow
}

// ruled is a rule with its file.
type ruled struct {
	rules.Rule
	Text string
}

// instanceRow is one instance; Why is in words.
type instanceRow struct {
	directory.Instance
	Why      string
	Isolated *directory.Verdict // somebody took it out of traffic, or refused it
}

// Level colours its state: bad takes nothing, warn less than its weight.
func (r instanceRow) Level() string {
	switch {
	case !takes(r.Instance):
		return "bad"
	case r.Scale != nil && r.Scale.Thousandths < 1000:
		return "warn"
	default:
		return "ok"
	}
}

// Part is how much of its weight it has, 0 to 1.
func (r instanceRow) Part() float64 {
	if r.Scale == nil {
		return 1
	}
	return float64(r.Scale.Thousandths) / 1000
}

// judging is the form about one instance.
type judging struct {
	verdict
	Coordinates string
}

// CPU is the part of the processors that is used; empty: unknown, which is not 0.
func (r instanceRow) CPU() string { return loadText(r.Load.CPU) }

// Hot says that its callers lower its part, each for itself.
func (r instanceRow) Hot() bool { return r.Load.CPU != nil && *r.Load.CPU > hotOver }

// hotOver is the CPU load, in percent, over which callers lower an instance.
const hotOver = 85

// Memory is the part of the memory that is used.
func (r instanceRow) Memory() string { return loadText(r.Load.Memory) }

// Connections are those in work.
func (r instanceRow) Connections() string {
	if r.Load.Connections == nil {
		return ""
	}
	return number(*r.Load.Connections)
}

func loadText(of *float64) string {
	if of == nil {
		return ""
	}
	return percent(math.Round(*of) / 100)
}

// service shows one service, with a form where the address names an instance.
func (v *visit) service() error {
	page, err := v.servicePage()
	if err != nil {
		return err
	}
	query := v.r.URL.Query()
	if do := query.Get("judge"); do == "isolate" || do == "lift" {
		if page.Judge = page.judging(query.Get("id"), do); page.Judge == nil {
			return v.refuse("service", page, unknownInstance(query.Get("id")))
		}
	}
	return v.show("service", page)
}

// judge isolates an instance, or lifts that.
func (v *visit) judge() error {
	d := v.verdictOf()
	d.Service = v.r.PathValue("name")
	err := v.do.JudgeInstance(v.r.Context(), v.write(), d.VerdictInput)
	if err == nil {
		return v.done(servicePath(d.Service), "inner.did."+d.Do, "ID", d.ID)
	}
	page, unread := v.servicePage()
	if unread != nil {
		return unread
	}
	if page.Judge = page.judging(d.ID, d.Do); page.Judge != nil {
		page.Judge.Reason = d.Reason
	}
	return v.refuse("service", page, err)
}

func unknownInstance(id string) error {
	return fault.New(fault.NotFound, "unknown_instance", "no instance %q of this service is known now", id).
		WithHint("it has left its registry, or another one came in its place: look at the list")
}

// judging is the form about an instance that the page knows; nil: it does not.
func (p *servicePage) judging(id, do string) *judging {
	for _, g := range p.Groups {
		for _, in := range g.Instances {
			if in.ID == id {
				return &judging{verdict: verdict{VerdictInput: actions.VerdictInput{Service: p.Name, ID: id, Address: in.Address.String(), Started: in.Started, Do: do}},
					Coordinates: strings.Join([]string{in.Cluster, in.Region, in.Env, in.Version}, " / ")}
			}
		}
	}
	return nil
}

func (v *visit) servicePage() (*servicePage, error) {
	return v.servicePageWith(growthForm{})
}

// servicePageWith is the page with what a form about a growing version said.
func (v *visit) servicePageWith(form growthForm) (*servicePage, error) {
	query, name := v.r.URL.Query(), v.r.PathValue("name")
	page := &servicePage{Name: name, Query: strings.TrimSpace(query.Get("q")), Env: query.Get("env")}
	head, view, err := v.inner()
	if err != nil {
		return nil, err
	}
	page.inner = head
	var instances []directory.Instance
	for _, s := range view.Services {
		if s.Name == name {
			instances = s.Instances
		}
	}
	all := rulesOfService(head.Rules.Set, name)
	page.CalledBy = partners(view.Calls, func(c directory.Call) (string, bool) { return c.From, c.To == name })
	page.Calls = partners(view.Calls, func(c directory.Call) (string, bool) { return c.To, c.From == name })
	for _, list := range [][]directory.Suspect{view.Suspicious, view.Queue} {
		for _, s := range list {
			if s.Service == name {
				page.Waiting++
			}
		}
	}
	if len(instances) == 0 && len(all) == 0 && page.Waiting == 0 && len(page.CalledBy)+len(page.Calls) == 0 {
		return nil, fault.New(fault.NotFound, "unknown_service", "no registry of this region has a service %s", name).
			WithHint("the page Services lists all of them")
	}
	page.Row = v.serviceRow(name, instances)
	page.group(v, instances, all, view.Isolated)
	for i, g := range head.Rules.Set.Groups {
		if strings.HasPrefix(name, g.Prefix) {
			page.Owner, page.Key = &head.Rules.Set.Groups[i], slices.Contains(g.Key, name)
		}
	}
	page.Grows, err = v.growths(page, view, form)
	return page, err
}

// rulesOfService are those of one service: by env, the one that counts first.
func rulesOfService(set rules.Set, name string) (all []rules.Rule) {
	for _, r := range set.Rules {
		if r.Service == name {
			all = append(all, r)
		}
	}
	return all
}

// group sorts instances and rules by environment, as the search wants them.
func (p *servicePage) group(v *visit, instances []directory.Instance, all []rules.Rule, isolated []directory.Verdict) {
	at := map[string]int{}
	in := func(env string) *envGroup {
		i, known := at[env]
		if !known {
			i, at[env] = len(p.Groups), len(p.Groups)
			p.Groups, p.Envs = append(p.Groups, envGroup{Env: env}), append(p.Envs, env)
		}
		return &p.Groups[i]
	}
	for _, r := range all {
		g := in(r.Selector.Env)
		if one := (ruled{r, r.Text()}); g.Rule == nil {
			g.Rule = &one
		} else {
			g.Shadowed = append(g.Shadowed, one)
		}
	}
	for _, one := range instances {
		g := in(one.Env)
		if p.Env != "" && one.Env != p.Env || !instanceFits(one, p.Query) {
			continue
		}
		if p.Of++; p.Shown < maxShown {
			p.Shown++
			g.Instances = append(g.Instances, v.instanceRow(one, isolated))
		}
	}
	slices.Sort(p.Envs)
	slices.SortFunc(p.Groups, func(a, b envGroup) int { return cmp.Compare(a.Env, b.Env) })
	p.Groups = slices.DeleteFunc(p.Groups, func(g envGroup) bool { return p.Env != "" && g.Env != p.Env })
}

// instanceFits says whether a search finds the instance.
func instanceFits(in directory.Instance, query string) bool {
	return slices.ContainsFunc([]string{in.Address.String(), in.ID, in.Version, in.Cluster, in.Source}, func(text string) bool { return holds(text, query) })
}

func (v *visit) instanceRow(in directory.Instance, isolated []directory.Verdict) instanceRow {
	row := instanceRow{Instance: in}
	if in.Scale != nil {
		row.Why = v.word("inner.why.", in.Scale.Why)
	}
	for i := range isolated {
		if one := &isolated[i]; one.Service == in.Service && one.ID == in.ID && one.Address == in.Address {
			row.Isolated = one
		}
	}
	return row
}
