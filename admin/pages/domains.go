package pages

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/probe"
)

// domainsPage is the register of hosts with what probers know of each.
type domainsPage struct {
	Hosts      []registered
	Regions    []room
	Health     actions.Health
	Suffixes   string
	Typed      string // the host that was proposed and refused
	Reason     string
	Unapproved int
}

// registered is one host of the register.
type registered struct {
	ledger.Host
	Health   actions.HostHealth
	Uses     []hostUse
	Allowed  bool          // it lies below the suffixes of this process
	Left     time.Duration // that its certificate lasts
	Soon     bool          // that it ends soon
	Agreeing bool          // the visitor may approve it
}

// hostUse is where the release in use names a host.
type hostUse struct{ App, Region, Endpoint, State string }

// room is one region's capacity and its hosts.
type room struct {
	App string
	actions.RegionView
	Of int // of all regions of the app
}

// fallbackState is the state of an app's fallback, which is no endpoint.
const fallbackState = "fallback"

// domains shows the register.
func (v *visit) domains() error {
	page, err := v.register()
	if err != nil {
		return err
	}
	return v.show("domains", page)
}

// proposeHost registers a host. Whoever proposes one cannot use it before somebody
// else has agreed.
func (v *visit) proposeHost() error {
	host, err := v.do.ProposeHost(v.r.Context(), v.write(), strings.TrimSpace(v.r.PostFormValue("host")))
	if err == nil {
		return v.done("/domains/"+host.Host, "domains.did.propose", "Host", host.Host)
	}
	page, unread := v.register()
	if unread != nil {
		return unread
	}
	page.Typed, page.Reason = v.r.PostFormValue("host"), v.r.PostFormValue("reason")
	return v.refuse("domains", page, err)
}

// host shows one host with every probe that is kept of it.
func (v *visit) host() error {
	h, err := v.registeredHost()
	if err != nil {
		return err
	}
	return v.show("host", h)
}

// approveHost agrees to a host that somebody else proposed.
func (v *visit) approveHost() error {
	h, err := v.registeredHost()
	if err != nil {
		return err
	}
	if _, err := v.do.ApproveHost(v.r.Context(), v.write(), h.Host.Host); err != nil {
		return v.refuse("host", h, err)
	}
	return v.done("/domains/"+url.PathEscape(h.Host.Host), "domains.did.approve", "Host", h.Host.Host)
}

func (v *visit) registeredHost() (*registered, error) {
	page, err := v.register()
	if err != nil {
		return nil, err
	}
	name := v.r.PathValue("host")
	i := slices.IndexFunc(page.Hosts, func(h registered) bool { return h.Host.Host == name })
	if i < 0 {
		return nil, fault.New(fault.NotFound, "unknown_host", "nobody proposed %s", name).WithHint("the page Domains lists all hosts")
	}
	return &page.Hosts[i], nil
}

// register is every host, those that need somebody first.
func (v *visit) register() (*domainsPage, error) {
	ctx := v.r.Context()
	hosts, err := v.do.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	page := &domainsPage{Suffixes: v.do.Suffixes.String()}
	if page.Health, err = v.do.Health(ctx); err != nil {
		return nil, err
	}
	_, apps := v.do.Apps()
	uses := usesOf(apps)
	for _, h := range hosts {
		r := registered{Host: h, Health: page.Health.Hosts[h.Host], Uses: uses[h.Host], Allowed: v.do.Suffixes.Allows(h.Host)}
		r.Left = r.Health.Expires.Sub(v.opt.Now())
		r.Soon = !r.Health.Expires.IsZero() && r.Left < probe.RenewWithin
		r.Agreeing = h.Approver == "" && v.Actor.May("approve") == nil && (!v.do.FourEyes || !strings.EqualFold(h.Proposer, v.Actor.Name))
		if h.Approver == "" {
			page.Unapproved++
		}
		page.Hosts = append(page.Hosts, r)
	}
	slices.SortStableFunc(page.Hosts, func(x, y registered) int { return x.urgency() - y.urgency() })
	for _, app := range apps {
		sum := 0
		for _, r := range app.Regions {
			sum += r.Capacity
		}
		for _, r := range app.Regions {
			page.Regions = append(page.Regions, room{app.Key, r, sum})
		}
	}
	return page, nil
}

// urgency is 0 for what somebody must look at.
func (r registered) urgency() int {
	switch {
	case r.Health.Dangling, r.Health.State == probe.Down && r.Serves(), !r.Allowed:
		return 0
	case r.Host.Approver == "":
		return 1
	case r.Health.State == probe.Down, r.Soon:
		return 2
	default:
		return 3
	}
}

// Serves says whether people are sent to the host now.
func (r registered) Serves() bool {
	return slices.ContainsFunc(r.Uses, func(u hostUse) bool { return u.State == string(domain.Serving) || u.State == fallbackState })
}

// Answered is how many of the last probes found the host.
func (r registered) Answered() (n int) {
	for _, shot := range r.Health.Recent {
		if shot.OK {
			n++
		}
	}
	return n
}

// Part is the region's part of the app's capacity, 0 to 1.
func (r room) Part() float64 {
	if r.Of == 0 {
		return 0
	}
	return float64(r.Capacity) / float64(r.Of)
}

func usesOf(apps []actions.AppView) map[string][]hostUse {
	uses := map[string][]hostUse{}
	for _, app := range apps {
		uses[app.Fallback] = append(uses[app.Fallback], hostUse{App: app.Key, State: fallbackState})
		for _, r := range app.Regions {
			for _, e := range r.Endpoints {
				uses[e.Domain] = append(uses[e.Domain], hostUse{app.Key, r.Key, e.Key, string(e.State)})
			}
		}
	}
	return uses
}
