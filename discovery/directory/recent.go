package directory

import (
	"slices"
	"time"
)

// How long lists are remembered that are no longer in use, so that records which
// name them can be explained: callers send records within seconds.
const (
	recentFor   = 10 * time.Minute
	recentEach  = 64       // of one service
	recentBytes = 64 << 20 // of all
)

// recent remembers lists by digest, as JSON.
type recent struct {
	by     map[string]*kept
	of     map[string][]*kept // by service, the longest unused first
	unused int                // bytes
}

// kept is a list that is remembered.
type kept struct {
	*list
	service  string
	replaced time.Time // zero: it is in use
}

func newRecent() recent { return recent{by: map[string]*kept{}, of: map[string][]*kept{}} }

// add takes a list into use. An empty one is the same for every service and is
// remembered for the first.
func (r *recent) add(service string, l *list) {
	if k := r.by[l.digest]; k != nil {
		if !k.replaced.IsZero() {
			k.replaced = time.Time{}
			r.unused -= len(k.json)
			r.of[k.service] = slices.DeleteFunc(r.of[k.service], func(other *kept) bool { return other == k })
		}
		return
	}
	r.by[l.digest] = &kept{list: l, service: service}
}

// replaced says that a list is in use no longer.
func (r *recent) replaced(digest string, now time.Time) {
	k := r.by[digest]
	if k == nil || !k.replaced.IsZero() || len(k.json) == len("[]") {
		return
	}
	k.replaced = now
	r.unused += len(k.json)
	r.of[k.service] = append(r.of[k.service], k)
	for len(r.of[k.service]) > recentEach {
		r.drop(k.service)
	}
	for r.unused > recentBytes {
		r.drop(r.oldest())
	}
}

// prune drops what was replaced too long ago.
func (r *recent) prune(now time.Time) {
	count := len(r.by)
	for service := range r.of {
		for len(r.of[service]) > 0 && now.Sub(r.of[service][0].replaced) >= recentFor {
			r.drop(service)
		}
	}
	if len(r.by) < count {
		r.by, r.of = fresh(r.by), fresh(r.of)
	}
}

// drop forgets the longest unused list of a service.
func (r *recent) drop(service string) {
	k := r.of[service][0]
	r.unused -= len(k.json)
	delete(r.by, k.digest)
	if r.of[service] = slices.Delete(r.of[service], 0, 1); len(r.of[service]) == 0 {
		delete(r.of, service)
	}
}

// oldest is the service with the longest unused list.
func (r *recent) oldest() (found string) {
	var since time.Time
	for service, all := range r.of {
		if found == "" || all[0].replaced.Before(since) {
			found, since = service, all[0].replaced
		}
	}
	return found
}
