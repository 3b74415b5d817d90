package directory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"dispatch.example/dispatch/discovery"
)

const (
	// namesEvery is how often a registry is asked which services it has, give or take
	// a quarter, so that control nodes that started together drift apart.
	namesEvery = 2 * time.Second
	// namesTimeout bounds that question.
	namesTimeout = 5 * time.Second
	// refusedAgain is when a name that cannot be watched is tried again.
	refusedAgain = time.Minute
)

// registry is one registry and what it said last.
type registry struct {
	Registry
	order   int
	own     []string  // its name: the sources of an entry that nobody else has
	since   time.Time // when its names were last read, or the Directory made
	heard   bool      // its names were read once
	read    bool      // and so was the list of each
	problem error     // why they cannot be read now; nil: they can
	watches map[string]*watch
}

// watch follows one name of a registry, as the registry spells it.
type watch struct {
	registry *registry
	name     string
	watcher  *discovery.Watcher // nil: the name cannot be watched
	end      context.CancelFunc
	refused  error     // why it is not watched now
	since    time.Time // when that was so first; zero: it is watched
	tried    time.Time // the last attempt
	left     time.Time // when the catalogue stopped naming it; zero: it does

	heard     bool
	groups    map[string][]discovery.Instance // of our region, by service
	vanished  map[discovery.Address]bool      // those of groups that are a last resort
	rejected  []Suspect
	elsewhere int
}

// follow asks a registry for its names and watches each, until ctx ends.
func (d *Directory) follow(ctx context.Context, r *registry) {
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		asking, cancel := context.WithTimeout(ctx, namesTimeout)
		names, err := r.Source.Services(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		d.catalogued(r, names, err)
		for _, w := range d.appeared(r) {
			watching, end := context.WithCancel(ctx)
			if d.start(w, end) {
				watches.Go(func() {
					defer end()
					d.watch(watching, w)
				})
			} else {
				end()
			}
		}
		d.forget(r)
		if !pause(ctx, namesEvery*3/4+rand.N(namesEvery/2)) {
			return
		}
	}
}

// catalogued takes the names that a registry has now. On failure the last set stays.
func (d *Directory) catalogued(r *registry, names []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := r.problem
	if (err == nil) != (before == nil) || !r.heard {
		d.all = true
		poke(d.wake)
	}
	r.problem = err
	if err != nil {
		if before == nil {
			d.log.Warn("a registry is away; its last lists stay", "registry", r.Name, "err", err)
		}
		return
	}
	if before != nil {
		d.log.Info("a registry is back", "registry", r.Name)
	}
	now := time.Now()
	r.heard, r.since = true, now
	named := make(map[string]bool, len(names))
	for _, name := range names {
		named[name] = true
		if w := r.watches[name]; w != nil {
			w.left = time.Time{}
		} else {
			r.watches[name] = &watch{registry: r, name: name}
		}
	}
	for name, w := range r.watches {
		if !named[name] && w.left.IsZero() {
			w.left = now
		}
	}
}

// appeared are the names that wait for a watch.
func (d *Directory) appeared(r *registry) (found []*watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range r.watches {
		if w.watcher == nil && w.refused == nil || w.refused != nil && time.Since(w.tried) >= refusedAgain {
			found = append(found, w)
		}
	}
	return found
}

