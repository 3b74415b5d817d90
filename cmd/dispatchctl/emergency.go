package main

import (
	"context"
	"fmt"
	"net/url"
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
	Action   string   `json:"action"`
	Reason   string   `json:"reason"`
	Confirm  string   `json:"confirm"`
	Override []string `json:"override,omitempty"`
	Targets  []target `json:"targets"`
}

type target struct {
	App     string `json:"app,omitempty"`
	Region  string `json:"region,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	Policy  string `json:"policy,omitempty"`
	Expect  string `json:"expect"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	State   string `json:"state,omitempty"`
}

// atOnce is what every emergency has beside its targets.
type atOnce struct {
	change
	Override []string `placeholder:"RULE" help:"Safety rules to go past, by name, as the refusal said; needs the role break-glass."`
}

// act is one action on one target. word is what to type where no environment stands
// before it; the server says the whole of it.
type act struct {
	action, what, word string
	target             target
}

// act confirms an emergency and does it.
func (c atOnce) act(ctx context.Context, p *program, a act) error {
	body := func(typed string) any {
		return emergency{Action: a.action, Reason: c.Reason, Confirm: typed, Override: c.Override, Targets: []target{a.target}}
	}
	return c.do(ctx, p, deed{what: a.what + ", everywhere", word: a.word, path: "/emergency", confirmed: body,
		preview: func(ctx context.Context, p *program) (string, error) { return p.previewed(ctx, body("")) }})
}

// previewed prints what an emergency would meet and returns what must be typed.
func (p *program) previewed(ctx context.Context, body any) (string, error) {
	var v struct {
		Confirm string `json:"confirm"`
		Rules   []struct {
			Rule    string `json:"rule"`
			OK      bool   `json:"ok"`
			Detail  string `json:"detail"`
			Satisfy string `json:"satisfy"`
		} `json:"rules"`
		Preview *preview `json:"preview"`
	}
	if _, err := p.ask(ctx, request{method: "POST", path: "/emergency?dry_run=true", body: body}, &v); err != nil {
		return "", err
	}
	for _, r := range v.Rules {
		if !r.OK {
			fmt.Fprintln(p.log, "rule", printable(r.Rule+": "+r.Detail))
			if r.Satisfy != "" {
				fmt.Fprintln(p.log, "  try:", printable(r.Satisfy))
			}
		}
	}
	if v.Preview != nil {
		fmt.Fprint(p.log, printable(v.Preview.moves()))
	}
	return v.Confirm, nil
}

type swapCmd struct {
	Area   area   `arg:"" name:"app/region" help:"Which region of which app."`
	To     string `arg:"" help:"The endpoint that shall serve."`
	From   string `placeholder:"ENDPOINT" help:"The endpoint that shall stand by (default: the one that serves)."`
	Expect string `placeholder:"ENDPOINT" help:"The endpoint that serves, as your screen shows it; refused if it is another by now (default: as it is when the command starts)."`
	atOnce
}

// Run exchanges the two endpoints.
func (c *swapCmd) Run(ctx context.Context, p *program) error {
	if c.From == "" || c.Expect == "" {
		serving, err := p.serving(ctx, c.Area)
		if err != nil {
			return err
		}
		if c.From == "" && len(serving) != 1 {
			return usageError{fmt.Errorf("%s is served by %s\ntry: say which one shall stand by: --from", c.Area, strings.Join(serving, ", "))}
		}
		if c.From == "" {
			c.From = serving[0]
		}
		if c.Expect == "" {
			c.Expect = strings.Join(serving, ", ")
		}
	}
	return c.act(ctx, p, act{"swap", fmt.Sprintf("%s: %s serves instead of %s", c.Area, c.To, c.From), c.Area.region, target{App: c.Area.app, Region: c.Area.region, Expect: c.Expect, From: c.From, To: c.To}})
}

// serving are the endpoints that serve a region now.
func (p *program) serving(ctx context.Context, a area) ([]string, error) {
	r, err := p.region(ctx, a)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, e := range r.Endpoints {
		if e.State == "active" {
			keys = append(keys, e.Key)
		}
	}
	return keys, nil
}

// region is a region as it serves now.
func (p *program) region(ctx context.Context, a area) (regionView, error) {
	var v appView
	if _, err := p.get(ctx, "/apps/"+url.PathEscape(a.app), &v); err != nil {
		return regionView{}, err
	}
	for _, r := range v.Regions {
		if r.Key == a.region {
			return r, nil
		}
	}
	return regionView{}, usageError{fmt.Errorf("app %s has no region %s\ntry: dispatchctl apps", a.app, a.region)}
}

type regionCmd struct {
	Area   area   `arg:"" name:"app/region" help:"Which region of which app."`
	State  string `arg:"" enum:"active,draining,off" help:"active, draining (keeps its sessions, takes no new ones) or off (voids its sessions)."`
	Expect string `enum:"active,draining,off," default:"" placeholder:"STATE" help:"Its state, as your screen shows it; refused if it is another by now (default: as it is when the command starts)."`
	atOnce
}

// Run sets the state of a region.
func (c *regionCmd) Run(ctx context.Context, p *program) error {
	if c.Expect == "" {
		r, err := p.region(ctx, c.Area)
		if err != nil {
			return err
		}
		c.Expect = r.State
	}
	return c.act(ctx, p, act{"region_state", fmt.Sprintf("%s: %s instead of %s", c.Area, c.State, c.Expect), c.Area.region, target{App: c.Area.app, Region: c.Area.region, Expect: c.Expect, State: c.State}})
}

type clusterCmd struct {
	Cluster clusterArea `arg:"" name:"region/cluster" help:"Which cluster of which region."`
	State   string      `arg:"" enum:"active,standby,off" help:"active (as the document says), standby or off."`
	App     string      `placeholder:"APP" help:"Of this app alone (default: of every app that has it)."`
	Expect  string      `required:"" enum:"active,standby,off" placeholder:"STATE" help:"Its state, as your screen shows it; refused if it is another by now."`
	atOnce
}

// clusterArea is a cluster of a region. It is written REGION/CLUSTER.
type clusterArea struct{ region, cluster string }

// UnmarshalText reads REGION/CLUSTER.
func (a *clusterArea) UnmarshalText(text []byte) error {
	region, cluster, ok := strings.Cut(string(text), "/")
	if !ok || region == "" || cluster == "" {
		return fmt.Errorf("%q is not REGION/CLUSTER", text)
	}
	*a = clusterArea{region, cluster}
	return nil
}

// Run sets the state of a cluster.
func (c *clusterCmd) Run(ctx context.Context, p *program) error {
	name := c.Cluster.region + "/" + c.Cluster.cluster
	return c.act(ctx, p, act{"cluster_state", fmt.Sprintf("cluster %s: %s instead of %s", name, c.State, c.Expect), name, target{App: c.App, Region: c.Cluster.region, Cluster: c.Cluster.cluster, Expect: c.Expect, State: c.State}})
}

type freezeCmd struct {
	End bool `help:"End the freeze."`
	atOnce
}

// Run stops normal changes, or lets them go on.
func (c *freezeCmd) Run(ctx context.Context, p *program) error {
	if c.End {
		return c.act(ctx, p, act{"freeze", "normal changes go on", "unfreeze", target{Expect: "frozen", State: "open"}})
	}
	return c.act(ctx, p, act{"freeze", "normal changes and automation stop", "freeze", target{Expect: "open", State: "frozen"}})
}
