package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

type mapCmd struct{}

// mapCell is a service in one environment.
type mapCell struct {
	Service  string    `json:"service"`
	Env      string    `json:"env"`
	Cluster  string    `json:"cluster"`
	Rule     *ruleView `json:"rule"`
	Shadowed []string  `json:"shadowed"`
	Group    string    `json:"group"`
	Key      bool      `json:"key"`
	Problem  string    `json:"problem"`
	Gray     *struct {
		Version string `json:"version"`
		Share   int    `json:"share"`
	} `json:"gray"`
	Versions []struct {
		Version   string  `json:"version"`
		Share     float64 `json:"share"`
		Instances int     `json:"instances"`
		Serving   int     `json:"serving"`
	} `json:"versions"`
}

// Run prints a line for each service and environment, and who calls whom.
func (mapCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Region  string            `json:"region"`
		Number  uint64            `json:"number"`
		Direct  bool              `json:"direct"`
		Partial map[string]string `json:"partial"`
		Cells   []mapCell         `json:"cells"`
		Calls   []struct {
			From string    `json:"from"`
			Env  string    `json:"env"`
			To   string    `json:"to"`
			Last time.Time `json:"last"`
		} `json:"calls"`
	}
	answer, err := p.get(ctx, "/directory/map", &v)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(v.Partial)) {
		fmt.Fprintln(p.log, printable(fmt.Sprintf("warning: registry %s is away; what it knew stays: %s", name, v.Partial[name])))
	}
	text := printable(fmt.Sprintf("region %s, rules %s\n", v.Region, version(v.Number)))
	if v.Direct {
		text += directText
	}
	rows := [][]string{{"SERVICE", "ENV", "CLUSTER", "VERSIONS", "RULE", "GROUP", "PROBLEM"}}
	for _, c := range v.Cells {
		rows = append(rows, []string{c.Service, c.Env, c.Cluster, c.versions(), c.rule(), c.group(), c.Problem})
	}
	text += table(rows, p.color)
	if len(v.Calls) > 0 {
		rows = [][]string{{"CALLER", "ENV", "CALLS", "LAST"}}
		for _, c := range v.Calls {
			rows = append(rows, []string{c.From, c.Env, c.To, moment(c.Last)})
		}
		text += "\n" + table(rows, false)
	}
	return p.show(answer, text)
}

// versions are the parts of new calls, and how many instances of each serve.
func (c mapCell) versions() string {
	var parts []string
	for _, v := range c.Versions {
		parts = append(parts, fmt.Sprintf("%s %.1f %% (%d/%d)", v.Version, 100*v.Share, v.Serving, v.Instances))
	}
	return strings.Join(parts, ", ")
}

func (c mapCell) rule() string {
	if c.Rule == nil {
		return "none: own cluster and region"
	}
	text := "of " + moment(c.Rule.Updated)
	if g := c.Gray; g != nil {
		text += fmt.Sprintf(", gray %s %d %%", g.Version, g.Share)
	}
	if len(c.Shadowed) > 0 {
		text += fmt.Sprintf(", shadows %d", len(c.Shadowed))
	}
	return text
}

func (c mapCell) group() string {
	if c.Key {
		return c.Group + " (key)"
	}
	return c.Group
}
