package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/internal/fault"
)

const (
	// RenewEvery is the time between two renewals of a lease of DefaultTTL: two may
	// be lost.
	RenewEvery = 5 * time.Second
	// DefaultTTL is how long a registry believes that an instance lives.
	DefaultTTL = 15 * time.Second
	// renewTimeout ends before the next renewal begins, so that one slow answer
	// costs one renewal and not the lease.
	renewTimeout = 4 * time.Second
	// registerTimeout and releaseTimeout bound a start and an end.
	registerTimeout = 10 * time.Second
	releaseTimeout  = 3 * time.Second
	// DefaultLinger is how long callers may take to hear that we left.
	DefaultLinger = 2 * time.Second
	maxLinger     = 10 * time.Second
	// lostAfter renewals in a row the lease has run out.
	lostAfter = 3
	// warmUp is how long callers keep new calls from an instance that they have just
	// seen, before they send more and more.
	warmUp = 30 * time.Second
	// DefaultDrain is how long calls in work may take to end once nobody is sent here.
	DefaultDrain = 10 * time.Second
)

// RegisterOptions are all optional.
type RegisterOptions struct {
	Log *slog.Logger // its lines name the instance's service as of: service is often the logger's own
	// Force registers loopback, bridge and link-local addresses too.
	Force bool
	// Linger is how long Run goes on after it has deregistered, so that a server
	// which stops listening after Run has no caller left. 0: DefaultLinger;
	// negative: not at all; at most 10 s.
	Linger time.Duration
	// EndWhenLost makes Run deregister and return ErrLost when a lease has run out,
	// for a process whose supervisor starts it again. Without it the instance is
	// entered anew as soon as the registry answers: an outage of the registry must
	// not end every process.
	EndWhenLost bool
	// Retry makes Register try again until ctx ends, 8 s and later 16 s apart at
	// most: a registry that is away at the start must not keep anybody from serving.
	// What is wrong with an instance is returned at once.
	Retry bool
}

// ErrLost is the end of a registration that could not be renewed.
var ErrLost = errors.New("the lease has run out")

// Registration is what Register has entered.
type Registration struct {
	source      Source
	log         *slog.Logger
	linger      time.Duration
	endWhenLost bool
	held        []*held
}

// Register checks the instances and enters them: one for a server with one port,
// several (SERVER.NAME) for one with several. Listen first: each address is
// called. Run keeps the registration.
//
//	reg, err := discovery.Register(ctx, source, discovery.RegisterOptions{}, discovery.Instance{
//		Service: "order-core", Address: discovery.Address{Port: 8080},
//		Coordinates: discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod", Version: "v2.3.1"},
//	})
//	if err != nil {
//		return err
//	}
//	group.Go(func() error { return reg.Run(ctx) })
//
// On an error nothing stays registered.
func Register(ctx context.Context, source Source, opt RegisterOptions, instances ...Instance) (*Registration, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	for try := 1; ; try++ {
		r, err := registerOnce(ctx, source, opt, instances)
		if err == nil || !opt.Retry || fault.KindOf(err) == fault.Invalid {
			return r, err
		}
		wait := backoff(try)
		opt.Log.WarnContext(ctx, "not registered: callers do not find this process", "source", source.Name(), "err", err, "again_in", wait.String())
		if !pause(ctx, wait) {
			return nil, err
		}
	}
}

