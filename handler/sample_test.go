package handler

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// remembers puts n requests into s, in random order of ids, all at one time.
func (s *sample) remembers(n int, at time.Time, user string) (took int) {
	d := &decision{app: &release.Served{App: &release.App{Key: "mobile"}}}
	d.req.Now, d.req.User = at, user
	for range n {
		if d.id[0] = rand.Uint64(); s.wants(d.id[0]) {
			s.keep(d, at)
			took++
		}
	}
	return took
}

// Whatever the traffic of the hour was, the sample fits, and every request of the
// hour had the same chance to be tried.
func TestASampleIsUniformAndBounded(t *testing.T) {
	t.Parallel()
	s := new(sample)
	busy := s.remembers(400_000, testNow, "busy")
	if len(s.refs) >= sampleRequests || len(s.refs) < sampleRequests/4 {
		t.Errorf("%d of %d requests are remembered", len(s.refs), busy)
	}
	for m := 1; m < 50; m++ { // the night: a hundredth
		at := testNow.Add(time.Duration(m) * time.Minute)
		s.tidy(at)
		s.remembers(80, at, "quiet")
	}
	got := s.take(testNow.Add(50 * time.Minute))
	users := map[string]uint64{}
	for n := range got.refs {
		_, req := got.at(n)
		users[req.User] += got.each
	}
	if b, q := users["busy"], users["quiet"]; b < 380_000 || b > 420_000 || q < 2000 || q > 6500 {
		t.Errorf("400,000 busy requests and 3,920 quiet ones look like %v", users)
	}

	// An hour later only the night is left, and all of it that came since the sample
	// got denser.
	for m := 50; m < 120; m++ {
		at := testNow.Add(time.Duration(m) * time.Minute)
		s.tidy(at)
		s.remembers(80, at, "quiet")
	}
	got = s.take(testNow.Add(2 * time.Hour))
	if n := uint64(len(got.refs)) * got.each; s.bits != 0 || n < 3000 || n > 6500 {
		t.Errorf("4,720 requests in the last hour: %d remembered, each for %d; 1 in 2^%d is kept", len(got.refs), got.each, s.bits)
	}
}

func TestASampleOfLongRequestsIsBounded(t *testing.T) {
	t.Parallel()
	s := new(sample)
	s.remembers(20_000, testNow, strings.Repeat("x", 8<<10))
	if len(s.data) >= sampleBytes || len(s.data) < sampleBytes/8 || cap(s.data) > 3*sampleBytes {
		t.Errorf("%d bytes are remembered, with room for %d", len(s.data), cap(s.data))
	}
}

func TestASampleForgetsAfterAnHour(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"an hour": time.Hour + time.Minute, "a clock that was set back": -2 * time.Hour} {
		s := new(sample)
		s.remembers(100, testNow, "u")
		s.tidy(testNow.Add(after))
		if len(s.refs) > 0 || len(s.data) > 0 {
			t.Errorf("%s: %d requests are remembered", name, len(s.refs))
		}
	}
}

func TestARequestIsRememberedWhole(t *testing.T) {
	t.Parallel()
	session := policy.Session{Region: "sh", Endpoint: "sh-main", Policy: "home", RegionEpoch: 7, PolicyEpoch: 1 << 31, Start: time.Unix(1_800_000_000, 0),
		Expires: time.Unix(1_800_001_800, 0), Bound: whitelist.Device}
	full := policy.Request{Now: time.Unix(1_800_000_100, 42), Device: "d-1", User: "u-1", AppVersion: "10.2", Platform: "ios", Channel: "store", Carrier: "c",
		Locale: "zh-CN", Hint: "hf", Addr: netip.MustParseAddr("2001:db8::1"), AddrSource: "peer", Attrs: []policy.Attr{{Name: "tier", Value: "gold"}, {Name: "x", Value: ""}},
		Session: session}
	short := policy.Request{Now: time.Unix(0, 0), Addr: netip.MustParseAddr("192.0.2.1")}
	none := policy.Request{Now: time.Unix(-1, 0)}
	for i, req := range []policy.Request{full, short, none} {
		app, got := unpack(pack([]byte("before")[6:], "mobile", &req))
		if app != "mobile" || !reflect.DeepEqual(got, req) {
			t.Errorf("request %d: got %+v, want %+v", i, got, req)
		}
	}
}

func FuzzPack(f *testing.F) {
	f.Add("mobile", "d-1", "u-1", "tier", "gold", []byte{192, 0, 2, 1}, int64(5))
	f.Add("", "", "", "", "", []byte{}, int64(-1))
	f.Fuzz(func(t *testing.T, app, device, region, name, value string, addr []byte, now int64) {
		req := policy.Request{Now: time.Unix(0, now), Device: device, Attrs: []policy.Attr{{Name: name, Value: value}}}
		req.Addr, _ = netip.AddrFromSlice(addr)
		if region != "" {
			req.Session = policy.Session{Region: region, Start: time.Unix(now, 0), Expires: time.Unix(-now, 0)}
		}
		if key, got := unpack(pack(nil, app, &req)); key != app || !reflect.DeepEqual(got, req) {
			t.Errorf("got %q %+v, want %q %+v", key, got, app, req)
		}
	})
}

// What a request costs that is not remembered, and one that is.
func BenchmarkSample(b *testing.B) {
	s := new(sample)
	d := &decision{app: &release.Served{App: &release.App{Key: "mobile"}}}
	d.req = policy.Request{Now: testNow, Device: fmt.Sprintf("%036d", 1), AppVersion: "10.2.1", Platform: "ios", Addr: netip.MustParseAddr("192.0.2.1")}
	for name, id := range map[string]uint64{"passed over": 1, "kept": 0} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			s.mask.Store(1)
			for b.Loop() {
				if s.wants(id) {
					d.id[0] = rand.Uint64()
					s.keep(d, testNow)
				}
			}
		})
	}
}
