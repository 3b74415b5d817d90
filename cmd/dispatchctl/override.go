package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

type overrideCmd struct {
	Reconcile reconcileCmd `cmd:"" help:"Make a release of the override that is in force on a replica, which ends all overrides."`
}

type reconcileCmd struct {
	Replica string `arg:"" help:"Whose override; dispatchctl fleet shows them."`
	change
}

// Run makes a normal release: it goes to the canary first.
func (c *reconcileCmd) Run(ctx context.Context, p *program) error {
	return c.do(ctx, p, deed{what: "The override on " + c.Replica + " becomes a release, and all overrides end", word: c.Replica,
		path: "/overrides/reconcile", body: struct {
			Reason  string `json:"reason"`
			Replica string `json:"replica"`
		}{c.Reason, c.Replica}})
}

// override is break glass in force on a replica.
type override struct {
	Actions []struct {
		Swap *struct {
			App    string `json:"app"`
			Region string `json:"region"`
			From   string `json:"from"`
			To     string `json:"to"`
		} `json:"swap"`
		Region *struct {
			App    string `json:"app"`
			Region string `json:"region"`
			State  string `json:"state"`
		} `json:"region_state"`
	} `json:"actions"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"`
}

// String is what it does, until when, and who made it and why; empty for none.
func (o *override) String() string {
	if o == nil {
		return ""
	}
	var did []string
	for _, a := range o.Actions {
		if s := a.Swap; s != nil {
			did = append(did, fmt.Sprintf("%s/%s %s → %s", s.App, s.Region, s.From, s.To))
		}
		if r := a.Region; r != nil {
			did = append(did, fmt.Sprintf("%s/%s %s", r.App, r.Region, r.State))
		}
	}
	return fmt.Sprintf("%s until %s by %s: %s", strings.Join(did, ", "), moment(o.Until), o.By, o.Reason)
}