func registerOnce(ctx context.Context, source Source, opt RegisterOptions, instances []Instance) (*Registration, error) {
	r := &Registration{source: source, log: opt.Log.With("source", source.Name()), linger: min(max(opt.Linger, 0), maxLinger), endWhenLost: opt.EndWhenLost}
	if opt.Linger == 0 {
		r.linger = DefaultLinger
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	ready, err := prepare(ctx, source.Name(), opt.Force, instances)
	if err != nil {
		return nil, err
	}
	for _, in := range ready {
		lease, err := source.Register(ctx, in)
		if err != nil {
			err = fmt.Errorf("register %s at %s in %s: %w", in.Service, in.Address, source.Name(), err)
			return nil, errors.Join(err, r.release(ctx))
		}
		r.held = append(r.held, &held{in: in, lease: lease})
		r.log.Info("registered; callers warm it up first", "of", in.Service, "id", in.ID, "address", in.Address.String(),
			"warming_until", time.Now().Add(warmUp).UTC().Format(time.RFC3339))
	}
	return r, nil
}

// prepare fills in what was left empty and checks the rest, before anything is entered.
func prepare(ctx context.Context, source string, force bool, instances []Instance) ([]Instance, error) {
	nics, err := ownNICs()
	if err != nil {
		return nil, err
	}
	if len(instances) == 0 {
		return nil, fault.New(fault.Invalid, "no_instance", "there is no instance to register")
	}
	ready, ids := make([]Instance, 0, len(instances)), map[string]bool{}
	for _, in := range instances {
		if in.Address.Host == "" && in.Address.Port != 0 {
			host, err := ownHost(os.Getenv("POD_IP"), nics)
			if err != nil {
				return nil, err
			}
			in.Address.Host = host.String()
		}
		if in, err = in.filled(source); err != nil {
			return nil, err
		}
		if ids[in.ID] {
			return nil, fault.New(fault.Invalid, "same_id", "two instances have the id %s", in.ID)
		}
		ids[in.ID] = true
		if err := checkReach(ctx, in.Address, nics, force); err != nil {
			return nil, err
		}
		ready = append(ready, in)
	}
	return ready, nil
}

// filled returns the instance as it is registered.
func (in Instance) filled(source string) (Instance, error) {
	if in.Address.Host != "" { // else Validate says so
		address, err := newAddress(in.Address.Host, int(in.Address.Port))
		if err != nil {
			return in, fault.New(fault.Invalid, "invalid_instance", "instance of %s: %s", in.Service, err)
		}
		in.Address = address
	}
	if err := in.Validate(); err != nil {
		return in, err
	}
	if in.ID == "" {
		in.ID = fmt.Sprintf("%s-%s-%d", in.Service, in.Address.Host, in.Address.Port)
	}
	if !isWord(strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, in.ID)) || len(in.ID) > maxID {
		return in, fault.New(fault.Invalid, "invalid_instance", "id %q may have letters, digits and -_.: only, at most %d", in.ID, maxID)
	}
	if in.Started.IsZero() {
		in.Started = time.Now()
	}
	in.Started = in.Started.UTC().Truncate(time.Millisecond) // what a registry keeps
	in.Source = source
	return in, nil
}

// Ports are the instances of a server with several ports: one for each name and
// port, called SERVER.NAME, like base in everything else.
func Ports(server string, base Instance, ports map[string]uint16) []Instance {
	all := make([]Instance, 0, len(ports))
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		in := base
		in.Service, in.Address.Port = server+"."+name, ports[name]
		all = append(all, in)
	}
	return all
}

// Instances are those that are registered, with everything filled in.
func (r *Registration) Instances() []Instance {
	var all []Instance
	for _, h := range r.held {
		all = append(all, h.in)
	}
	return all
}

// Run renews the leases until ctx ends, then deregisters, lingers and returns.
// Stop listening after it has returned. Its error is that of deregistering, or
// ErrLost.
func (r *Registration) Run(ctx context.Context) error {
	renewals, renewing := errgroup.WithContext(ctx)
	for _, h := range r.held {
		renewals.Go(func() error { return r.keep(renewing, h) })
	}
	lost := renewals.Wait()
	ctx = context.WithoutCancel(ctx)
	err := errors.Join(lost, r.release(ctx))
	pause(ctx, r.linger)
	return err
}

// RunThen is Run and then stop, which has DefaultDrain to finish what is in work:
// the order in which a server leaves without a failed call.
//
//	group.Go(func() error { return reg.RunThen(ctx, server.Shutdown) })
func (r *Registration) RunThen(ctx context.Context, stop func(context.Context) error) error {
	err := r.Run(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultDrain)
	defer cancel()
	if stopped := stop(ctx); stopped != nil {
		err = errors.Join(err, fmt.Errorf("drain: %w", stopped))
	}
	return err
}

// release deregisters all, although ctx may have ended.
func (r *Registration) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	var errs []error
	for _, h := range r.held {
		if err := h.release(ctx); err != nil {
			errs = append(errs, fmt.Errorf("deregister %s: %w", h.in.ID, err))
			continue
		}
		r.log.Info("deregistered", "of", h.in.Service, "id", h.in.ID)
	}
	return errors.Join(errs...)
}
