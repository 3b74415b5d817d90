package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"dispatch.example/dispatch/internal/fault"
)

const (
	// lookTimeout leaves time for the rest of a renewal: an agent without a leader
	// holds a question for 7 s.
	lookTimeout = time.Second
	// enterTimeout leaves time for the next agent when one hangs.
	enterTimeout = 4 * time.Second
	// lookEvery renewals the leader is asked whether it knows us: an agent takes
	// renewals and entries by itself, also when nobody can pass them on.
	lookEvery = 4
	// checkEvery and checkWithin are those of a check beside the lease.
	checkEvery  = 5 * time.Second
	checkWithin = 2 * time.Second
)

// Register enters an instance at the first agent that takes it.
func (c *consul) Register(ctx context.Context, in Instance) (Lease, error) {
	l := &consulLease{consul: c, in: in, entered: map[int]bool{}}
	var errs []error
	for l.agent = range c.agents {
		attempt, cancel := context.WithTimeout(ctx, enterTimeout)
		err := l.enter(attempt)
		cancel()
		if err == nil {
			return l, nil
		}
		l.metrics.writes(false)
		errs = append(errs, err, l.undo(ctx))
		if fault.KindOf(err) != fault.Internal { // another agent would say the same
			break
		}
	}
	return nil, errors.Join(errs...)
}

// undo removes an entry that was made although the answer says otherwise.
func (l *consulLease) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err := l.Release(ctx)
	clear(l.entered)
	return err
}

// consulLease is one instance at one agent. Its methods are called by one goroutine.
type consulLease struct {
	*consul
	in       Instance
	agent    int          // where it is entered
	entered  map[int]bool // agents that may have an entry of ours
	renewals int          // since the leader was asked whether it knows us
}

func (l *consulLease) check() string { return "service:" + l.in.ID }

// Renew passes the check. An agent that has restarted knows neither check nor
// service, and is told both again. Who loses three renewals registers anew, at
// another agent if this one is away.
func (l *consulLease) Renew(ctx context.Context) error {
	err := l.pass(ctx)
	outcome := "ok"
	if forgotten(err) {
		err, outcome = l.enter(ctx), "registered_again"
	}
	if err != nil {
		l.metrics.renewal("failed")
		l.metrics.writes(false)
		return err
	}
	l.metrics.renewal(outcome)
	l.confirm(ctx)
	return nil
}

// confirm asks the leader whether it has our entry, now and then, and each time
// while it has not.
func (l *consulLease) confirm(ctx context.Context) {
	if l.renewals++; l.renewals%lookEvery != 1 {
		return
	}
	seen, err := l.seen(ctx)
	l.metrics.writes(err == nil && seen)
	if err != nil || !seen {
		l.renewals = 0
	}
}

// seen says whether the leader, which asks its peers first, has our entry; healthy
// or not.
func (l *consulLease) seen(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	q, err := l.query(ctx)
	if err != nil {
		return false, err
	}
	q.RequireConsistent = true
	q.Filter = fmt.Sprintf("Service.ID == %q", l.in.ID) // a service may have a thousand instances that all ask
	entries, _, err := l.agents[l.agent].Health().Service(l.in.Service, "", false, q)
	return slices.ContainsFunc(entries, func(e *api.ServiceEntry) bool { return e.Service.ID == l.in.ID }), err
}

// pass says that the instance lives. The text is always the same, else each
// renewal would be a change that wakes every watcher.
func (l *consulLease) pass(ctx context.Context) error {
	q, err := l.query(ctx)
	if err != nil {
		return err
	}
	return l.explain("renew", l.agents[l.agent].Agent().UpdateTTLOpts(l.check(), "", api.HealthPassing, q))
}

// explain says what was done where, and what a token lacks.
func (l *consulLease) explain(action string, err error) error {
	host := l.options.hosts[l.agent]
	status, ok := errors.AsType[api.StatusError](err)
	switch {
	case err == nil:
		return nil
	case ok && (status.Code == http.StatusForbidden || status.Code == http.StatusUnauthorized):
		return fault.New(fault.Denied, "consul_denied", "consul %s denied to %s %s", host, action, l.in.ID).Because(err).
			WithHint("give the token service:write for " + l.in.Service + ", service:read and node:read")
	case ok && status.Code == http.StatusBadRequest:
		return fault.New(fault.Invalid, "consul_refused", "consul %s refused to %s %s", host, action, l.in.ID).Because(err)
	}
	return fmt.Errorf("%s %s at consul %s: %w", action, l.in.ID, host, err)
}

