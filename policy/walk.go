package policy

import (
	"dispatch.example/dispatch/domain"
)

// walk is the one walk behind Decide and Explain; tr is nil for Decide.
//
// Walker and decision are filled where they lie. To copy either, as a composite
// literal or a result does, the processor waits for all that was stored in it, and for
// the memory that the stores wait for: a quarter of the time of a decision.
func (t *Table) walk(req *Request, tr *Trace) (d Decision) {
	var w walker
	w.t, w.req, w.tr, w.addr = t, req, tr, plainAddr(req.Addr)
	if tr != nil {
		w.traceBegin()
	}
	if !w.sticky(&d) {
		if !w.policies(&d) {
			w.otherwise(&d)
		}
		w.arrive(&d)
	}
	d.Notes = w.notes
	if tr != nil {
		w.traceEnd(d)
	}
	return d
}

// sticky keeps a session where it is: its region is not off, no epoch has
// passed, and some endpoint of the region serves.
func (w *walker) sticky(d *Decision) bool {
	s := &w.req.Session
	if s.Region == "" {
		return false
	}
	w.tr.step(StepSession, "")
	n, why := w.sessionRegion(s)
	if n < 0 {
		w.notes |= StaleSession
		w.tr.outcome(Void, why)
		return false
	}
	endpoint := w.t.serving(n, s.Endpoint)
	if endpoint >= 0 {
		w.tr.outcome(Decides, "its endpoint serves")
	} else {
		w.tr.outcome(Decides, "another endpoint of its region takes over")
		endpoint = w.endpoint(n)
	}
	d.Reason, d.Region, d.Endpoint, d.Policy, d.Named, d.Bucket = Sticky, n, endpoint, -1, n, -1
	return true
}

// sessionRegion is the region that a session may stay in, or -1 and why not. An
// epoch is current if it is not below the release's: a token that a replica with
// a newer release sealed holds here too.
func (w *walker) sessionRegion(s *Session) (n int16, why string) {
	n = w.t.regionNo(s.Region)
	switch {
	case n < 0:
		return -1, "its region is gone"
	case w.t.regions[n].Condition() == domain.Off:
		return -1, "its region is off"
	case !w.t.regions[n].Serves():
		return -1, "no endpoint of its region serves"
	case s.RegionEpoch < w.t.regions[n].Epoch:
		return -1, "the epoch of its region has passed"
	case s.PolicyEpoch < w.t.epochs[s.Policy]:
		return -1, "the epoch of its policy has passed"
	}
	return n, ""
}

// regionNo is the index of a region, -1 if unknown. Apps have a few regions, so
// a scan is faster than a map.
func (t *Table) regionNo(key string) int16 {
	for i := range t.regions {
		if t.regions[i].Key == key {
			return int16(i)
		}
	}
	return -1
}

// serving is the index of the region's endpoint with this key if it serves, else -1.
func (t *Table) serving(region int16, key string) int16 {
	endpoints := t.regions[region].Endpoints
	for i := range endpoints {
		if endpoints[i].Key == key && endpoints[i].Serves() {
			return int16(i)
		}
	}
	return -1
}

// policies is the first policy that names a region.
func (w *walker) policies(d *Decision) bool {
	seen := int32(0) // rules before it are in the trace
	for _, of := range w.t.asked {
		w.seek(of)
	}
	var left candidates
	left.begin(w)
	for n := left.next(); n >= 0; n = left.next() {
		if w.tr != nil {
			w.traceSkipped(seen, n)
			seen = n + 1
		}
		if got := w.rule(&w.t.rules[n]); got.region >= 0 {
			d.name(ByPolicy, n, got)
			return true
		}
	}
	if w.tr != nil {
		w.traceSkipped(seen, int32(len(w.t.rules)))
	}
	return false
}

// rule tries one rule that the index left.
func (w *walker) rule(r *rule) draw {
	w.tr.step(StepPolicy, r.key)
	if w.tr != nil {
		w.traceIndexed(r)
	}
	if !w.hold(r.late) {
		w.tr.outcome(NoMatch, "")
		return draw{region: -1}
	}
	got := w.act(&r.do)
	if w.tr != nil {
		w.traceDraw(&r.do, got)
	}
	return got
}

func (w *walker) otherwise(d *Decision) {
	w.tr.step(StepOtherwise, "")
	got := w.act(&w.t.otherwise)
	if w.tr != nil {
		w.traceDraw(&w.t.otherwise, got)
	}
	d.name(Default, -1, got)
}

// name is the region that a step has drawn.
func (d *Decision) name(reason Reason, policy int32, got draw) {
	if got.noID {
		reason = NoID
	}
	d.Reason, d.Region, d.Endpoint, d.Policy, d.Named, d.Bucket = reason, got.region, -1, policy, got.region, got.bucket
}

// arrive turns the named region into one that serves and chooses its endpoint,
// or leaves the app's fallback.
func (w *walker) arrive(d *Decision) {
	home := &w.t.regions[d.Named]
	if home.Condition() != domain.Active {
		w.failOver(d)
	}
	if d.Region >= 0 {
		d.Endpoint = w.endpoint(d.Region)
	}
	if d.Endpoint < 0 {
		d.Reason, d.Region = Fallback, -1
		w.tr.step(StepFallback, "")
		w.tr.outcome(Decides, "no region is left that serves")
	}
}

func (w *walker) failOver(d *Decision) {
	s := &w.t.failover[d.Named]
	id := w.id(w.t.by)
	bucket := w.bucket(s, id)
	to, ok := w.t.plan.Divert(int(d.Named), bucket)
	if w.tr != nil {
		w.traceFailover(d.Named, bucket, to, ok)
	}
	if !ok {
		d.Region = -1
		return
	}
	d.Reason, d.Region, d.Bucket = Failover, int16(to), int16(bucket)
}

// endpoint chooses among the region's serving endpoints, -1 if there is none.
// It has a salt of its own, or a share would meet only some of the endpoints.
// Where only one serves there is nothing to hash.
func (w *walker) endpoint(region int16) int16 {
	if only := w.t.only[region]; only >= 0 && w.tr == nil {
		return only
	}
	notes := w.notes
	s := &w.t.endpoint[region]
	id := w.id(w.t.by)
	bucket := w.bucket(s, id)
	n, ok := w.t.regions[region].Pick(bucket)
	if w.tr != nil {
		w.traceEndpoint(region, bucket, n, ok)
	}
	if w.t.only[region] >= 0 {
		w.notes = notes
	}
	if !ok {
		return -1
	}
	return int16(n)
}
