package caller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/fault"
)

// Pick is a choice and what its record says of it.
type Pick struct {
	route.Choice
	Number uint64 // of the rules that chose: pools are rebuilt when it changes
	record uint64 // 0: not recorded
	draw   uint64 // this, the entry and the lane of its context are all that a later record needs
	slot   *slot
	entry  *entry // nil: no table was asked
}

// ID is the decision's, for dispatchctl explain call; empty if it was not recorded.
func (p Pick) ID() string {
	if p.record == 0 {
		return ""
	}
	return p.slot.by.recordID(p.record)
}

// Pick chooses an instance of the service for the lane of ctx. It reads memory only.
// An error is a *route.NoMatch; before anything was loaded a *fault.Error
// not_loaded, and for a service that Options.Services lacks one not_followed. Its Pick has the ID of the record.
//
// An override is chosen from whatever answers at its addresses: to leave out one
// that is dead is up to the transport, as with all instances.
func (c *Caller) Pick(ctx context.Context, service string) (Pick, error) {
	return c.pick(ctx, service, nil)
}

// pick is Pick, and PickOther with an instance to avoid.
func (c *Caller) pick(ctx context.Context, service string, not *discovery.Instance) (Pick, error) {
	t := trafficOf(ctx)
	lane := &c.opt.Lane // not copied: that is a tenth of a pick
	if t != nil {
		own := c.Lane(ctx)
		lane = &own
	}
	draw := rand.Uint64()
	s := (*c.slots.Load())[service]
	if s == nil {
		return c.unknown(service, *lane, draw)
	}
	if s.override != nil {
		return c.overridden(s, *lane, draw, not), nil
	}
	e := s.now.Load()
	p := Pick{Number: e.in.Number, draw: draw, slot: s, entry: e}
	err := c.choose(&p.Choice, e, lane, draw)
	for n := 0; not != nil && n < redraws && err == nil && p.Instance.Address == not.Address; n++ {
		p.draw = rand.Uint64()
		err = c.choose(&p.Choice, e, lane, p.draw)
	}
	if err != nil {
		p.Reason, err = route.ByNobody, c.withNames(err)
	}
	s.picks.inc(reasonAt(p.Reason), string(p.Reason))
	if t != nil && t.keep || c.records(p.Reason, p.draw) {
		p.record = c.note(pickOf{slot: s, entry: e, lane: *lane, draw: p.draw, choice: p.Choice, err: err})
	}
	return p, err
}

// overridden is a pick among the addresses of the configuration.
func (c *Caller) overridden(s *slot, lane route.Query, draw uint64, not *discovery.Instance) Pick {
	at, _ := bits.Mul64(draw, uint64(len(s.override)))
	if not != nil && s.override[at].Address == not.Address {
		at = (at + 1) % uint64(len(s.override))
	}
	p := Pick{Choice: route.Choice{Instance: &s.override[at], Reason: route.ByOverride}, draw: draw, slot: s}
	s.picks.inc(reasonAt(p.Reason), string(p.Reason))
	p.record = c.note(pickOf{slot: s, lane: lane, draw: draw, choice: p.Choice})
	return p
}

// records says whether a pick is recorded: what is out of the ordinary always, the
// rest by chance. The chance is the draw, scrambled (the finaliser of MurmurHash3),
// so that the sample favours no instance.
func (c *Caller) records(reason route.Reason, draw uint64) bool {
	switch reason {
	case route.ByRule, route.ByGray, route.ByHome, route.ByPerson, route.ByBase:
		draw = (draw ^ draw>>33) * 0xff51afd7ed558ccd
		draw = (draw ^ draw>>33) * 0xc4ceb9fe1a85ec53
		chance, _ := bits.Mul64(draw^draw>>33, c.sample)
		return chance == 0
	}
	return true
}

// choose asks the table. Should that panic, the call is served all the same.
func (c *Caller) choose(to *route.Choice, e *entry, lane *route.Query, draw uint64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.metrics.panics.Inc()
			c.troubles.note("pick", fmt.Errorf("pick an instance of %s: panic: %v", e.in.Service, p), "of", e.in.Service)
			*to, err = chooseDirect(&e.in, *lane, draw)
		}
	}()
	if e.table == nil {
		*to, err = chooseDirect(&e.in, *lane, draw)
	} else {
		*to, err = e.table.Pick(*lane, draw)
	}
	return err
}

