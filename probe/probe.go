// Package probe finds out whether hosts are there, as an app would meet them:
// name, address, TLS with the host's certificate, an HTTP answer.
//
// A Prober works in rounds. Each round shoots once at every host that Options.Hosts
// names, sixteen at a time; what it saw goes into one State a host: up after two
// successes in a row, down after three failures, so that a host that comes and goes
// flips nothing. Standby and disabled hosts are probed like the others: one that is
// needed must have been seen before. A round in which most hosts fail that did not
// fail before says more about the prober than about them: it is distrusted, and
// every state stays what it was.
//
// What a host can do to the prober is bounded: an address is checked when it is
// dialled, after the last look-up, so no name leads to the machine itself, to a
// metadata service or into a private network; redirects are not followed; four
// kilobytes are read, in three seconds, and none is kept.
//
// Run works until its context ends and owns every goroutine it starts. A probe that
// fails is a State, never an error.
package probe

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// What Options say where they say nothing.
const (
	Every   = 5 * time.Second
	Timeout = 3 * time.Second
	Port    = 443
)

// The bounds of a round and of what changes a state.
const (
	UpAfter   = 2  // successes in a row
	DownAfter = 3  // failures in a row
	atOnce    = 16 // probes; 160 hosts that all time out make a round of 30 s
	keptShots = 5
)

// RenewWithin is how long before its end a certificate is warned of.
const RenewWithin = 21 * 24 * time.Hour

// Options say what is probed and how.
type Options struct {
	Prober string          // id of the replica that probes; required
	Hosts  func() []string // every host to probe, asked before each round; required

	DNS        string         // address of the server that resolves names; empty: those of the system
	Port       int            // default Port
	Path       string         // default /
	AllowCIDRs []netip.Prefix // private or loopback networks in which hosts may lie
	RootCAs    *x509.CertPool // nil: the system's
	Every      time.Duration  // default Every; each round is up to 30 % earlier or later
	Timeout    time.Duration  // of one probe with all it takes; default Timeout

	// Lookup replaces DNS and Port. Addresses are checked all the same.
	Lookup func(ctx context.Context, host string) ([]netip.AddrPort, error)
	// Report hears all states after each round.
	Report func(ctx context.Context, states []State)

	Log      *slog.Logger // default: discard
	Registry prometheus.Registerer
	Now      func() time.Time // default time.Now
}

// Prober probes.
type Prober struct {
	opt      Options
	networks allowed
	shoot    func(ctx context.Context, host string) Shot // tests replace it
	seconds  prometheus.Observer

	mu         sync.Mutex
	known      map[string]*host
	distrusted bool
}

// New checks the options.
func New(opt Options) (*Prober, error) {
	if opt.Prober == "" || opt.Hosts == nil {
		return nil, errors.New("probe: prober and hosts are needed")
	}
	if opt.Every <= 0 {
		opt.Every = Every
	}
	if opt.Timeout <= 0 {
		opt.Timeout = Timeout
	}
	if opt.Port == 0 {
		opt.Port = Port
	}
	if opt.Path == "" {
		opt.Path = "/"
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	p := &Prober{opt: opt, networks: opt.AllowCIDRs, known: map[string]*host{}}
	p.shoot = p.request
	if opt.Lookup == nil {
		names, err := newResolver(opt.DNS, opt.Port)
		if err != nil {
			return nil, err
		}
		p.opt.Lookup = names.lookup
	}
	return p, p.register(opt.Registry)
}

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	for {
		p.round(ctx)
		wait := time.Duration(float64(p.opt.Every) * (0.7 + 0.6*rand.Float64()))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// round shoots at every host once and judges what it saw.
func (p *Prober) round(ctx context.Context) {
	hosts := slices.Compact(slices.Sorted(slices.Values(p.opt.Hosts())))
	shots := make([]Shot, len(hosts))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, name := range hosts {
		g.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, p.opt.Timeout)
			defer cancel()
			began := time.Now()
			shots[i] = p.shoot(limited, name)
			took := time.Since(began)
			shots[i].Millis = int(took.Milliseconds())
			p.seconds.Observe(took.Seconds())
			return nil
		})
	}
	_ = g.Wait() // none of them fails
	if ctx.Err() != nil {
		return // the shots say that we are stopping
	}
	p.judge(ctx, hosts, shots)
	if p.opt.Report != nil {
		p.opt.Report(ctx, p.States())
	}
}

// States are what is known of every host, by name.
func (p *Prober) States() []State {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := make([]State, 0, len(p.known))
	for _, name := range slices.Sorted(maps.Keys(p.known)) {
		s := p.known[name].State
		s.Recent = slices.Clone(s.Recent)
		states = append(states, s)
	}
	return states
}

// Distrusted says whether the last round was: most hosts failed at once.
func (p *Prober) Distrusted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.distrusted
}
