package release

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// goldenCount is how many golden requests there are: enough to meet every bucket
// about once, and at half a microsecond each quick enough for an emergency.
const goldenCount = policy.Whole

// goldenFile holds one request a line, in the columns of GoldenRequest. A value
// with characters that a line cannot show is quoted as in Go. TestGoldenRequests
// makes it from a seed; another file is another oracle, to be reviewed as such.
//
//go:embed golden/requests.tsv
var goldenFile string

// GoldenRequest is one of the requests that every release has to answer before it
// serves: what clients send, what they send by mistake, and what attackers send.
type GoldenRequest struct {
	Device, User             string // as they came, in no normal form
	AppVersion, Platform     string
	Channel, Carrier, Locale string
	Origin                   string // hint of a trusted proxy
	Addr                     netip.Addr
}

// GoldenRequests are the golden requests, in their order.
func GoldenRequests() ([]GoldenRequest, error) {
	requests := make([]GoldenRequest, 0, goldenCount)
	for line := range strings.Lines(goldenFile) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		r, err := parseGolden(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("golden request %d: %w", len(requests), err)
		}
		requests = append(requests, r)
	}
	if len(requests) != goldenCount {
		return nil, fmt.Errorf("%d golden requests, there must be %d", len(requests), goldenCount)
	}
	return requests, nil
}

func parseGolden(line string) (r GoldenRequest, err error) {
	for i, value := range [...]*string{&r.Device, &r.User, &r.AppVersion, &r.Platform, &r.Channel, &r.Carrier, &r.Locale, &r.Origin} {
		more := false
		if *value, line, more = strings.Cut(line, "\t"); !more {
			return r, fmt.Errorf("%d columns, there must be 9", i+1)
		}
		if strings.HasPrefix(*value, `"`) {
			if *value, err = strconv.Unquote(*value); err != nil {
				return r, fmt.Errorf("column %d: %w", i+1, err)
			}
		}
	}
	if line != "" {
		r.Addr, err = netip.ParseAddr(line)
	}
	return r, err
}

// goldenSet is the golden requests as an app is asked them: two thirds of each
// value but the ids are replaced by those that the app's rules speak of, or few
// rules would be met.
type goldenSet struct {
	requests []GoldenRequest
	speaks   spoken
}

// spoken are the values that an app's rules speak of.
type spoken struct {
	Platforms, Versions, Channels, Carriers, Locales, Hints []string
	Addrs                                                   []netip.Addr
	Attrs                                                   []policy.Attr
	Times                                                   []time.Time
}

// spokenOf gathers the values from an app's rules. created is the time of a
// request where no rule asks for one.
func spokenOf(app *App, created time.Time) spoken {
	var s spoken
	for i := range app.Regions {
		s.Hints = append(s.Hints, app.Regions[i].Key)
	}
	for i := range app.Policies {
		s.add(&app.Policies[i].When)
		s.addRamp(app.Policies[i].Then.Share)
	}
	if len(s.Times) == 0 {
		s.Times = []time.Time{created}
	}
	for _, values := range []*[]string{&s.Platforms, &s.Versions, &s.Channels, &s.Carriers, &s.Locales, &s.Hints} {
		slices.Sort(*values)
		*values = slices.Compact(*values)
	}
	slices.SortFunc(s.Attrs, func(a, b policy.Attr) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return s
}

func (s *spoken) add(w *policy.When) {
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

// addRamp has a ramp met at its end, so that Moved counts all whom it moves. One
// that ends by taking everybody is met at its start too: else the rules behind it
// would not be asked.
func (s *spoken) addRamp(share *policy.Share) {
	if share == nil || share.Ramp == nil {
		return
	}
	s.Times = append(s.Times, share.Ramp.End)
	if share.Ramp.To == policy.Whole {
		s.Times = append(s.Times, share.Ramp.Start)
	}
}

// name is the values in writing: equal ones make equal requests.
func (s spoken) name() string {
	if len(s.Times) == 1 {
		s.Times = nil // no rule asks for the time
	}
	text, err := json.Marshal(s)
	if err != nil {
		return "" // such a set is like no other
	}
	return string(text)
}

// run makes every nth request and gives it to f, which is called by several
// goroutines and ends its part by an error. The same set always makes the same
// ones. Ids get their normal form from ids.
func (g *goldenSet) run(every int, ids *whitelist.Normalizer, f func(n int, req *policy.Request) error) error {
	return inParallel((len(g.requests)+every-1)/every, func(from, to int) error {
		var req policy.Request
		for n := from * every; n < min(to*every, len(g.requests)); n += every {
			g.fill(&req, n, ids)
			if err := f(n, &req); err != nil {
				return err
			}
		}
		return nil
	})
}

// fill makes request n.
func (g *goldenSet) fill(req *policy.Request, n int, ids *whitelist.Normalizer) {
	r, s := &g.requests[n], &g.speaks
	d := dice(mix(uint64(n)))
	*req = policy.Request{Now: s.Times[d.roll(len(s.Times))], Attrs: req.Attrs[:0],
		Platform: either(&d, s.Platforms, r.Platform), AppVersion: either(&d, s.Versions, r.AppVersion),
		Channel: either(&d, s.Channels, r.Channel), Carrier: either(&d, s.Carriers, r.Carrier),
		Locale: either(&d, s.Locales, r.Locale), Hint: either(&d, s.Hints, r.Origin), Addr: either(&d, s.Addrs, r.Addr)}
	if a := either(&d, s.Attrs, policy.Attr{}); a.Name != "" {
		req.Attrs = append(req.Attrs, a)
	}
	req.Device, _ = ids.Normalize(r.Device)
	req.User, _ = ids.Normalize(r.User)
}

// either is one of values, or own in a third of all cases.
func either[T any](d *dice, values []T, own T) T {
	if len(values) == 0 {
		return own
	}
	if n := d.roll(3 * len(values)); n < 2*len(values) {
		return values[n/2]
	}
	return own
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

// Golden is what a snapshot answers to the golden requests, a line for each app
// and request:
//
//	app  number of the request  region  endpoint  domain  reason  policy  bucket
//
// An override counts. Snapshots answer alike if their lines are equal, be they of
// another process, another start or another version of this program.
func Golden(s *Snapshot) ([]byte, error) {
	var out bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(s.Apps)) {
		app := s.Apps[key]
		lines := make([]string, goldenCount)
		to := app.landings(nil)
		err := app.walked.set.run(1, app.IDs, func(n int, req *policy.Request) error {
			d := app.Table.Decide(req)
			region, err := to.arrive(d)
			endpoint, host := "", app.App.Fallback
			if err == nil && d.Region >= 0 {
				e := &app.App.Regions[d.Region].Endpoints[d.Endpoint]
				endpoint, host = e.Key, e.Domain
			}
			lines[n] = fmt.Sprintf("%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d\n", key, n, region, endpoint, host, d.Reason, app.Table.PolicyKey(d.Policy), d.Bucket)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("golden answers of %s: %w", key, err)
		}
		for _, line := range lines {
			out.WriteString(line)
		}
	}
	return out.Bytes(), nil
}
