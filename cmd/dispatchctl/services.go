package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

type servicesCmd struct {
	List    servicesListCmd    `cmd:"" default:"withargs" help:"All services of the region, and the registries they come from."`
	Show    servicesShowCmd    `cmd:"" help:"One service: its coordinates, weights and endpoints."`
	Queue   servicesQueueCmd   `cmd:"" help:"Entries that nobody is sent to: what is wrong with them, and who isolated them."`
	Accept  servicesAcceptCmd  `cmd:"" help:"Believe an entry of the queue; calls may reach it."`
	Refuse  servicesRefuseCmd  `cmd:"" help:"Keep an entry of the queue out for good."`
	Isolate servicesIsolateCmd `cmd:"" help:"Send no call to an instance, whatever it registers."`
	Lift    servicesLiftCmd    `cmd:"" help:"Take back what was decided about an instance."`
}

// directoryView is what the registries say, as far as the commands show it.
type directoryView struct {
	At         time.Time `json:"at"`
	Region     string    `json:"region"`
	Registries []struct {
		Name    string        `json:"name"`
		OK      bool          `json:"ok"`
		Age     time.Duration `json:"age"`
		Problem string        `json:"problem"`
	} `json:"registries"`
	Services   []serviceView `json:"services"`
	Suspicious []suspect     `json:"suspicious"`
	Queue      []suspect     `json:"queue"`
	Isolated   []verdict     `json:"isolated"`
}

type serviceView struct {
	Name      string         `json:"name"`
	Instances []instanceView `json:"instances"`
}

type instanceView struct {
	fingerprint
	Cluster string `json:"cluster"`
	Region  string `json:"region"`
	Env     string `json:"env"`
	Version string `json:"version"`
	Weight  *int   `json:"weight"`
	Scale   *scale `json:"scale"`
	Load    struct {
		CPU *float64 `json:"cpu"`
	} `json:"load"`
}

// scale is how much of its weight an instance has, and why not all.
type scale struct {
	Thousandths int    `json:"thousandths"`
	Why         string `json:"why"`
}

// hotOver is the CPU load, in percent, over which callers lower an instance.
const hotOver = 85

// defaultWeight is that of an instance that states none.
const defaultWeight = 100

func (in instanceView) weight() int {
	if in.Weight == nil {
		return defaultWeight
	}
	return *in.Weight
}

// serves says whether calls reach it.
func (in instanceView) serves() bool {
	return in.weight() > 0 && (in.Scale == nil || in.Scale.Thousandths > 0)
}

// fingerprint tells a process from another at the same address.
type fingerprint struct {
	ID      string    `json:"id"`
	Address string    `json:"address"`
	Started time.Time `json:"started"`
}

// start is when the process started, as far as it is known.
func (f fingerprint) start() string {
	if f.Started.IsZero() {
		return "unknown"
	}
	return moment(f.Started)
}

type suspect struct {
	fingerprint
	Service  string    `json:"service"`
	Registry string    `json:"registry"`
	Why      string    `json:"why"`
	Since    time.Time `json:"since"`
}

type verdict struct {
	fingerprint
	Service string    `json:"service"`
	Isolate bool      `json:"isolate"`
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// directory reads what the registries say. Who is away is told to people, for what it
// knows may be old.
func (p *program) directory(ctx context.Context) (v directoryView, answer []byte, err error) {
	if answer, err = p.get(ctx, "/directory", &v); err != nil {
		return v, nil, err
	}
	for _, r := range v.Registries {
		if !r.OK {
			fmt.Fprintln(p.log, printable(fmt.Sprintf("warning: registry %s is away since %s; what it knew stays: %s", r.Name, age(r.Age.Seconds()), r.Problem)))
		}
	}
	return v, answer, nil
}

type servicesListCmd struct{}

// Run prints a line for each service.
func (*servicesListCmd) Run(ctx context.Context, p *program) error {
	v, answer, err := p.directory(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"SERVICE", "SERVING", "ENV", "CLUSTER", "VERSION"}}
	for _, s := range v.Services {
		serving := 0
		var envs, clusters, versions []string
		for _, in := range s.Instances {
			if in.serves() {
				serving++
			}
			envs, clusters, versions = append(envs, in.Env), append(clusters, in.Cluster), append(versions, in.Version)
		}
		rows = append(rows, []string{s.Name, fmt.Sprintf("%d/%d", serving, len(s.Instances)), distinct(envs), distinct(clusters), distinct(versions)})
	}
	if waiting := len(v.Suspicious) + len(v.Queue); waiting > 0 {
		fmt.Fprintf(p.log, "%d entries wait or cannot be used; dispatchctl services queue\n", waiting)
	}
	return p.showRows(answer, rows, "no registry of the region knows a service")
}

// distinct are the different words, in order.
func distinct(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}

type servicesShowCmd struct {
	Name string `arg:"" help:"Full name of a service."`
}