// start makes the Watcher of a name and reports whether there is one.
func (d *Directory) start(w *watch, end context.CancelFunc) bool {
	watcher, err := discovery.NewWatcher(w.registry.Source, w.name, d.log)
	if err != nil {
		d.refused(w, err)
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w.watcher, w.end, w.refused = watcher, end, nil
	d.suspects = nil
	return true
}

// watch keeps the list of one name until ctx ends.
func (d *Directory) watch(ctx context.Context, w *watch) {
	done := make(chan error, 1)
	go func() { done <- w.watcher.Run(ctx) }()
	for {
		s, changed := w.watcher.Current()
		if s.Version > 0 {
			d.heard(w, s)
		}
		select {
		case <-changed:
		case err := <-done:
			if err == nil {
				err = errors.New("the watch ended")
			}
			if ctx.Err() == nil {
				d.refused(w, err)
			}
			return
		}
	}
}

// refused notes that a name is not watched. Its last list stays.
func (d *Directory) refused(w *watch, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.refused == nil || w.refused.Error() != err.Error() {
		d.log.Warn("a service of a registry cannot be watched", "registry", w.registry.Name, "service", w.name, "err", err)
	}
	w.refused, w.tried = err, time.Now()
	if w.since.IsZero() {
		w.since = w.tried
	}
	d.suspects, d.news = nil, true
	poke(d.wake)
}

// heard takes the list of one name.
func (d *Directory) heard(w *watch, s discovery.Snapshot) {
	all := s.Instances
	var vanished map[discovery.Address]bool
	if len(s.LastResort) > 0 {
		all, vanished = slices.Concat(all, s.LastResort), make(map[discovery.Address]bool, len(s.LastResort))
		for _, in := range s.LastResort {
			vanished[in.Address] = true
		}
	}
	groups, elsewhere := byService(all, w.name, d.opt.Region)
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.registry.watches[w.name] != w {
		return // forgotten meanwhile
	}
	if len(groups) == 0 { // the services are still there, without anybody
		for name := range w.groups {
			groups[name] = nil
		}
		if len(groups)+len(s.Rejected)+elsewhere == 0 {
			groups[w.name] = nil
		}
	}
	if rejected := w.suspects(s.Rejected, time.Now()); len(rejected)+len(w.rejected) > 0 {
		w.rejected, d.suspects, d.news = rejected, nil, true
	}
	d.regroup(w, groups)
	w.heard, w.since, w.elsewhere, w.vanished = true, time.Time{}, elsewhere, vanished
	poke(d.wake)
}

// byService sorts out whose instances those of one name are, and counts what is in
// other regions. Mostly all are of one service and ours, and the list is taken as it is.
func byService(all []discovery.Instance, name, region string) (groups map[string][]discovery.Instance, elsewhere int) {
	groups = map[string][]discovery.Instance{}
	from := 0 // all before are of other services or regions, or in groups
	for i := range all {
		in := &all[i]
		if i+1 < len(all) && all[i+1].Service == in.Service && all[i+1].Region == in.Region {
			continue
		}
		run := all[from : i+1 : i+1]
		from = i + 1
		service := cmp.Or(in.Service, name)
		switch {
		case in.Region != region:
			elsewhere += len(run)
		case groups[service] == nil:
			groups[service] = run
		default:
			groups[service] = append(groups[service], run...)
		}
	}
	return groups, elsewhere
}

// regroup replaces what a watch adds to services.
func (d *Directory) regroup(w *watch, groups map[string][]discovery.Instance) {
	for name := range w.groups {
		d.dirty[name] = true
		if _, stays := groups[name]; !stays {
			delete(d.services[name].from, w)
		}
	}
	for name := range groups {
		d.dirty[name] = true
		d.service(name).from[w] = true
	}
	w.groups = groups
}

// suspects turns what a Source rejected into Suspects, each with the time when it
// was seen first.
func (w *watch) suspects(rejected []discovery.Rejected, now time.Time) []Suspect {
	before := make(map[Fingerprint]time.Time, len(w.rejected))
	for _, s := range w.rejected {
		before[s.Fingerprint] = s.Since
	}
	all := make([]Suspect, 0, len(rejected))
	for _, r := range rejected {
		s := Suspect{Fingerprint: Fingerprint{ID: r.ID, Address: asWritten(r.Address)}, Service: w.name, Registry: w.registry.Name, Why: r.Why, Since: now}
		if since, known := before[s.Fingerprint]; known {
			s.Since = since
		}
		all = append(all, s)
	}
	return all
}

// asWritten keeps an address that may be none, for people.
func asWritten(text string) discovery.Address {
	if a, err := discovery.ParseAddress(text); err == nil {
		return a
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return discovery.Address{Host: text}
	}
	number, _ := strconv.ParseUint(port, 10, 16) // 0 says that it is none
	return discovery.Address{Host: host, Port: uint16(number)}
}

// forget ends watches of names that the catalogue no longer has, once the registry
// has confirmed since then that nobody is left. Without that, their lists stay.
func (d *Directory) forget(r *registry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	count := len(r.watches)
	for name, w := range r.watches {
		if w.left.IsZero() || !w.empty() {
			continue
		}
		if w.end != nil {
			w.end()
		}
		d.regroup(w, nil)
		delete(r.watches, name)
		d.suspects, d.news = nil, true
		poke(d.wake)
	}
	if len(r.watches) < count {
		r.watches = fresh(r.watches)
	}
}

// empty says whether the registry confirmed after the name left that nobody has it.
func (w *watch) empty() bool {
	if w.refused != nil && !w.heard {
		return true // there never was a list
	}
	if w.watcher == nil || !w.heard || len(w.rejected)+w.elsewhere > 0 {
		return false
	}
	for _, instances := range w.groups {
		if len(instances) > 0 {
			return false
		}
	}
	s := w.watcher.State()
	return s.Known && s.Age < time.Since(w.left)
}

// settled says whether everything that a registry has was heard, or that it is away.
func (r *registry) settled() bool {
	return r.problem != nil || r.heard && r.every(func(w *watch) bool {
		return w.heard || w.refused != nil || w.watcher != nil && w.watcher.State().Problem != nil
	})
}

// complete says whether everything that a registry has was heard once.
func (r *registry) complete() bool {
	return r.heard && r.every(func(w *watch) bool { return w.heard || w.refused != nil })
}

func (r *registry) every(is func(*watch) bool) bool {
	for _, w := range r.watches {
		if !is(w) {
			return false
		}
	}
	return true
}

// state is how the registry and the directory get along now. A registry is also
// away when most of its lists cannot be confirmed.
func (r *registry) state(now time.Time) State {
	r.read = r.read || r.complete()
	s := State{Name: r.Name, Kind: r.Source.Name(), OK: r.read, Age: now.Sub(r.since)}
	var problems int
	var first string
	youngest := time.Duration(-1)
	for _, w := range r.watches {
		s.Elsewhere += w.elsewhere
		if w.left.IsZero() {
			s.Services++
		}
		if w.watcher == nil {
			continue
		}
		if state := w.watcher.State(); state.Problem != nil {
			problems++
			if text := fmt.Sprintf("%s: %s", w.name, state.Problem); first == "" || text < first {
				first = text
			}
			if youngest < 0 || state.Age < youngest {
				youngest = state.Age
			}
		}
	}
	switch {
	case r.problem != nil:
		s.OK, s.Problem = false, r.problem.Error()
	case !r.heard:
		s.Problem = "it has not answered yet"
	case !r.read && problems == 0:
		s.Problem = "its services are still being read"
	case problems > 0:
		s.Problem = fmt.Sprintf("%d of %d services cannot be confirmed; %s", problems, len(r.watches), first)
		if 2*problems > len(r.watches) {
			s.OK, s.Age = false, max(s.Age, youngest)
		}
	}
	return s
}
