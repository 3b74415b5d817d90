package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

const (
	// enterTries are for the first registrations of a service, which Nacos refuses
	// when several come at once; enterPause grows from try to try.
	enterTries = 5
	enterPause = 200 * time.Millisecond
	// nacosNoInstance is what Nacos answers to the beat of an instance that it has forgotten.
	nacosNoInstance = 20404
)

// errForgotten says that Nacos does not know an instance that lives.
var errForgotten = errors.New("nacos does not know the instance")

// nacosLease is one instance. Its methods are called by one goroutine.
type nacosLease struct {
	*nacos
	in     Instance
	server int // who is told
}

// Register enters an instance, an ephemeral one: Nacos calls it unhealthy 15 s after
// its last beat and forgets it after 30 s.
func (n *nacos) Register(ctx context.Context, in Instance) (Lease, error) {
	l := &nacosLease{nacos: n, in: in}
	err := l.checkID(ctx)
	for try := 1; err == nil; try++ {
		if err = l.enter(ctx); err == nil {
			n.metrics.writes(true)
			return l, nil
		}
		if try < enterTries && fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Denied &&
			pause(ctx, jitter(0, time.Duration(try)*enterPause)) {
			err = nil
		}
	}
	n.metrics.writes(false)
	if fault.KindOf(err) == fault.Conflict {
		return nil, err // the entry is another's
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return nil, errors.Join(err, l.Release(ctx))
}

// Renew sends a beat, to the next server after a failure. What Nacos has forgotten is
// entered again.
func (l *nacosLease) Renew(ctx context.Context) error {
	err := l.beat(ctx)
	outcome := "ok"
	if errors.Is(err, errForgotten) {
		err, outcome = l.enter(ctx), "registered_again"
	}
	l.metrics.writes(err == nil)
	if err != nil {
		l.metrics.renewal("failed")
		l.server = (l.server + 1) % len(l.options.hosts)
		return err
	}
	l.metrics.renewal(outcome)
	return nil
}

// form names the instance.
func (l *nacosLease) form(pairs ...string) url.Values {
	return l.nacos.form(append([]string{"serviceName", l.in.Service, "ip", l.in.Address.Host, "port", strconv.Itoa(int(l.in.Address.Port)),
		"clusterName", l.options.cluster, "ephemeral", "true"}, pairs...)...)
}

// beat says that the instance lives, without its metadata: so Nacos says when it has
// forgotten them.
func (l *nacosLease) beat(ctx context.Context) error {
	text, err := l.call(ctx, l.server, http.MethodPut, "/v1/ns/instance/beat", l.form())
	if err != nil {
		return l.explain("renew", err)
	}
	var said struct {
		Code int `json:"code"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return l.explain("renew", fmt.Errorf("the answer is none: %w", err))
	}
	if said.Code == nacosNoInstance {
		return errForgotten
	}
	return nil
}

// enter registers the instance at the first server that can be reached.
func (l *nacosLease) enter(ctx context.Context) error {
	pairs := l.in.meta()
	pairs[keyID] = l.in.ID
	metadata, err := json.Marshal(pairs)
	if err != nil {
		return fmt.Errorf("register %s: %w", l.in.ID, err)
	}
	weight := strconv.FormatFloat(float64(l.in.Share())/DefaultWeight, 'f', -1, 64)
	return l.anywhere(ctx, "enter", func(server int) error {
		_, err := l.call(ctx, server, http.MethodPost, "/v1/ns/instance",
			l.form("weight", weight, "enabled", "true", "healthy", "true", "metadata", string(metadata)))
		return err
	})
}

// Release removes the entry.
func (l *nacosLease) Release(ctx context.Context) error {
	return l.anywhere(ctx, "remove", func(server int) error {
		_, err := l.call(ctx, server, http.MethodDelete, "/v1/ns/instance", l.form())
		return err
	})
}

// anywhere does something at our server, or at the next that can be reached.
func (l *nacosLease) anywhere(ctx context.Context, action string, do func(server int) error) error {
	var errs []error
	for range l.options.hosts {
		err := do(l.server)
		if err == nil {
			return nil
		}
		err = l.explain(action, err)
		errs = append(errs, err)
		if _, answered := errors.AsType[*statusError](err); answered { // another would say the same
			break
		}
		l.server = (l.server + 1) % len(l.options.hosts)
	}
	return errors.Join(errs...)
}

// explain says what was done where, and what to do about a refusal for good.
func (l *nacosLease) explain(action string, err error) error {
	host := l.options.hosts[l.server]
	answer, _ := errors.AsType[*statusError](err)
	switch {
	case answer != nil && strings.Contains(answer.text, "persistent service"):
		return fault.New(fault.Invalid, "nacos_persistent", "nacos %s refused to %s %s: its service keeps persistent instances", host, action, l.in.ID).Because(err).
			WithHint("since 2.0 a service keeps one kind: delete the service " + l.in.Service + " in Nacos' console, or register under another name")
	case denied(err):
		return fault.New(fault.Denied, "nacos_denied", "nacos %s denied to %s %s", host, action, l.in.ID).Because(err).
			WithHint("give the user read and write in the namespace, and name its files with username-file and password-file")
	}
	return fmt.Errorf("%s %s at nacos %s: %w", action, l.in.ID, host, err)
}

// checkID refuses an id that a live instance elsewhere has: nobody could tell them
// apart. A server that cannot say takes registrations all the same, and so do we.
func (l *nacosLease) checkID(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	a, err := l.list(ctx, l.server, l.in.Service)
	if err != nil {
		return nil
	}
	for _, in := range a.instances {
		if in.ID == l.in.ID && in.Address != l.in.Address {
			return fault.New(fault.Conflict, "id_taken", "the id %s belongs to a live instance at %s, this one is at %s", l.in.ID, in.Address, l.in.Address).
				WithHint("leave the id empty, or wait until the lease of the other has run out")
		}
	}
	return nil
}
