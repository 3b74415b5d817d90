package main

import (
	"context"
	"net/url"
	"time"
)

type hostCmd struct {
	List    hostListCmd    `cmd:"" default:"withargs" help:"Registered hosts."`
	Propose hostProposeCmd `cmd:"" help:"Propose a host; somebody else approves it."`
	Approve hostApproveCmd `cmd:"" help:"Approve a host that somebody else proposed."`
}

type hostView struct {
	Host     string    `json:"host"`
	Proposer string    `json:"proposer"`
	Proposed time.Time `json:"proposed"`
	Approver string    `json:"approver"`
	Approved time.Time `json:"approved"`
	Reason   string    `json:"reason"`
}

type hostListCmd struct{}

// Run prints a line for each host.
func (*hostListCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Hosts []hostView `json:"hosts"`
	}
	answer, err := p.get(ctx, "/hosts", &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"HOST", "PROPOSED BY", "APPROVED BY", "APPROVED", "REASON"}}
	for _, h := range v.Hosts {
		approved := ""
		if !h.Approved.IsZero() {
			approved = moment(h.Approved)
		}
		rows = append(rows, []string{h.Host, h.Proposer, or(h.Approver, "nobody yet"), approved, h.Reason})
	}
	return p.showRows(answer, rows, "no hosts; dispatchctl host propose HOST")
}

type hostProposeCmd struct {
	Host string `arg:"" help:"The host; it is kept in normal form, which the answer shows."`
	change
}

// Run proposes the host.
func (c *hostProposeCmd) Run(ctx context.Context, p *program) error {
	var h hostView
	answer, err := c.send(ctx, p, deed{what: c.Host + " is proposed", word: c.Host, path: "/hosts", body: map[string]string{"host": c.Host, "reason": c.Reason}}, &h)
	if err != nil {
		return err
	}
	return p.show(answer, printable(h.Host+" waits for somebody else: dispatchctl host approve "+h.Host+"\n"))
}

type hostApproveCmd struct {
	Host string `arg:"" help:"The host."`
	change
}

// Run approves the host.
func (c *hostApproveCmd) Run(ctx context.Context, p *program) error {
	var h hostView
	answer, err := c.send(ctx, p, deed{what: "People may be sent to " + c.Host, word: c.Host, path: "/approvals/" + url.PathEscape(c.Host), body: reasoned{c.Reason}}, &h)
	if err != nil {
		return err
	}
	return p.show(answer, printable(h.Host+" is approved\n"))
}
