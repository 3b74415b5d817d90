// Package caller is the inner layer inside a service: it keeps the tables of the
// services that it calls, and picks.
//
//	c, err := caller.New(caller.Options{Self: self, Control: urls, …})
//	group.Go(func() error { return c.Run(ctx) })
//	if err := c.Ready(ctx); err != nil { … }      // one full table, before the first call
//	client := &http.Client{Transport: httpcall.New(c, nil)}
//	client.Get("http://order-core/path")
package caller

import (
	"context"
	"crypto/tls"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/signed"
)

// Options say who calls and where tables come from: from control nodes, or
// from a registry and a folder of rules.
type Options struct {
	ID      string                // of this process; default: host name and a random part
	Service string                // that this process is, for the map; empty: none
	Self    discovery.Coordinates // required: the home of every pick
	Lane    route.Query           // the process's own; what the traffic carries counts before it

	Control    []string      // URLs of fleet listeners, asked in turn
	Token      string        // of the fleet listener
	TLS        *tls.Config   // nil: the system's
	Trust      *signed.Trust // whose releases of rules are believed; required with Control
	Deployment string        // default: default

	Registry discovery.Source // without control: where instances are found. With it: the degraded path
	RulesDir string           // without control: a folder of rule files, followed
	Services []string         // those that are called; empty: all that control knows. Required without Control

	Dir       string   // where the last tables are kept; empty: nowhere
	Overrides []string // NAME@IP:PORT;IP:PORT, before everything else
	AllowProd bool     // overrides also where Self.Env is prod
	Isolate   bool     // developers' instances are their own; SetIsolate changes it
	Sample    int      // one in so many ordinary picks is recorded; 0: DefaultSample

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// DefaultSample of ordinary picks. Errors, fallbacks and overrides are recorded always.
const DefaultSample = 1000

// Caller picks instances for one process. It may be used by many at once.
type Caller struct{ opt Options }

// New checks the options. It connects to nobody.
func New(opt Options) (*Caller, error) { panic("unbuilt") }

// Run keeps tables up to date, sends records, and ends with ctx.
func (c *Caller) Run(ctx context.Context) error { panic("unbuilt") }

// Ready returns when every service of Options.Services has a table: from a control
// node, else from the copy on disk, else from the registry.
func (c *Caller) Ready(ctx context.Context) error { panic("unbuilt") }

// Pick chooses an instance of the service for the lane of ctx. It reads memory only.
func (c *Caller) Pick(ctx context.Context, service string) (Pick, error) { panic("unbuilt") }

// Pick is a choice and what its record says of it.
type Pick struct {
	route.Choice
	Number uint64 // of the rules that chose: pools are rebuilt when it changes
	record uint64 // 0: not recorded
}

// ID is the decision's, for dispatchctl explain call; empty if it was not recorded.
func (p Pick) ID() string { panic("unbuilt") }

// Candidates are the instances that picks of the service may choose now, the number
// of the rules, and a channel that is closed when either changed.
func (c *Caller) Candidates(service string) (all []discovery.Instance, number uint64, changed <-chan struct{}) {
	panic("unbuilt")
}

// SetDirect throws the kill switch of this process, or takes it back.
func (c *Caller) SetDirect(on bool) { panic("unbuilt") }

// SetIsolate switches developer isolation.
func (c *Caller) SetIsolate(on bool) { panic("unbuilt") }
