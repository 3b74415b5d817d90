package caller

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/outlier"
	"dispatch.example/dispatch/discovery/route"
)

const (
	// dialFor is the dial limit of calls too.
	dialFor = 500 * time.Millisecond
	// dialsAtOnce lets a rack of 1,000 that went silent be found out in 8 s.
	dialsAtOnce = 64
)

// watch is who of a service is out. It outlives lists: whoever vanishes from the
// registry while it is out must not come back by that.
type watch struct {
	service string

	grouping grouping // when outliers saw the list. Of c.mu
	at       seats    // of that list; replaced, never changed. Of c.mu

	mu       sync.Mutex // guards the rest; locked last. Held for microseconds; for 2 ms when a list of 10,000 changed
	outliers *outlier.Watch[fingerprint]
	there    bool // the service is
}

// seats say where the watch has the instances of a list, by their place in it.
type seats map[*discovery.Instance]*outlier.Instance[fingerprint]

// grouping is what the groups of a list depend on.
type grouping struct {
	list    *list
	edition uint64
	scaled  uint64
	number  uint64
	direct  bool
	isolate bool
}

// watchOf is the watch of a service. c.mu is held.
func (c *Caller) watchOf(service string) *watch {
	w := c.watches[service]
	if w == nil {
		w = &watch{service: service, outliers: outlier.New[fingerprint]()}
		c.watches[service] = w
	}
	return w
}

// see tells the watch of a service who is in its list, and who stands in for whom:
// those of a version where a rule tells versions apart, else those of all versions;
// of these, those that take calls. c.mu is held.
func (c *Caller) see(l *list, in route.Input) seats {
	w, g := l.watch, grouping{list: l, edition: l.edition, scaled: l.scaled, number: in.Number, direct: in.Direct, isolate: in.Isolate}
	if w.grouping == g {
		return w.at
	}
	w.grouping = g
	ruled := map[string]bool{}
	for i := range in.Rules {
		ruled[in.Rules[i].Selector.Env] = true
	}
	all := make([]outlier.Listed[fingerprint], len(l.instances))
	for i := range l.instances {
		at := outlier.Place{Coordinates: l.instances[i].Coordinates, Idle: l.idle(&l.instances[i])}
		if !g.isolate && (g.direct || !ruled[at.Env]) {
			at.Version = ""
		}
		if g.direct {
			at.Region = ""
		}
		all[i] = outlier.Listed[fingerprint]{Key: fingerprintOf(&l.instances[i]), At: at}
	}
	w.mu.Lock() // Done of every call waits: nothing more than must be
	seen := w.outliers.See(all, c.now())
	w.there = true
	c.metrics.showOut(w)
	w.mu.Unlock()
	w.at = make(seats, len(seen))
	for i, s := range seen {
		w.at[&l.instances[i]] = s
	}
	signal(c.dials) // who is new is dialled before it is warm
	return w.at
}

// unsee empties the list of a service that is gone, and forgets it when nothing is
// left to remember. c.mu is held.
func (c *Caller) unsee(service string) {
	w := c.watches[service]
	if w == nil {
		return
	}
	w.grouping, w.at = grouping{}, nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.there {
		c.metrics.ejected.DeletePartialMatch(prometheus.Labels{"service": service})
	}
	w.there = false
	w.outliers.See(nil, c.now())
	if w.outliers.Empty() {
		delete(c.watches, service)
	}
}

// lowered are the thousandths of instances that are out or on trial.
func (w *watch) lowered() map[fingerprint]int {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outliers.Lowered()
}

// changed acts on what a call or a dial did to an instance.
func (c *Caller) changed(w *watch, k fingerprint, change outlier.Change) {
	log := c.log.With("of", w.service, "instance", k.address.String(), "kind", string(change.Kind))
	switch change.Step {
	case outlier.Same:
		return
	case outlier.Suspected:
		signal(c.dials)
		return
	case outlier.PutOut:
		c.metrics.ejections.WithLabelValues(w.service, string(change.Kind)).Inc()
		log.Warn("instance takes no calls from here", "until", change.Until.Format(time.RFC3339), "in_a_row", change.Term)
		signal(c.dials) // it is to be dialled at the end of its term
	case outlier.OnTrial:
		log.Debug("instance takes a tenth of its calls, on trial")
	case outlier.Returned:
		log.Info("instance takes its calls again")
	}
	w.mu.Lock()
	if w.there { // calls that were under way when it went end later
		c.metrics.showOut(w)
	}
	w.mu.Unlock()
	if change.Stays {
		return // its table would be the same, and a view to keep
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.soil(w.service)
}

// probe dials those that calls could not reach, and those that are due back, until
// ctx ends.
func (c *Caller) probe(ctx context.Context) {
	var dials sync.WaitGroup
	defer dials.Wait()
	places := make(chan struct{}, dialsAtOnce)
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.dials:
		case <-wait.C:
		}
		next := c.dialDue(places, func(w *watch, k fingerprint) {
			dials.Go(func() {
				err := c.dial(ctx, k.address.String())
				<-places
				if ctx.Err() == nil {
					c.dialed(w, k, err)
				}
			})
		})
		if wait.Stop(); !next.IsZero() {
			wait.Reset(next.Sub(c.now()))
		}
	}
}

// dialDue begins the dials that are due, as far as there are places, and says when
// the next is. A dial that ends asks again.
func (c *Caller) dialDue(places chan struct{}, begin func(*watch, fingerprint)) (next time.Time) {
	c.mu.Lock()
	all := make([]*watch, 0, len(c.watches))
	for _, w := range c.watches {
		all = append(all, w)
	}
	c.mu.Unlock()
	now := c.now()
	for _, w := range all {
		w.mu.Lock()
		keys, at := w.outliers.Due(cap(places)-len(places), now)
		w.mu.Unlock()
		for _, k := range keys {
			places <- struct{}{}
			begin(w, k)
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// dialed tells the watch how a dial ended.
func (c *Caller) dialed(w *watch, k fingerprint, err error) {
	defer signal(c.dials)
	if outlier.OwnFault(err) {
		c.troubles.note("dial", err)
		w.mu.Lock()
		w.outliers.NotDialed(k, c.now())
		w.mu.Unlock()
		return
	}
	c.troubles.note("dial", nil)
	if err != nil {
		c.metrics.dialsFailed.WithLabelValues(w.service).Inc()
	}
	w.mu.Lock()
	change := w.outliers.Dialed(k, err == nil, c.now())
	w.mu.Unlock()
	c.changed(w, k, change)
}

// dialTCP says whether an address accepts connections.
func dialTCP(ctx context.Context, address string) error {
	d := net.Dialer{Timeout: dialFor}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