// serviceRow is a row of the service table.
type serviceRow struct {
	Service   string   `json:"service_name"`
	Cluster   string   `json:"cluster"`
	Region    string   `json:"region"`
	Env       string   `json:"env"`
	Version   string   `json:"version"`
	Weight    int      `json:"weight"`
	Endpoints []string `json:"endpoints"`
}

func (r serviceRow) compare(other serviceRow) int {
	return cmp.Or(cmp.Compare(r.Cluster, other.Cluster), cmp.Compare(r.Region, other.Region), cmp.Compare(r.Env, other.Env),
		cmp.Compare(r.Version, other.Version), cmp.Compare(r.Weight, other.Weight))
}

// tableOf joins the instances of equal coordinates and weight.
func (s serviceView) tableOf() []serviceRow {
	all := make([]serviceRow, 0, len(s.Instances))
	for _, in := range s.Instances {
		all = append(all, serviceRow{s.Name, in.Cluster, in.Region, in.Env, in.Version, in.weight(), []string{in.Address}})
	}
	slices.SortStableFunc(all, serviceRow.compare)
	rows := all[:0]
	for _, r := range all {
		if last := len(rows) - 1; last >= 0 && rows[last].compare(r) == 0 {
			rows[last].Endpoints = append(rows[last].Endpoints, r.Endpoints...)
			continue
		}
		rows = append(rows, r)
	}
	for _, r := range rows {
		slices.SortFunc(r.Endpoints, compareAddresses)
	}
	return rows
}

// compareAddresses sorts addresses as numbers, and names behind them.
func compareAddresses(a, b string) int {
	x, errX := netip.ParseAddrPort(a)
	y, errY := netip.ParseAddrPort(b)
	switch {
	case errX == nil && errY == nil:
		return x.Compare(y)
	case errX == nil:
		return -1
	case errY == nil:
		return 1
	}
	return cmp.Compare(a, b)
}

// Run prints the table of one service. Who takes less than the weight says is told
// beside it.
func (c *servicesShowCmd) Run(ctx context.Context, p *program) error {
	v, _, err := p.directory(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(v.Services, func(s serviceView) bool { return s.Name == c.Name })
	if at < 0 {
		return v.unknown(c.Name)
	}
	for _, in := range v.Services[at].Instances {
		if in.Scale != nil {
			fmt.Fprintln(p.log, printable(fmt.Sprintf("%s takes %g %% of its weight: %s", in.Address, float64(in.Scale.Thousandths)/10, in.Scale.Why)))
		}
		if cpu := in.Load.CPU; cpu != nil && *cpu > hotOver {
			fmt.Fprintln(p.log, printable(fmt.Sprintf("%s is at %.0f %% CPU: over %d %% callers lower its part with each report", in.Address, *cpu, hotOver)))
		}
	}
	found := v.Services[at].tableOf()
	rows := [][]string{{"service_name", "cluster", "region", "env", "version", "weight", "endpoints"}}
	for _, r := range found {
		rows = append(rows, []string{r.Service, r.Cluster, r.Region, r.Env, r.Version, strconv.Itoa(r.Weight), strings.Join(r.Endpoints, ", ")})
	}
	answer, err := jsonText(found)
	if err != nil {
		return err
	}
	return p.showRows(answer, rows, c.Name+" has no instance")
}

// unknown is the error about a name that no service has.
func (v directoryView) unknown(name string) error {
	err := fault.New(fault.NotFound, "unknown_service", "no service of %s is named %s", v.Region, name).WithHint("dispatchctl services lists them")
	var full []string
	for _, s := range v.Services {
		if strings.HasSuffix(s.Name, "."+name) || strings.HasPrefix(s.Name, name+".") {
			full = append(full, s.Name)
		}
	}
	if len(full) > 0 {
		err = err.WithHint("write the full name: " + strings.Join(full, ", "))
	}
	return err
}

type servicesQueueCmd struct{}

// Run prints what waits for a person first, then what cannot be used, then what is kept out.
func (*servicesQueueCmd) Run(ctx context.Context, p *program) error {
	v, answer, err := p.directory(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"STATE", "SERVICE", "ID", "ADDRESS", "STARTED", "SINCE", "WHY"}}
	for _, of := range []struct {
		state string
		all   []suspect
	}{{"waits", v.Queue}, {"unusable", v.Suspicious}} {
		for _, s := range of.all {
			rows = append(rows, []string{of.state, s.Service, s.ID, s.Address, s.start(), moment(s.Since), s.Registry + ": " + s.Why})
		}
	}
	for _, d := range v.Isolated {
		state := "refused"
		if d.Isolate {
			state = "isolated"
		}
		rows = append(rows, []string{state, d.Service, d.ID, d.Address, d.start(), moment(d.At), d.By + ": " + d.Reason})
	}
	return p.showRows(answer, rows, "nothing waits, and nobody is kept out")
}
