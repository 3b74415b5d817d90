package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

type fleetCmd struct{}

// fleetView is what GET /fleet answers, as far as the table shows it.
type fleetView struct {
	Rollout struct {
		Head    uint64    `json:"head"`
		All     uint64    `json:"all"`
		Canary  string    `json:"canary"`
		Started time.Time `json:"started"`
	} `json:"rollout"`
	Lost    uint64   `json:"lost"`
	Members []member `json:"members"`
	Unheard []struct {
		ID      string `json:"id"`
		Address string `json:"address"`
		Region  string `json:"region"`
	} `json:"unheard"`
}

type member struct {
	ID     string  `json:"id"`
	State  string  `json:"state"`
	Number uint64  `json:"number"`
	Age    float64 `json:"age"` // seconds
	Place  struct {
		Region  string `json:"region"`
		Cluster string `json:"cluster"`
		Env     string `json:"env"`
		Version string `json:"version"`
	} `json:"place"`
	Refusal *struct {
		Number uint64 `json:"number"`
		Source string `json:"source"`
		Code   string `json:"code"`
		Reason string `json:"reason"`
	} `json:"refusal"`
	Override *override `json:"override"`
}

// Run prints the rollout, a row for each replica and, below, why any refused and who
// was never heard.
func (fleetCmd) Run(ctx context.Context, p *program) error {
	var v fleetView
	answer, err := p.get(ctx, "/fleet", &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"REPLICA", "STATE", "RELEASE", "AGE", "PLACE", "REFUSED", "OVERRIDE"}}
	var refusals strings.Builder
	for _, m := range v.Members {
		row := []string{m.ID, m.State, version(m.Number), "", m.place(), "", m.Override.String()}
		if m.Number > 0 {
			row[3] = age(m.Age)
		}
		if r := m.Refusal; r != nil {
			row[5] = version(r.Number) + " " + r.Code
			fmt.Fprintf(&refusals, "%s refused %s from %s: %s\n", m.ID, version(r.Number), r.Source, strings.ReplaceAll(r.Reason, "\n", "\n  "))
		}
		rows = append(rows, row)
	}
	for _, u := range v.Unheard {
		fmt.Fprintf(&refusals, "%s at %s (%s) is in the registry and never asked a control node: no change reaches it; give it --control or --discovery, and the fleet token\n", u.ID, u.Address, u.Region)
	}
	return p.show(answer, printable(v.rollout())+table(rows, p.color)+printable(refusals.String()))
}

// rollout is one line, and another if the database is behind.
func (v fleetView) rollout() string {
	line := fmt.Sprintf("head %s  all %s  canary %s", version(v.Rollout.Head), version(v.Rollout.All), cmp.Or(v.Rollout.Canary, "none"))
	if v.Rollout.Canary != "" {
		line += " since " + moment(v.Rollout.Started)
	}
	if v.Lost > 0 {
		line += fmt.Sprintf("\nthe database lacks %d releases that are served; try: dispatchctl releases adopt", v.Lost)
	}
	return line + "\n"
}

// place is region/cluster/env/version, as far as they are set.
func (m member) place() string {
	var parts []string
	for _, part := range []string{m.Place.Region, m.Place.Cluster, m.Place.Env, m.Place.Version} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}
