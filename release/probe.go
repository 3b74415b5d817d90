package release

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// probes is how many synthetic requests walk an app's rules: enough to meet every
// bucket about once, and at half a microsecond each quick enough for an emergency.
const probes = policy.Whole

// probeSet is what probes are made of: the values that an app's rules speak of,
// others beside them, and none.
type probeSet struct {
	Platforms, Versions, Channels, Carriers, Locales, Hints []string
	Addrs                                                   []netip.Addr
	Attrs                                                   []policy.Attr
	Times                                                   []time.Time
}

// walked is where the probes of a set went.
type walked struct {
	set    *probeSet
	name   string // the set in writing; equal sets make equal probes
	region []string
}

// newProbeSet gathers the values from an app's rules. created is the time of a
// probe where no rule asks for one.
func newProbeSet(app *App, created time.Time) *probeSet {
	s := &probeSet{
		Platforms: []string{"", "ios", "android", "web"},
		Versions:  []string{"", "1.0.0", "10.2", "99"},
		Channels:  []string{""}, Carriers: []string{""}, Locales: []string{"", "zh-CN"}, Hints: []string{""},
		Addrs: []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Attrs: []policy.Attr{{}},
	}
	for i := range app.Regions {
		s.Hints = append(s.Hints, app.Regions[i].Key)
	}
	for i := range app.Policies {
		s.add(&app.Policies[i].When)
	}
	if len(s.Times) == 0 {
		s.Times = []time.Time{created}
	}
	for _, values := range []*[]string{&s.Platforms, &s.Versions, &s.Channels, &s.Carriers, &s.Locales, &s.Hints} {
		slices.Sort(*values)
		*values = slices.Compact(*values)
	}
	return s
}

func (s *probeSet) add(w *policy.When) {
	if w == nil {
		return
	}
	s.Platforms = append(s.Platforms, w.Platform...)
	s.Channels = append(s.Channels, w.Channel...)
	s.Carriers = append(s.Carriers, w.Carrier...)
	s.Locales = append(s.Locales, w.Locale...)
	s.Hints = append(s.Hints, w.Origin...)
	s.Versions = append(s.Versions, strings.FieldsFunc(w.AppVersion, func(r rune) bool { return strings.ContainsRune(" ,<>=!~^|", r) })...)
	for _, text := range w.CIDR {
		if p, err := netip.ParsePrefix(text); err == nil {
			s.Addrs = append(s.Addrs, p.Addr())
		}
	}
	for _, t := range w.Between {
		s.Times = append(s.Times, t, t.Add(-time.Second))
	}
	for name, values := range w.Attr {
		for _, v := range values {
			s.Attrs = append(s.Attrs, policy.Attr{Name: name, Value: v})
		}
	}
	s.add(w.Not)
}

