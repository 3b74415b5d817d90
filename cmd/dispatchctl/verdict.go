package main

import (
	"context"
	"fmt"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// instanceRef names an entry of a service.
type instanceRef struct {
	Service string `arg:"" help:"Full name of a service."`
	ID      string `arg:"" help:"Of the entry; dispatchctl services queue, and services list -o json, show it."`
}

// verdictBody is what a person decides, and about whom exactly.
type verdictBody struct {
	Service string     `json:"service"`
	ID      string     `json:"id"`
	Address string     `json:"address"`
	Started *time.Time `json:"started,omitempty"`
	Do      string     `json:"do"`
	Reason  string     `json:"reason"`
}

// judge shows the entry and does to exactly what was shown what verb says.
func (r instanceRef) judge(ctx context.Context, p *program, c change, verb, what string) error {
	v, _, err := p.directory(ctx)
	if err != nil {
		return err
	}
	seen, why, ok := v.entry(r, verb)
	if !ok {
		return fault.New(fault.NotFound, "unknown_instance", "%s has no such entry %s", r.Service, r.ID).
			WithHint("dispatchctl services queue shows those that wait, dispatchctl services -o json all")
	}
	body := verdictBody{Service: r.Service, ID: r.ID, Address: seen.Address, Do: verb, Reason: c.Reason}
	if !seen.Started.IsZero() {
		body.Started = &seen.Started
	}
	shown := fmt.Sprintf("%s at %s, started %s", r.Service, seen.Address, seen.start())
	if why != "" {
		shown += " (" + why + ")"
	}
	if _, err := c.send(ctx, p, deed{what: what + ": " + shown, word: r.ID, path: "/directory/verdicts", body: body}, nil); err != nil {
		return err
	}
	return p.show([]byte("{}"), printable(fmt.Sprintf("done: %s %s\n", verb, shown)))
}

// entry finds what a verb is about: accept and refuse an entry that waits, lift one
// that was decided about, isolate any. Any other is second choice; the server says
// what does not fit.
func (v directoryView) entry(r instanceRef, verb string) (f fingerprint, why string, ok bool) {
	take := func(service string, found fingerprint, says string) {
		if !ok && service == r.Service && found.ID == r.ID {
			f, why, ok = found, says, true
		}
	}
	decided := func() {
		for _, d := range v.Isolated {
			take(d.Service, d.fingerprint, "by "+d.By+": "+d.Reason)
		}
	}
	listed := func() {
		for _, s := range v.Services {
			for _, in := range s.Instances {
				take(s.Name, in.fingerprint, "")
			}
		}
	}
	switch verb {
	case "lift":
		decided()
	case "isolate":
		listed()
	}
	for _, s := range append(v.Queue, v.Suspicious...) {
		take(s.Service, s.fingerprint, s.Registry+": "+s.Why)
	}
	listed()
	decided()
	return f, why, ok
}

type servicesAcceptCmd struct {
	instanceRef
	change
}

// Run accepts the entry.
func (c *servicesAcceptCmd) Run(ctx context.Context, p *program) error {
	return c.judge(ctx, p, c.change, "accept", "Calls may reach this instance")
}

type servicesRefuseCmd struct {
	instanceRef
	change
}

// Run refuses the entry.
func (c *servicesRefuseCmd) Run(ctx context.Context, p *program) error {
	return c.judge(ctx, p, c.change, "refuse", "This entry stays out")
}

type servicesIsolateCmd struct {
	instanceRef
	change
}

// Run isolates the instance.
func (c *servicesIsolateCmd) Run(ctx context.Context, p *program) error {
	return c.judge(ctx, p, c.change, "isolate", "No call reaches this instance, whatever it registers")
}

type servicesLiftCmd struct {
	instanceRef
	change
}

// Run lifts what was decided.
func (c *servicesLiftCmd) Run(ctx context.Context, p *program) error {
	return c.judge(ctx, p, c.change, "lift", "What was decided about this instance ends")
}