// forgotten says whether an agent does not know the check that it was asked to pass.
func forgotten(err error) bool {
	status, ok := errors.AsType[api.StatusError](err)
	return ok && (status.Code == http.StatusNotFound || strings.Contains(status.Body, "does not have associated TTL") ||
		strings.Contains(status.Body, "Unknown check"))
}

// enter registers the instance and its check, and passes it.
func (l *consulLease) enter(ctx context.Context) error {
	if err := l.checkID(ctx); err != nil {
		return err
	}
	token, err := l.token()
	if err != nil {
		return err
	}
	l.entered[l.agent] = true // even if the answer is lost
	err = l.agents[l.agent].Agent().ServiceRegisterOpts(l.entry(),
		api.ServiceRegisterOpts{ReplaceExistingChecks: true, Token: token}.WithContext(ctx))
	if err != nil {
		return l.explain("enter", err)
	}
	return l.pass(ctx)
}

func (l *consulLease) entry() *api.AgentServiceRegistration {
	e := &api.AgentServiceRegistration{
		ID: l.in.ID, Name: l.in.Service, Address: l.in.Address.Host, Port: int(l.in.Address.Port), Meta: l.in.meta(),
		Checks: api.AgentServiceChecks{{
			CheckID: l.check(), Name: "lease", TTL: l.options.ttl.String(),
			Status:                         api.HealthPassing, // it was checked before, and may only be entered again
			DeregisterCriticalServiceAfter: l.options.deregisterAfter.String(),
		}},
	}
	answers := &api.AgentServiceCheck{CheckID: "answers:" + l.in.ID, Name: "answers", Status: api.HealthPassing,
		Interval: checkEvery.String(), Timeout: checkWithin.String()}
	switch l.options.check {
	case "tcp":
		answers.TCP = l.in.Address.String()
	case "http":
		answers.HTTP, answers.Method = "http://"+l.in.Address.String()+l.options.checkPath, http.MethodGet
	default:
		return e
	}
	e.Checks = append(e.Checks, answers)
	return e
}

// checkID refuses an id under which another instance lives: Consul would replace
// that one silently. One whose lease has run out may be replaced.
func (l *consulLease) checkID(ctx context.Context) error {
	q, err := l.query(ctx)
	if err != nil {
		return err
	}
	agent := l.agents[l.agent].Agent()
	other, _, err := agent.Service(l.in.ID, q)
	if status, ok := errors.AsType[api.StatusError](err); err != nil && (!ok || status.Code != http.StatusNotFound) {
		return l.explain("look up", err)
	}
	if err == nil {
		if err := l.sameID(other.Address, other.Port); err != nil {
			if health, _, asked := agent.AgentHealthServiceByIDOpts(l.in.ID, q); asked != nil || health == api.HealthPassing {
				return err
			}
		}
	}
	// The same id at another agent would not be replaced, but could not be told apart.
	// An agent that cannot say takes registrations all the same, and so do we.
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	a, err := l.list(ctx, l.agent, l.in.Service, 0)
	l.metrics.writes(err == nil)
	for _, in := range a.instances {
		if in.ID == l.in.ID && in.Address != l.in.Address {
			return l.sameID(in.Address.Host, int(in.Address.Port))
		}
	}
	return nil
}

func (l *consulLease) sameID(host string, port int) error {
	address, err := newAddress(host, port)
	if err == nil && address == l.in.Address {
		return nil
	}
	return fault.New(fault.Conflict, "id_taken", "the id %s belongs to a live instance at %s:%d, this one is at %s", l.in.ID, host, port, l.in.Address).
		WithHint("leave the id empty, or wait until the lease of the other has run out")
}

// Release removes the entry wherever it may be.
func (l *consulLease) Release(ctx context.Context) error {
	var errs []error
	for agent := range l.entered {
		q, err := l.query(ctx)
		if err != nil {
			return err
		}
		err = l.agents[agent].Agent().ServiceDeregisterOpts(l.in.ID, q)
		if status, ok := errors.AsType[api.StatusError](err); ok && (status.Code == http.StatusNotFound || strings.Contains(status.Body, "Unknown service")) {
			continue // gone already
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("leave consul %s: %w", l.options.hosts[agent], err))
		}
	}
	return errors.Join(errs...)
}