// name is the set in writing.
func (s *probeSet) name() string {
	times := s.Times
	if len(times) == 1 {
		times = nil // no rule asks for the time
	}
	attrs := slices.SortedFunc(slices.Values(s.Attrs), func(a, b policy.Attr) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	s.Attrs = attrs
	text, err := json.Marshal([]any{s.Platforms, s.Versions, s.Channels, s.Carriers, s.Locales, s.Hints, s.Addrs, attrs, times})
	if err != nil {
		return "" // such a set is like no other, and is walked each time
	}
	return string(text)
}

// run makes the probes and gives each to f until f is false. The same set always
// makes the same ones. Nine of ten have a device id, a third a user id.
func (s *probeSet) run(f func(n int, req *policy.Request) bool) {
	const size = len("probe-100000")
	text := make([]byte, 0, probes*size)
	for n := range probes {
		text = strconv.AppendInt(append(text, "probe-"...), int64(10*probes+n), 10)
	}
	ids := string(text)
	rng := rand.New(rand.NewPCG(1, 2))
	var req policy.Request
	for n := range probes {
		d := dice(rng.Uint64())
		req = policy.Request{Now: s.Times[d.roll(len(s.Times))], Attrs: req.Attrs[:0],
			Platform: s.Platforms[d.roll(len(s.Platforms))], AppVersion: s.Versions[d.roll(len(s.Versions))],
			Channel: s.Channels[d.roll(len(s.Channels))], Carrier: s.Carriers[d.roll(len(s.Carriers))],
			Locale: s.Locales[d.roll(len(s.Locales))], Hint: s.Hints[d.roll(len(s.Hints))], Addr: s.Addrs[d.roll(len(s.Addrs))]}
		if a := s.Attrs[d.roll(len(s.Attrs))]; a.Name != "" {
			req.Attrs = append(req.Attrs, a)
		}
		if n%10 != 9 {
			req.Device = ids[n*size : (n+1)*size]
		}
		if n%3 == 0 {
			req.User = ids[n*size : (n+1)*size]
		}
		if !f(n, &req) {
			return
		}
	}
}

// dice gives several small random numbers from one large one.
type dice uint64

func (d *dice) roll(sides int) int {
	hi, lo := bits.Mul64(uint64(*d), uint64(sides))
	*d = dice(lo)
	return int(hi)
}

// walk sends the probes of every app through its table and refuses a release that
// sends one of them nowhere. An app with the table of the snapshot before was
// walked then.
func walk(next *Snapshot) error {
	for key, app := range next.Apps {
		if app.walked != nil {
			continue
		}
		set := newProbeSet(app.App, next.Created)
		w := &walked{set: set, name: set.name(), region: make([]string, probes)}
		var wrong string
		set.run(func(n int, req *policy.Request) bool {
			w.region[n], wrong = app.arrive(app.Table.Decide(req))
			return wrong == ""
		})
		if wrong != "" {
			return fault.New(fault.Invalid, "probe_failed", "app %s: a synthetic request got %s", key, wrong).
				WithHint("this is a mistake in the program, not in the document: report it with the release")
		}
		app.walked = w
	}
	return nil
}

// Moved says for each app of both snapshots how many of 10,000 synthetic requests
// would get another region from b than from a, each its first request. A swap of
// endpoints inside a region moves nobody.
func Moved(a, b *Snapshot) map[string]int {
	moved := map[string]int{}
	for key, after := range b.Apps {
		before := a.Apps[key]
		if before == nil || after.walked == nil {
			continue
		}
		moved[key] = 0
		if before.Table == after.Table {
			continue
		}
		was := before.regionsOf(after.walked)
		for n, region := range after.walked.region {
			if region != was[n] {
				moved[key]++
			}
		}
	}
	return moved
}

// regionsOf is where the probes of another snapshot's walk go in this one. They
// are known if both walks were made of the same set.
func (s *Served) regionsOf(w *walked) []string {
	if s.walked != nil && s.walked.name == w.name && w.name != "" {
		return s.walked.region
	}
	region := make([]string, probes)
	w.set.run(func(n int, req *policy.Request) bool {
		region[n], _ = s.arrive(s.Table.Decide(req))
		return true
	})
	return region
}

// arrive is the region that a decision leads to, empty for the fallback, and
// what is wrong with it.
func (s *Served) arrive(d policy.Decision) (region, wrong string) {
	if d.Region < 0 {
		if len(s.Fallback.Bodies) == 0 {
			return "", "a fallback without an answer"
		}
		return "", ""
	}
	if int(d.Region) >= len(s.App.Regions) {
		return "", "a region that does not exist"
	}
	r := &s.App.Regions[d.Region]
	if d.Endpoint < 0 || int(d.Endpoint) >= len(r.Endpoints) {
		return "", "no endpoint of region " + r.Key
	}
	e := &r.Endpoints[d.Endpoint]
	switch {
	case r.Condition() == domain.Off:
		return "", "region " + r.Key + ", which is off"
	case !e.Serves():
		return "", fmt.Sprintf("endpoint %s/%s, which does not serve", r.Key, e.Key)
	case len(s.Answer[d.Region][d.Endpoint].Bodies) == 0:
		return "", fmt.Sprintf("endpoint %s/%s, which has no answer", r.Key, e.Key)
	}
	return r.Key, ""
}
