package policy

import (
	"fmt"
	"strconv"
	"strings"

	"dispatch.example/dispatch/whitelist"
)

// The functions here write a walker's findings into its trace. They run only
// with one, and look up nothing that the walk did not.

func (w *walker) traceBegin() {
	tr := w.tr
	tr.App, tr.Now, tr.AddrSource = w.t.app, w.req.Now, w.req.AddrSource
	tr.Replica, tr.Geo = w.t.replica, w.t.geo.Digests()
	if w.addr.IsValid() {
		tr.Addr = w.addr.String()
	}
}

func (w *walker) traceEnd(d Decision) {
	tr := w.tr
	tr.Reason, tr.Policy, tr.Notes = d.Reason, w.t.PolicyKey(d.Policy), d.Notes.Strings()
	tr.Region = w.regionKey(d.Region)
	if d.Endpoint >= 0 {
		tr.Endpoint = w.t.regions[d.Region].Endpoints[d.Endpoint].Key
	}
}

func (w *walker) regionKey(n int16) string {
	if n < 0 {
		return ""
	}
	return w.t.regions[n].Key
}

// traceSkipped adds the rules from first up to end, which the index left out,
// with the conditions that it answered.
func (w *walker) traceSkipped(first, end int32) {
	for n := first; n < end; n++ {
		r := &w.t.rules[n]
		w.tr.step(StepPolicy, r.key)
		w.tr.outcome(Skipped, "by the index")
		w.traceIndexed(r)
	}
}

// traceIndexed adds the conditions that the index answered. What they lack was
// noted when the index was asked.
func (w *walker) traceIndexed(r *rule) {
	notes := w.notes
	for i := range r.early {
		c := &r.early[i]
		v := w.try(c)
		w.traceCheck(c, v, c.holds(v))
	}
	w.notes = notes
}

func (w *walker) traceCheck(c *cond, v verdict, holds bool) {
	s := w.tr.last()
	s.Checks = append(s.Checks, Check{Condition: c.describe(), Got: w.got(c), Holds: holds, Unknown: v == unknown})
}

// got is what the condition looked at. It holds no id.
func (w *walker) got(c *cond) string {
	switch c.kind {
	case kindHasDevice:
		return strconv.FormatBool(w.req.Device != "")
	case kindHasUser:
		return strconv.FormatBool(w.req.User != "")
	case kindAppVersion:
		return quoteOrAbsent(w.req.AppVersion)
	case kindBetween:
		return w.tr.Now.Format("2006-01-02T15:04:05.999999999Z07:00")
	case kindOrigin:
		return w.gotOrigin()
	case kindCIDR:
		return orAbsent(w.tr.Addr)
	case kindCountry, kindSubdivision:
		return w.gotPlace()
	case kindASN:
		return w.gotASN()
	case kindInList:
		return w.gotLists(c)
	default:
		text, _ := w.text(c.kind, c.attr)
		return quoteOrAbsent(text)
	}
}

// gotOrigin is the label, and which of the app's origins gave it.
func (w *walker) gotOrigin() string {
	found := w.origin()
	if found.label == "" {
		return "no origin answered"
	}
	switch o := &w.t.origins[found.by]; o.source {
	case fromTable:
		prefix, _, _ := o.table.Match(w.addr)
		return fmt.Sprintf("%q from table %s, prefix %s", found.label, o.name, prefix)
	case fromGeo:
		return fmt.Sprintf("%q from geoip, %s", found.label, w.gotPlace())
	case fromHint:
		return fmt.Sprintf("%q from hint", found.label)
	default:
		return fmt.Sprintf("%q from replica", found.label)
	}
}

func (w *walker) gotPlace() string {
	if !w.t.geo.hasCity() {
		return "no city database"
	}
	p := w.place()
	if p.Subdivision == "" {
		return orAbsent(p.Country)
	}
	return p.Country + "-" + p.Subdivision
}

func (w *walker) gotASN() string {
	if !w.t.geo.hasASN() {
		return "no ASN database"
	}
	if asn := w.asn(); asn != 0 {
		return strconv.FormatUint(uint64(asn), 10)
	}
	return orAbsent("")
}

func (w *walker) gotLists(c *cond) string {
	var parts []string
	for i, l := range c.lists {
		answer := "not in "
		switch {
		case l.of == whitelist.Device && w.req.Device == "", l.of == whitelist.User && w.req.User == "":
			answer = "absent, so not in "
		case w.lists(l.of).Has(l.number):
			answer = "in "
		}
		parts = append(parts, string(l.of)+" id "+answer+c.values[i])
	}
	return strings.Join(parts, "; ")
}

func (w *walker) traceDraw(a *action, got draw) {
	s := w.tr.last()
	s.Region, s.Outcome = w.regionKey(got.region), Decides
	if got.region < 0 {
		s.Outcome = PassesOn
	}
	switch {
	case a.region >= 0:
		return
	case got.bucket < 0 && got.region >= 0:
		s.Why = "no id to bucket by, and the share is everybody"
		return
	case got.bucket < 0:
		s.Why = "no id to bucket by, and the share is not everybody"
		return
	}
	s.Draw = w.draw(&a.salt, a.by, uint16(got.bucket))
	for _, p := range a.spans {
		if a.ramp != nil {
			now := a.ramp.At(w.req.Now)
			s.Why = fmt.Sprintf("the ramp from %d to %d has reached %d", a.ramp.From, a.ramp.To, now)
			if p.hi = int16(now - 1); now == 0 {
				continue
			}
		}
		s.Draw.Parts = append(s.Draw.Parts, Part{int(p.lo), int(p.hi), w.regionKey(p.region)})
	}
	if !a.split {
		s.Draw.Enters = a.enters(int(got.bucket))
	}
}

func (w *walker) draw(s *salt, by BucketBy, bucket uint16) *Draw {
	return &Draw{Salt: s.text, By: w.drawnBy(by), Bucket: int(bucket)}
}

// drawnBy is which of the ids was hashed, or what stood in for it.
func (w *walker) drawnBy(by BucketBy) string {
	device, user := w.req.Device != "", w.req.User != ""
	switch {
	case device && (by == ByDevice || by == ByDeviceThenUser || by == ByUserThenDevice && !user):
		return string(ByDevice)
	case user && by != ByDevice:
		return string(ByUser)
	case w.addr.IsValid():
		return "prefix " + string(appendClientPrefix(nil, w.addr))
	default:
		return "nothing: no id and no address"
	}
}

func (w *walker) traceFailover(home int16, bucket uint16, to int, ok bool) {
	w.tr.step(StepFailover, "")
	s := w.tr.last()
	s.Why = fmt.Sprintf("%s is %s", w.regionKey(home), w.t.regions[home].Condition())
	s.Draw = w.draw(&w.t.failover[home], w.t.by, bucket)
	if !ok {
		s.Outcome = PassesOn
		return
	}
	s.Outcome, s.Region = Decides, w.regionKey(int16(to))
}

func (w *walker) traceEndpoint(region int16, bucket uint16, n int, ok bool) {
	w.tr.step(StepEndpoint, "")
	s := w.tr.last()
	s.Region, s.Outcome = w.regionKey(region), PassesOn
	s.Draw = w.draw(&w.t.endpoint[region], w.t.by, bucket)
	if ok {
		s.Outcome, s.Key = Decides, w.t.regions[region].Endpoints[n].Key
	}
}

func orAbsent(text string) string {
	if text == "" {
		return "absent"
	}
	return text
}

func quoteOrAbsent(text string) string {
	if text == "" {
		return "absent"
	}
	return strconv.Quote(text)
}
