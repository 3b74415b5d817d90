package handler

import (
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// badInput is one kind of input that could not be used.
type badInput uint8

const (
	badAttrs badInput = iota
	badBody
	badEscape
	badForwarded
	badHint // from a peer that is not one of our proxies
	badSession
	badSessionStale
	badTooLarge
	badType
	badVersion
	numBad
)

var badNames = [numBad]string{
	badAttrs: "too_many_attrs", badBody: "body", badEscape: "escape", badForwarded: "forwarded",
	badHint: "untrusted_origin", badSession: "session", badSessionStale: "stale_session",
	badTooLarge: "too_large", badType: "json_type", badVersion: "app_version",
}

// badInputs is a set of them.
type badInputs uint16

func (b *badInputs) note(kind badInput) { *b |= 1 << kind }

// untrusted is why an id counts as absent beyond whitelist's own reasons: its
// sender is not one whom the app's identity rules believe.
const untrusted = whitelist.Control + 1

// metrics are everything that the public listener counts. Labels hold keys of
// the configuration and words of this file, never anything that a client sent.
type metrics struct {
	tally     *tally // decisions
	absent    *prometheus.CounterVec
	requests  *prometheus.CounterVec
	bad       [numBad]prometheus.Counter
	answered  prometheus.Counter // requests with code 200
	seconds   prometheus.Histogram
	dropped   prometheus.Counter
	panics    prometheus.Counter
	fallbacks map[string]prometheus.Counter // by reason, as clients report them

	failed atomic.Uint64 // answers of 500 and more

	bound atomic.Pointer[binding] // the counters of the last snapshot that answered
}

func newMetrics(reg prometheus.Registerer, current releases, now func() time.Time) (*metrics, error) {
	m := &metrics{
		tally:    newTally(),
		absent:   counters("dispatch_ids_absent_total", "Requests whose id counted as absent, and why.", "app", "id", "why"),
		requests: counters("dispatch_requests_total", "Requests by HTTP status, without health, metrics and profile pages.", "code"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "dispatch_route_seconds",
			Help: "Time inside the /route handler, without the network.",
			Buckets: []float64{2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 250e-6, 500e-6,
				1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3},
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_decision_log_dropped_total",
			Help: "Decision records lost because too many waited or the log could not be written."}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_panics_total",
			Help: "Requests that ended in a recovered panic."}),
	}
	m.answered = m.requests.WithLabelValues("200")
	bad := counters("dispatch_bad_inputs_total", "Inputs of /route that could not be used, by kind.", "kind")
	for kind, name := range badNames {
		m.bad[kind] = bad.WithLabelValues(name)
	}
	var fallbacks *prometheus.CounterVec
	fallbacks, m.fallbacks = newFallbacks()
	number := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatch_release_number",
		Help: "The release that answers; 0 before the first."}, func() float64 {
		if s := current.Current(); s != nil {
			return float64(s.Number)
		}
		return 0
	})
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatch_release_age_seconds",
		Help: "Time since the release that answers was made; NaN before the first."}, func() float64 {
		if s := current.Current(); s != nil {
			return ageOf(s, now()).Seconds()
		}
		return math.NaN()
	})
	for _, c := range []prometheus.Collector{m.tally, m.absent, m.requests,
		m.seconds, m.dropped, m.panics, bad, fallbacks, number, age} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// ageOf is how long ago s was made; a clock behind its maker's makes it 0.
func ageOf(s *release.Snapshot, now time.Time) time.Duration { return max(now.Sub(s.Created), 0) }

// binding holds the counters of every app of one snapshot, resolved once, so
// that a request increments without a look-up by label.
type binding struct {
	snap *release.Snapshot
	apps map[*release.Served]*appCounters
}

type appCounters struct {
	*cells                                   // decisions
	device [untrusted + 1]prometheus.Counter // by why; Present stays nil
	user   [untrusted + 1]prometheus.Counter
}

// of are the counters of an app of snap. Two snapshots may be in use for the
// length of a request; whoever finds the other one bound looks for its own.
func (m *metrics) of(snap *release.Snapshot, app *release.Served) *appCounters {
	b := m.bound.Load()
	if b == nil || b.snap != snap {
		b = m.tally.bind(snap, func() *binding { return m.bind(snap) })
		m.bound.Store(b)
	}
	return b.apps[app]
}

func (m *metrics) bind(snap *release.Snapshot) *binding {
	b := &binding{snap: snap, apps: make(map[*release.Served]*appCounters, len(snap.Apps))}
	for key, served := range snap.Apps {
		c := &appCounters{cells: newCells(key, snap.Number, served)}
		for why := whitelist.Missing; why <= untrusted; why++ {
			c.device[why] = m.absent.WithLabelValues(key, "device", whyAbsent(why))
			c.user[why] = m.absent.WithLabelValues(key, "user", whyAbsent(why))
		}
		b.apps[served] = c
	}
	return b
}

func whyAbsent(why whitelist.Absence) string {
	if why == untrusted {
		return "untrusted"
	}
	return why.String()
}

// unusable counts what was noted while the request was read and decided.
func (m *metrics) unusable(bad badInputs) {
	for kind := badInput(0); bad != 0; kind, bad = kind+1, bad>>1 {
		if bad&1 != 0 {
			m.bad[kind].Inc()
		}
	}
}

// ended counts one request that is not a 200 of /route.
func (m *metrics) ended(status int) {
	if status >= http.StatusInternalServerError {
		m.failed.Add(1)
	}
	m.requests.WithLabelValues(strconv.Itoa(status)).Inc()
}
