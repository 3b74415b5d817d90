package directory

import (
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
)

// maxTold bounds what is remembered; a report has about 300 bytes.
const maxTold = 100_000

// key names an instance: IDs are unique within a service.
type key struct{ service, id string }

// told is a report that counts.
type told struct {
	wire.Report
	at    time.Time // when it came, or was last read from Memory
	since time.Time // when its fingerprint was first told
	saved bool      // Memory has it
}

// reports is what instances said of themselves, here and to other nodes.
type reports struct {
	by     map[key]told
	places map[discovery.Address][]key // who reports from where; nil: must be made anew
	shared time.Time                   // when those of other nodes were last read; zero: never
}

func newReports() reports { return reports{by: map[key]told{}} }

// hear takes a report.
func (r *reports) hear(report wire.Report, now time.Time, saved bool) {
	k := key{report.Service, report.ID}
	t := told{report, now, now, saved}
	before, known := r.by[k]
	if !known && len(r.by) >= maxTold {
		return
	}
	if known && before.Address == report.Address && sameTime(before.Started, report.Started) {
		t.since = before.since
	} else {
		r.places = nil
	}
	r.by[k] = t
}

// unsaved are those that Memory lacks.
func (r *reports) unsaved() (all []wire.Report) {
	for _, t := range r.by {
		if !t.saved {
			all = append(all, t.Report)
		}
	}
	return all
}

// keep marks what Memory has taken, unless it was told anew since then.
func (r *reports) keep(saved []wire.Report, asked time.Time) {
	for _, report := range saved {
		k := key{report.Service, report.ID}
		if t, known := r.by[k]; known && t.at.Before(asked) {
			t.saved = true
			r.by[k] = t
		}
	}
}

// share takes what Memory had at the time asked. What came here since then, or was
// not saved yet, is newer.
//
// After a restart there are two for half a minute: that of the process which started
// last counts.
func (r *reports) share(all []wire.Report, asked, now time.Time) {
	newest := make(map[key]wire.Report, len(all))
	for _, report := range all {
		k := key{report.Service, report.ID}
		if other, twice := newest[k]; !twice || report.Started.After(other.Started) {
			newest[k] = report
		}
	}
	for k, report := range newest {
		if t, known := r.by[k]; !known || t.saved && t.at.Before(asked) {
			r.hear(report, now, true)
		}
	}
	for k, t := range r.by {
		if _, there := newest[k]; !there && t.saved && t.at.Before(asked) {
			delete(r.by, k)
			r.places = nil
		}
	}
	r.shared = asked
}

// expire forgets reports that count no longer.
func (r *reports) expire(now time.Time) {
	for k, t := range r.by {
		if now.Sub(t.at) >= ReportLives {
			delete(r.by, k)
			r.places = nil
		}
	}
}

// at are those who report from an address.
func (r *reports) at(a discovery.Address) []key {
	if r.places == nil {
		r.places = make(map[discovery.Address][]key, len(r.by))
		for k, t := range r.by {
			r.places[t.Address] = append(r.places[t.Address], k)
		}
	}
	return r.places[a]
}

// of is the report about an entry as a registry has it. A dialect may have given
// the service another name than the instance knows.
func (r *reports) of(service string, as registered) (told, bool) {
	t, known := r.by[key{service, as.id}]
	if !known && as.name != service {
		t, known = r.by[key{as.name, as.id}]
	}
	return t, known
}
