package main

import (
	"context"
	"fmt"
	"strings"
)

// area is a region of an app. It is written APP/REGION.
type area struct{ app, region string }

// UnmarshalText reads APP/REGION.
func (a *area) UnmarshalText(text []byte) error {
	app, region, ok := strings.Cut(string(text), "/")
	if !ok || app == "" || region == "" || strings.Contains(region, "/") {
		return fmt.Errorf("%q is not APP/REGION", text)
	}
	*a = area{app, region}
	return nil
}

func (a area) String() string { return a.app + "/" + a.region }

// emergency is the body of POST /emergency.
type emergency struct {
	Action  string   `json:"action"`
	Reason  string   `json:"reason"`
	Confirm string   `json:"confirm"`
	Targets []target `json:"targets"`
}

type target struct {
	App    string `json:"app"`
	Region string `json:"region"`
	Expect string `json:"expect"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	State  string `json:"state,omitempty"`
}

type swapCmd struct {
	Area   area   `arg:"" name:"app/region" help:"Which region of which app."`
	From   string `arg:"" help:"The endpoint that shall stand by."`
	To     string `arg:"" help:"The endpoint that shall serve."`
	Expect string `required:"" placeholder:"ENDPOINT" help:"The endpoint that serves, as your screen shows it; refused if it is another by now."`
	change
}

// Run exchanges the two endpoints.
func (c *swapCmd) Run(ctx context.Context, p *program) error {
	return c.do(ctx, p, deed{what: fmt.Sprintf("%s: %s serves instead of %s, everywhere", c.Area, c.To, c.From), word: c.Area.String(),
		path: "/emergency", body: emergency{Action: "swap", Reason: c.Reason, Confirm: c.Area.region,
			Targets: []target{{App: c.Area.app, Region: c.Area.region, Expect: c.Expect, From: c.From, To: c.To}}}})
}

type regionCmd struct {
	Area   area   `arg:"" name:"app/region" help:"Which region of which app."`
	State  string `arg:"" enum:"active,draining,off" help:"active, draining (keeps its sessions, takes no new ones) or off (voids its sessions)."`
	Expect string `required:"" enum:"active,draining,off" placeholder:"STATE" help:"Its state, as your screen shows it; refused if it is another by now."`
	change
}

// Run sets the state of a region.
func (c *regionCmd) Run(ctx context.Context, p *program) error {
	return c.do(ctx, p, deed{what: fmt.Sprintf("%s: %s instead of %s, everywhere", c.Area, c.State, c.Expect), word: c.Area.String(),
		path: "/emergency", body: emergency{Action: "region_state", Reason: c.Reason, Confirm: c.Area.region,
			Targets: []target{{App: c.Area.app, Region: c.Area.region, Expect: c.Expect, State: c.State}}}})
}
