package release

import (
	"cmp"
	"encoding/json"
	"math/bits"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

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

// run makes every nth probe and gives it to f, which is called by several
// goroutines and ends its part by an error. The same set always makes the same
// ones. Nine of ten have a device id, a third a user id.
func (s *probeSet) run(every int, f func(n int, req *policy.Request) error) error {
	const size = len("probe-100000")
	count := (probes + every - 1) / every
	text := make([]byte, 0, count*size)
	for i := range count {
		text = strconv.AppendInt(append(text, "probe-"...), int64(10*probes+i*every), 10)
	}
	ids := string(text)
	return inParallel(count, func(from, to int) error {
		var req policy.Request
		for i := from; i < to; i++ {
			s.fill(&req, i*every, ids[i*size:(i+1)*size])
			if err := f(i*every, &req); err != nil {
				return err
			}
		}
		return nil
	})
}

// fill makes probe n, whose ids are id.
func (s *probeSet) fill(req *policy.Request, n int, id string) {
	d := dice(mix(uint64(n)))
	*req = policy.Request{Now: s.Times[d.roll(len(s.Times))], Attrs: req.Attrs[:0],
		Platform: s.Platforms[d.roll(len(s.Platforms))], AppVersion: s.Versions[d.roll(len(s.Versions))],
		Channel: s.Channels[d.roll(len(s.Channels))], Carrier: s.Carriers[d.roll(len(s.Carriers))],
		Locale: s.Locales[d.roll(len(s.Locales))], Hint: s.Hints[d.roll(len(s.Hints))], Addr: s.Addrs[d.roll(len(s.Addrs))]}
	if a := s.Attrs[d.roll(len(s.Attrs))]; a.Name != "" {
		req.Attrs = append(req.Attrs, a)
	}
	if n%10 != 9 {
		req.Device = id
	}
	if n%3 == 0 {
		req.User = id
	}
}

// dice gives several small random numbers from one large one.
type dice uint64

func (d *dice) roll(sides int) int {
	hi, lo := bits.Mul64(uint64(*d), uint64(sides))
	*d = dice(lo)
	return int(hi)
}

// mix is SplitMix64: a random-looking number for each n.
func mix(n uint64) uint64 {
	n = (n + 1) * 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// inParallel splits 0 to n-1 among the processors and waits for them. A panic is
// an error, because the recover of a caller does not see other goroutines.
func inParallel(n int, f func(from, to int) error) error {
	parts := runtime.GOMAXPROCS(0)
	var g errgroup.Group
	for p := range parts {
		g.Go(func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = panicked(r)
				}
			}()
			return f(n*p/parts, n*(p+1)/parts)
		})
	}
	return g.Wait()
}
