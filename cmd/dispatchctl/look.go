package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// appView is an app as it serves.
type appView struct {
	Key      string       `json:"key"`
	Name     string       `json:"name"`
	Fallback string       `json:"fallback"`
	Regions  []regionView `json:"regions"`
	Frozen   bool         `json:"frozen"`
}

type regionView struct {
	Key       string `json:"key"`
	Name      string `json:"name"`
	State     string `json:"state"`
	Capacity  int    `json:"capacity"`
	Endpoints []struct {
		Key     string `json:"key"`
		Domain  string `json:"domain"`
		Cluster string `json:"cluster"`
		State   string `json:"state"`
	} `json:"endpoints"`
}

type appsCmd struct{}

// Run prints a line for each endpoint, which is what an emergency names.
func (*appsCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Release uint64    `json:"release"`
		Apps    []appView `json:"apps"`
	}
	answer, err := p.get(ctx, "/apps", &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"APP/REGION", "STATE", "ENDPOINT", "STATE", "CLUSTER", "DOMAIN"}}
	for _, a := range v.Apps {
		for _, r := range a.Regions {
			for _, e := range r.Endpoints {
				rows = append(rows, []string{a.Key + "/" + r.Key, r.State, e.Key, e.State, e.Cluster, e.Domain})
			}
		}
	}
	return p.showRows(answer, rows, "nothing was published yet; dispatchctl apply FILE")
}

type explainRequestCmd struct {
	App        string            `help:"Key of an app (default: the default app)."`
	Device     string            `placeholder:"ID" help:"Device id."`
	User       string            `placeholder:"ID" help:"User id."`
	AppVersion string            `help:"Version of the app."`
	Platform   string            `help:"Platform."`
	Channel    string            `help:"Channel."`
	Carrier    string            `help:"Carrier."`
	Locale     string            `help:"Locale."`
	Origin     string            `help:"Origin hint."`
	Address    string            `help:"Client address."`
	Session    string            `help:"Session token of an earlier answer."`
	Attr       map[string]string `placeholder:"NAME=VALUE" help:"An attr condition's input."`
	At         time.Time         `placeholder:"TIME" help:"When, as 2027-01-01T09:00:00+08:00 (default: now)."`
	Release    uint64            `placeholder:"N" help:"By this release (default: the one in use)."`
	Draft      string            `placeholder:"ID" help:"By this draft."`
}

// Run prints the walk. Who asked is written down.
func (c *explainRequestCmd) Run(ctx context.Context, p *program) error {
	body := map[string]any{}
	for name, value := range map[string]string{"app": c.App, "device_id": c.Device, "user_id": c.User, "app_version": c.AppVersion, "platform": c.Platform,
		"channel": c.Channel, "carrier": c.Carrier, "locale": c.Locale, "origin": c.Origin, "address": c.Address, "session": c.Session, "draft": c.Draft} {
		if value != "" {
			body[name] = value
		}
	}
	if len(c.Attr) > 0 {
		body["attr"] = c.Attr
	}
	if !c.At.IsZero() {
		body["at"] = c.At
	}
	if c.Release > 0 {
		body["release"] = c.Release
	}
	var v struct {
		Text string `json:"text"`
	}
	answer, err := p.ask(ctx, request{method: http.MethodPost, path: "/explain", body: body}, &v)
	if err != nil {
		return err
	}
	return p.show(answer, printable(v.Text))
}

type probesCmd struct{}

// Run prints a line for each host, the worst first.
func (*probesCmd) Run(ctx context.Context, p *program) error {
	type health struct {
		Host    string    `json:"host"`
		State   string    `json:"state"`
		Since   time.Time `json:"since"`
		Up      int       `json:"up"`
		Of      int       `json:"of"`
		Expires time.Time `json:"expires"`
		Probers []struct {
			Problem string `json:"problem"`
		} `json:"probers"`
	}
	var v struct {
		On         bool              `json:"on"`
		Distrusted bool              `json:"distrusted"`
		Hosts      map[string]health `json:"hosts"`
	}
	answer, err := p.get(ctx, "/probes", &v)
	if err != nil {
		return err
	}
	if !v.On {
		return p.show(answer, "probes are off\n")
	}
	if v.Distrusted {
		fmt.Fprintln(p.log, "warning: most probes fail at once; the probers are suspected, and nothing acts on them")
	}
	all := make([]health, 0, len(v.Hosts))
	for _, h := range v.Hosts {
		all = append(all, h)
	}
	order := []string{"down", "unknown", "up"}
	slices.SortFunc(all, func(x, y health) int {
		if by := slices.Index(order, x.State) - slices.Index(order, y.State); by != 0 {
			return by
		}
		return strings.Compare(x.Host, y.Host)
	})
	rows := [][]string{{"HOST", "STATE", "SINCE", "PROBERS", "CERTIFICATE UNTIL", "WHY"}}
	for _, h := range all {
		why, expires := "", ""
		for _, seen := range h.Probers {
			why = or(why, seen.Problem)
		}
		if !h.Expires.IsZero() {
			expires = h.Expires.UTC().Format(time.DateOnly)
		}
		rows = append(rows, []string{h.Host, h.State, moment(h.Since), fmt.Sprintf("%d/%d", h.Up, h.Of), expires, why})
	}
	return p.showRows(answer, rows, "no host was probed yet")
}

type trafficCmd struct {
	App   string        `help:"Of this app alone."`
	By    []string      `default:"app,region,reason" help:"Any of app, region, endpoint, policy, reason, release."`
	Since time.Duration `default:"1h" help:"How far back, at most 2160h."`
}

// Run prints the answers of the time.
func (c *trafficCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Counts []struct {
			App      string `json:"app"`
			Region   string `json:"region"`
			Endpoint string `json:"endpoint"`
			Policy   string `json:"policy"`
			Reason   string `json:"reason"`
			Release  uint64 `json:"release"`
			N        uint64 `json:"n"`
		} `json:"counts"`
	}
	query := url.Values{"by": {strings.Join(c.By, ",")}, "since": {c.Since.String()}, "every": {"0s"}}
	if c.App != "" {
		query.Set("app", c.App)
	}
	answer, err := p.get(ctx, "/traffic?"+query.Encode(), &v)
	if err != nil {
		return err
	}
	head, total := []string{}, uint64(0)
	for _, by := range c.By {
		head = append(head, strings.ToUpper(by))
	}
	rows := [][]string{append(head, "ANSWERS", "PART")}
	for _, n := range v.Counts {
		total += n.N
	}
	for _, n := range v.Counts {
		var row []string
		for _, by := range c.By {
			row = append(row, map[string]string{"app": n.App, "region": n.Region, "endpoint": n.Endpoint, "policy": n.Policy,
				"reason": n.Reason, "release": version(n.Release)}[by])
		}
		rows = append(rows, append(row, strconv.FormatUint(n.N, 10), fmt.Sprintf("%.2f %%", 100*float64(n.N)/float64(total))))
	}
	return p.showRows(answer, rows, "no answers in this time")
}