// chooseDirect is the pick that needs no engine: any instance in the caller's
// cluster and the lane's env that may have traffic at all. Developers' instances
// stay their own.
func chooseDirect(in *route.Input, lane route.Query, draw uint64) (route.Choice, error) {
	envs, versions := []string{cmp.Or(lane.Env, in.Home.Env)}, []string{""}
	if lane.Base != "" && lane.Base != envs[0] {
		envs = append(envs, lane.Base)
	}
	if in.Isolate {
		versions = []string{cmp.Or(lane.Person, route.Base), route.Base}
	}
	for step, env := range envs {
		for _, version := range versions {
			var fits, ejected []*discovery.Instance
			for i := range in.Instances {
				at := &in.Instances[i]
				if at.Cluster == in.Home.Cluster && at.Env == env && (version == "" || at.Version == version) && at.Share() > 0 && !out(in.Scale[at.ID]) {
					if in.Scale[at.ID].Why == route.Ejected {
						ejected = append(ejected, at)
					} else {
						fits = append(fits, at)
					}
				}
			}
			if len(fits) == 0 {
				fits = ejected
			}
			if len(fits) > 0 {
				at, _ := bits.Mul64(draw, uint64(len(fits)))
				return route.Choice{Instance: fits[at], Reason: route.ByDirect, Step: step + 1}, nil
			}
		}
	}
	return route.Choice{Reason: route.ByNobody}, &route.NoMatch{Service: in.Service, Lane: lane, Known: len(in.Instances),
		Want: discovery.Coordinates{Cluster: in.Home.Cluster, Env: envs[0], Version: versions[len(versions)-1]}}
}

// out says whether a person, the directory or its registry took an instance out.
func out(s route.Scale) bool {
	return s.Why == route.Isolated || s.Why == route.Suspicious || s.Why == route.Vanished
}

// unknown is the error of a service that has no table.
func (c *Caller) unknown(service string, lane route.Query, draw uint64) (Pick, error) {
	c.mu.Lock()
	loaded, waits := c.heard.any(), slices.Contains(c.opt.Services, service)
	c.mu.Unlock()
	var err error
	none := &route.NoMatch{Service: service, Lane: lane, Want: discovery.Coordinates{
		Cluster: c.opt.Self.Cluster, Region: c.opt.Self.Region, Env: cmp.Or(lane.Env, c.opt.Self.Env)}}
	switch {
	case !loaded || waits:
		err = fault.New(fault.Unavailable, "not_loaded", "no list of %s has been loaded yet", service).
			WithHint("wait for Ready before the first call; if it does not return, see the log for what cannot be asked")
	default:
		if err = c.withNames(none); err == error(none) && len(c.opt.Services) > 0 {
			err = fault.New(fault.Invalid, "not_followed", "this process does not follow %s", service).
				WithHint("add it to Options.Services, or correct the name: it follows " + strings.Join(c.opt.Services, ", "))
		}
	}
	p := Pick{Choice: route.Choice{Reason: route.ByNobody}, slot: &slot{name: service, by: c}}
	// Without the name as a label: it may be whatever a client typed.
	c.metrics.picks.WithLabelValues("", string(p.Reason)).Inc()
	p.record = c.note(pickOf{slot: p.slot, lane: lane, draw: draw, choice: p.Choice, err: err})
	return p, err
}

// withNames adds the full names that a short one may have meant.
func (c *Caller) withNames(err error) error {
	none, ok := errors.AsType[*route.NoMatch](err)
	if !ok || none.Known > 0 {
		return err
	}
	var names []string
	for name := range maps.Keys(*c.slots.Load()) {
		if strings.HasPrefix(name, none.Service+".") || strings.HasSuffix(name, "."+none.Service) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return err
	}
	with := *none // the table keeps its own
	with.Names = names
	slices.Sort(with.Names)
	return &with
}
