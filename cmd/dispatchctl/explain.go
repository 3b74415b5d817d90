package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type explainCmd struct {
	Request explainRequestCmd `cmd:"" default:"withargs" help:"Why a request would get its domain."`
	Call    explainCallCmd    `cmd:"" help:"Why an internal call went where it went."`
}

type explainCallCmd struct {
	ID string `arg:"" help:"Id of the decision: the record that the error of the call names."`
}

// counts are the candidates after each filter.
type counts struct {
	Cluster int `json:"cluster"`
	Region  int `json:"region"`
	Env     int `json:"env"`
	Version int `json:"version"`
}

func (c counts) String() string {
	return fmt.Sprintf("cluster %d, region %d, env %d, version %d", c.Cluster, c.Region, c.Env, c.Version)
}

// callView is the record of a call and what was made of it.
type callView struct {
	Standing string `json:"standing"`
	Record   struct {
		ID      string    `json:"id"`
		At      time.Time `json:"at"`
		Caller  string    `json:"caller"`
		Service string    `json:"service"`
		Rule    string    `json:"rule"`
		Reason  string    `json:"reason"`
		Chosen  string    `json:"chosen"`
		Outcome string    `json:"outcome"`
		Draw    uint64    `json:"draw,string"`
		Counts  *counts   `json:"counts"`
		Lane    struct {
			Env    string `json:"env"`
			Base   string `json:"base"`
			Person string `json:"person"`
		} `json:"lane"`
	} `json:"record"`
	Explanation *explanation `json:"explanation"`
}

type explanation struct {
	Steps []struct {
		Env  string `json:"env"`
		Want struct {
			Cluster string `json:"cluster"`
			Region  string `json:"region"`
			Env     string `json:"env"`
			Version string `json:"version"`
		} `json:"want"`
		Rule   string `json:"rule"`
		Known  int    `json:"known"`
		Counts counts `json:"counts"`
	} `json:"steps"`
	Shadowed []string `json:"shadowed"`
	Sides    []struct {
		Version   string  `json:"version"`
		Weight    int     `json:"weight"`
		Effective float64 `json:"effective"`
	} `json:"sides"`
	Candidates []struct {
		Address string  `json:"address"`
		ID      string  `json:"id"`
		Weight  int     `json:"weight"`
		Stated  bool    `json:"stated"`
		Scale   *scale  `json:"scale"`
		Score   float64 `json:"score"`
	} `json:"candidates"`
	Shift *struct {
		Condition string   `json:"condition"`
		Tenths    int      `json:"tenths"`
		Load      *float64 `json:"load"`
	} `json:"shift"`
	Chosen  string `json:"chosen"`
	AllCold bool   `json:"all_cold"`
	Panic   bool   `json:"panic"`
	Problem string `json:"problem"`
}

// Run prints the record of the call, then the steps of the same pick made again.
func (c *explainCallCmd) Run(ctx context.Context, p *program) error {
	var v callView
	answer, err := p.get(ctx, "/calls/"+url.PathEscape(c.ID), &v)
	if err != nil {
		return err
	}
	return p.show(answer, printable(v.String()))
}

// String is the record, and the explanation where there is one.
func (v callView) String() string {
	var b strings.Builder
	r := v.Record
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s "+format+"\n", append([]any{name}, args...)...)
	}
	line("call", "%s at %s, by %s", r.ID, moment(r.At), r.Caller)
	lane := "env " + or(r.Lane.Env, "of the caller")
	if r.Lane.Base != "" {
		lane += ", then " + r.Lane.Base
	}
	if r.Lane.Person != "" {
		lane += ", first those of " + r.Lane.Person
	}
	line("service", "%s, %s", r.Service, lane)
	line("reason", "%s", r.Reason)
	line("chosen", "%s", or(r.Chosen, "nobody"))
	if r.Outcome != "" {
		line("ended", "%s", r.Outcome)
	}
	line("rule", "%s", or(r.Rule, "none"))
	if r.Counts != nil {
		line("left", "%s", r.Counts)
	}
	line("standing", "%s", v.Standing)
	if v.Explanation != nil {
		v.Explanation.write(line, r.Draw, r.Chosen)
	}
	return b.String()
}

// write is the pick step by step: filters, versions, draw, candidates.
func (e *explanation) write(line func(name, format string, args ...any), draw uint64, chosen string) {
	for i, s := range e.Steps {
		line("step "+strconv.Itoa(i+1), "%s, %s, %s, %s: of %d known are left: %s", or(s.Want.Cluster, "any cluster"), or(s.Want.Region, "any region"),
			or(s.Want.Env, "any env"), or(s.Want.Version, "any version"), s.Known, s.Counts)
	}
	for _, id := range e.Shadowed {
		line("shadowed", "%s", id)
	}
	for _, s := range e.Sides {
		line("version", "%s: weight %d, %.1f %% of the calls", s.Version, s.Weight, 100*s.Effective)
	}
	if s := e.Shift; s != nil {
		load := "unknown"
		if s.Load != nil {
			load = fmt.Sprintf("%.1f %%", *s.Load)
		}
		line("shift", "%s: %d tenths of the main version's part go to the fallback besides its own; the load was %s when that last changed", s.Condition, s.Tenths, load)
	}
	if e.AllCold {
		line("all cold", "every match was warming, so they served")
	}
	if e.Panic {
		line("panic", "the caller had put out every match, because it could not reach them or their calls failed; so they served")
	}
	line("draw", "%d", draw)
	for _, c := range e.Candidates {
		weight, mark := strconv.Itoa(c.Weight), ""
		if !c.Stated {
			weight += " (default)"
		}
		if c.Scale != nil {
			weight += fmt.Sprintf(", %g %% of it: %s", float64(c.Scale.Thousandths)/10, c.Scale.Why)
		}
		if c.Address == chosen {
			mark = "  ← chosen"
		}
		line("candidate", "%s: weight %s, %.1f %% of the version's calls%s", c.Address, weight, 100*c.Score, mark)
	}
	if e.Chosen != chosen {
		line("now", "%s", or(e.Chosen, "nobody"))
	}
	if e.Problem != "" {
		line("problem", "%s", e.Problem)
	}
}
