package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

type rulesCmd struct {
	Show    rulesShowCmd    `cmd:"" default:"withargs" help:"The rules that callers of the region follow."`
	Lint    rulesLintCmd    `cmd:"" help:"Check a folder of rules, or some of its files, against form and directory."`
	Diff    rulesDiffCmd    `cmd:"" help:"What a folder would change; ends with 2 if it would."`
	Apply   rulesApplyCmd   `cmd:"" help:"Publish a folder for all callers of the region."`
	Approve rulesApproveCmd `cmd:"" help:"Agree to changes of key services that somebody else publishes."`
	Export  rulesExportCmd  `cmd:"" help:"Write the rules and the instances of this moment for Envoy."`
	Switch  rulesSwitchCmd  `cmd:"" help:"Throw the kill switch of the region, or take it back."`
}

// ruleView is a rule as the server shows it.
type ruleView struct {
	Service  string    `json:"service"`
	Updated  time.Time `json:"updated"`
	Selector struct {
		Cluster string `json:"cluster"`
		Region  string `json:"region"`
		Env     string `json:"env"`
	} `json:"selector"`
	Strategy struct {
		Version string `json:"version"`
		Weight  int    `json:"weight"`
	} `json:"strategy"`
	Fallback *struct {
		Version   string `json:"version"`
		Weight    int    `json:"weight"`
		Condition *struct {
			Metric   string  `json:"metric"`
			Operator string  `json:"operator"`
			Number   float64 `json:"number"`
		} `json:"condition"`
	} `json:"fallback"`
	File string `json:"file"`
}

// fallback is the second version and its weight, and what raises it.
func (r ruleView) fallback() string {
	f := r.Fallback
	if f == nil {
		return ""
	}
	text := fmt.Sprintf("%s %d", f.Version, f.Weight)
	if c := f.Condition; c != nil {
		text += fmt.Sprintf(", more while %s %s %g", c.Metric, c.Operator, c.Number)
	}
	return text
}

type rulesShowCmd struct{}

// Run prints a line for each rule: below one that counts, those that it shadows.
func (*rulesShowCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Region  string    `json:"region"`
		Number  uint64    `json:"number"`
		By      string    `json:"by"`
		Created time.Time `json:"created"`
		Reason  string    `json:"reason"`
		Set     struct {
			Direct bool        `json:"direct"`
			Rules  []ruleView  `json:"rules"`
			Grays  []innerGray `json:"grays"`
			Groups []struct {
				Prefix string   `json:"prefix"`
				Owners []string `json:"owners"`
				Key    []string `json:"key"`
			} `json:"groups"`
		} `json:"set"`
	}
	answer, err := p.get(ctx, "/rules", &v)
	if err != nil {
		return err
	}
	if v.Number == 0 {
		return p.show(answer, printable(fmt.Sprintf("nothing was published for %s yet; dispatchctl rules apply DIR\n", v.Region)))
	}
	text := fmt.Sprintf("rules of %s: %s, %s by %s: %s\n", v.Region, version(v.Number), moment(v.Created), v.By, v.Reason)
	if v.Set.Direct {
		text += directText
	}
	rows := [][]string{{"SERVICE", "ENV", "CLUSTER", "REGION", "STRATEGY", "FALLBACK", "UPDATED", "FILE", ""}}
	for i, r := range v.Set.Rules {
		note := ""
		if i > 0 && r.Service == v.Set.Rules[i-1].Service && r.Selector.Env == v.Set.Rules[i-1].Selector.Env {
			note = "shadowed"
		}
		rows = append(rows, []string{r.Service, r.Selector.Env, r.Selector.Cluster, r.Selector.Region,
			fmt.Sprintf("%s %d", r.Strategy.Version, r.Strategy.Weight), r.fallback(), moment(r.Updated), r.File, note})
	}
	text = printable(text) + table(rows, false)
	for _, g := range v.Set.Grays {
		text += printable(fmt.Sprintf("gray %s: %s takes %d %% meanwhile; dispatchctl gray inner show %s\n", g.name(), g.Version, g.Share, g.name()))
	}
	if len(v.Set.Groups) > 0 {
		rows = [][]string{{"GROUP", "OWNERS", "KEY SERVICES"}}
		for _, g := range v.Set.Groups {
			rows = append(rows, []string{g.Prefix, strings.Join(g.Owners, ", "), strings.Join(g.Key, ", ")})
		}
		text += "\n" + table(rows, false)
	}
	return p.show(answer, text)
}

// directText is said wherever the kill switch is thrown.
const directText = "the kill switch is thrown: rules, weights and versions do not count; dispatchctl rules switch rules takes it back\n"
