package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
)

func TestStepsInOrder(t *testing.T) {
	t.Parallel()
	table := compile(t, rules(
		Policy{Key: "staff", When: When{InList: Strings{"staff"}}, Then: toRegion("gz")},
		onIOS("ios", share("hf", 5000)),
		onIOS("ios-rest", split("hf", 5000, "gz", 5000)),
	), Env{Lists: listIndex(t, map[string][]string{"device/staff": {"d-1"}})})
	in, out := deviceIn(t, "mobile/ios", 4999), deviceIn(t, "mobile/ios", 5000)
	for _, row := range []struct {
		name   string
		req    Request
		reason Reason
		policy string
		bucket int16
	}{
		{"a region outright", Request{Device: "d-1", Platform: "ios"}, ByPolicy, "staff", -1},
		{"a share that takes it", Request{Device: in, Platform: "ios"}, ByPolicy, "ios", 4999},
		{"a share that passes it on", Request{Device: out, Platform: "ios"}, ByPolicy, "ios-rest", int16(Bucket("mobile/ios-rest", out))},
		{"a split without an id", Request{Platform: "ios", Addr: addr("10.0.0.1")}, NoID, "ios-rest", int16(Bucket("mobile/ios-rest", "10.0.0.0/24"))},
		{"the last step", Request{Device: out}, Default, "", -1},
	} {
		row.req.Now = noon
		d := table.Decide(&row.req)
		if d.Reason != row.reason || table.PolicyKey(d.Policy) != row.policy || d.Bucket != row.bucket {
			t.Errorf("%s: %s by %q, bucket %d, want %s by %q, %d", row.name, d.Reason, table.PolicyKey(d.Policy), d.Bucket, row.reason, row.policy, row.bucket)
		}
		if d.Named != d.Region || d.Endpoint != 0 {
			t.Errorf("%s: region %d, named %d, endpoint %d", row.name, d.Region, d.Named, d.Endpoint)
		}
	}
}

// Step 4 of the contract: active ones of the list by capacity, a draining one of
// the list, the named one if draining, the fallback.
func TestFailover(t *testing.T) {
	t.Parallel()
	off, draining := domain.Off, domain.Draining
	for _, row := range []struct {
		name   string
		states [3]domain.RegionState // of sh, which is named and fails over to hf and gz
		want   string
		reason Reason
	}{
		{"active", [3]domain.RegionState{}, "sh", Default},
		{"off", [3]domain.RegionState{off, "", off}, "hf", Failover},
		{"draining takes no new ones", [3]domain.RegionState{draining, "", off}, "hf", Failover},
		{"a draining one of the list", [3]domain.RegionState{off, off, draining}, "gz", Failover},
		{"the first draining one of the list", [3]domain.RegionState{draining, draining, draining}, "hf", Failover},
		{"itself while it drains", [3]domain.RegionState{draining, off, off}, "sh", Failover},
		{"nobody", [3]domain.RegionState{off, off, off}, "", Fallback},
	} {
		r := rules()
		r.Regions[0].Failover = []string{"hf", "gz"}
		for i, s := range row.states {
			r.Regions[i].State = s
		}
		req := Request{Now: noon, Device: "d-9"}
		table := compile(t, r, Env{})
		d := table.Decide(&req)
		if got := table.regionOf(d); got != row.want || d.Reason != row.reason || d.Named != 0 {
			t.Errorf("%s: %s to %q, named %d, want %s to %q", row.name, d.Reason, got, d.Named, row.reason, row.want)
		}
		if d.Reason == Fallback && (d.Region != -1 || d.Endpoint != -1) {
			t.Errorf("%s: the fallback is %+v", row.name, d)
		}
		if d.Reason == Failover && d.Bucket != int16(Bucket("failover/mobile/sh", "d-9")) {
			t.Errorf("%s: bucket %d", row.name, d.Bucket)
		}
	}
}

func (t *Table) regionOf(d Decision) string {
	if d.Region < 0 {
		return ""
	}
	return t.regions[d.Region].Key
}

func TestFailoverSharesByCapacity(t *testing.T) {
	t.Parallel()
	r := rules()
	r.Regions = []domain.Region{region("sh", 10, "hf", "gz"), region("hf", 30), region("gz", 10)}
	r.Regions[0].State = domain.Off
	table := compile(t, r, Env{})
	hf := 0
	const n = 100_000
	for i := range n {
		if got, _ := where(table, Request{Device: fmt.Sprintf("d%d", i)}); got == "hf" {
			hf++
		}
	}
	if part := float64(hf) / n; part < 0.745 || part > 0.755 { // 0.75 ± 3.6 sigma of 0.00137
		t.Errorf("hf takes %.4f, want 0.75", part)
	}
}

func TestEndpointsByWeight(t *testing.T) {
	t.Parallel()
	r := rules()
	r.Regions[0].Endpoints = []domain.Endpoint{
		{Key: "a", Domain: "a.bank.example", Weight: ptr(300)}, {Key: "b", Domain: "b.bank.example"},
		{Key: "c", Domain: "c.bank.example", State: domain.Standby}, {Key: "d", Domain: "d.bank.example", State: domain.Closed},
	}
	table := compile(t, r, Env{})
	var counts [4]int
	for i := range 100_000 {
		req := Request{Now: noon, Device: fmt.Sprintf("d%d", i)}
		counts[table.Decide(&req).Endpoint]++
	}
	if counts[0] < 74_400 || counts[0] > 75_600 || counts[2]+counts[3] != 0 {
		t.Errorf("endpoints %v, want 75,000, 25,000, 0, 0", counts)
	}
}

// randomWorld is rules that use everything, and requests for them.
func randomWorld(tb testing.TB) (*Table, func(*rand.Rand) Request) {
	env := conditionEnv(tb)
	env.Sessions = sessionKeys(tb, "s1")
	r := rules(
		Policy{Key: "staff", When: When{InList: Strings{"staff", "vip"}}, Then: toRegion("gz")},
		Policy{Key: "gray", When: When{Platform: Strings{"ios"}, AppVersion: ">=10.2, <11"}, BucketBy: ByUser, Then: share("hf", 2500)},
		Policy{Key: "old", When: When{Platform: Strings{"android"}, Not: &When{AppVersion: ">=9"}}, Then: shareOf("gz", [2]int{100, 4000})},
		Policy{Key: "china", When: When{Country: Strings{"CN"}, Not: &When{ASN: []uint32{4812}}}, Then: split("sh", 2000, "hf", 8000)},
		Policy{Key: "home", When: When{Origin: Strings{"harbour", "hf"}, Not: &When{CIDR: Strings{"198.51.100.128/25"}}}, Then: toRegion("hf")},
		Policy{Key: "night", When: When{Between: []time.Time{noon, noon.Add(time.Hour)}, Attr: map[string]Strings{"tier": {"gold"}}}, Then: toRegion("sh")},
	)
	r.Origins = []Origin{{Hint: true}, {Table: "cn"}, {Replica: true}}
	r.Regions[2].State = domain.Draining
	r.Regions[2].Failover = []string{"sh", "hf"}
	r.Regions[0].Epoch = 2
	r.Epochs = map[string]uint32{"gray": 1}
	r.Otherwise = split("sh", 6000, "hf", 4000)
	pick := func(random *rand.Rand, values ...string) string { return values[random.IntN(len(values))] }
	return compile(tb, r, env), func(random *rand.Rand) Request {
		req := Request{Now: noon.Add(time.Duration(random.IntN(7200)-3600) * time.Second),
			Device: pick(random, "", "d-1", fmt.Sprint("d", random.IntN(1000))), User: pick(random, "", "u-1", fmt.Sprint("u", random.IntN(1000))),
			AppVersion: pick(random, "", "8", "10.5", "11-beta", "x"), Platform: pick(random, "", "iOS", "android", "web"),
			Hint: pick(random, "", "", "hf", "moon"), AddrSource: "peer"}
		if a := pick(random, "", "203.0.113.9", "198.51.100.1", "198.51.100.200", "192.0.2.1", "2001:db8::1", "8.8.8.8"); a != "" {
			req.Addr = addr(a)
		}
		if random.IntN(2) == 0 {
			req.Attrs = []Attr{{"tier", pick(random, "gold", "tin")}}
		}
		if random.IntN(3) == 0 {
			req.Session = Session{Region: pick(random, "sh", "hf", "gz", "gone"), Endpoint: pick(random, "", "sh-main", "hf-main"),
				Policy: pick(random, "", "gray"), RegionEpoch: uint32(random.IntN(3)), PolicyEpoch: uint32(random.IntN(2))}
		}
		return req
	}
}

// Decide and Explain are one walk: the same decision, and the same again.
func TestExplainDecidesAsDecide(t *testing.T) {
	t.Parallel()
	table, next := randomWorld(t)
	random := rand.New(rand.NewPCG(1, 2))
	reasons := map[Reason]int{}
	for range 50_000 {
		req := next(random)
		d := table.Decide(&req)
		explained, trace := table.Explain(&req)
		if d != explained || d != table.Decide(&req) {
			t.Fatalf("%+v\nDecide  %+v\nExplain %+v\n%s", req, d, explained, trace)
		}
		if trace.Reason != d.Reason || trace.Region != table.regionOf(d) || trace.Policy != table.PolicyKey(d.Policy) {
			t.Fatalf("the trace says %s %s %q of %+v", trace.Reason, trace.Region, trace.Policy, d)
		}
		reasons[d.Reason]++
	}
	for _, r := range []Reason{Sticky, ByPolicy, Default, Failover, NoID} {
		if reasons[r] < 100 {
			t.Errorf("only %d of the requests end in %s", reasons[r], r)
		}
	}
}

// A table is shared by all requests; run with -race.
func TestDecideFromManyGoroutines(t *testing.T) {
	t.Parallel()
	table, next := randomWorld(t)
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, seed))
			for range 2000 {
				req := next(random)
				d := table.Decide(&req)
				if explained, _ := table.Explain(&req); explained != d {
					t.Errorf("%+v: %+v and %+v", req, d, explained)
				}
				token, _ := table.AppendSession(nil, d, &req, SessionLife{TTL: time.Hour, Max: 12 * time.Hour})
				table.OpenSession(string(token), &req)
			}
		})
	}
	wg.Wait()
}

// What the index leaves out could not have matched: the same rules without it
// decide the same.
func TestIndexChangesNoDecision(t *testing.T) {
	t.Parallel()
	table, next := randomWorld(t)
	plain := *table
	plain.columns = nil
	plain.rules = slices.Clone(table.rules)
	for i := range plain.rules {
		r := &plain.rules[i]
		r.early, r.late = nil, slices.Concat(r.early, r.late)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 50_000 {
		req := next(random)
		with, without := table.Decide(&req), plain.Decide(&req)
		// Without the index an absent value is noted only where it is reached.
		with.Notes, without.Notes = with.Notes&^(FactAbsent|BadVersion), without.Notes&^(FactAbsent|BadVersion)
		if with != without {
			t.Fatalf("%+v\nwith    %+v\nwithout %+v", req, with, without)
		}
	}
}

// e7, e15, e44: the trace says everything that a person needs to follow it.
func TestTraceIsReadable(t *testing.T) {
	t.Parallel()
	env := conditionEnv(t)
	r := rules(
		Policy{Key: "staff", When: When{InList: Strings{"staff"}}, Then: toRegion("gz")},
		Policy{Key: "droid", When: When{Platform: Strings{"android"}}, Then: toRegion("gz")},
		onIOS("gray", share("hf", 500)),
		Policy{Key: "home", When: When{Origin: Strings{"sh"}, AppVersion: ">=10"}, Then: toRegion("sh")},
	)
	r.Origins = tableOrigin
	r.Regions[0].State = domain.Off
	device := deviceIn(t, "mobile/gray", 1234)
	_, trace := compile(t, r, env).Explain(&Request{Now: noon, Device: device, Platform: "ios", AppVersion: "10.5",
		Addr: addr("203.0.113.9"), AddrSource: "x-forwarded-for"})
	bucket := func(salt string) uint16 { return Bucket(salt, device) }
	want := `app mobile at 2026-08-30T12:00:00Z
address 203.0.113.9 (from x-forwarded-for)
policy staff: does not match
  ✗ in_list staff: device id not in staff
policy droid: skipped, by the index
  ✗ platform android: "ios"
policy gray: passes on
  ✓ platform ios: "ios"
  bucket 1234 by device, salt mobile/gray; [0, 499] hf; enters when the share reaches 1235
policy home: decides sh
  ✓ app_version >=10: "10.5"
  ✓ origin sh: "sh" from table cn, prefix 203.0.113.0/24
failover: decides hf, sh is off
` + fmt.Sprintf("  bucket %d by device, salt failover/mobile/sh\n", bucket("failover/mobile/sh")) +
		"endpoint hf-main: decides hf\n" +
		fmt.Sprintf("  bucket %d by device, salt endpoint/mobile/hf\n", bucket("endpoint/mobile/hf")) +
		"→ FAILOVER: hf, endpoint hf-main\n"
	if got := trace.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(trace.String(), device) {
		t.Error("the trace holds a device id")
	}
}

// A condition after the first that fails is shown, and its notes do not count.
func TestTraceShowsConditionsThatAreNotReached(t *testing.T) {
	t.Parallel()
	p := Policy{Key: "p", When: When{Origin: Strings{"sh"}, Country: Strings{"CN"}}, Then: toRegion("hf")}
	r := rules(p)
	r.Origins = []Origin{{Replica: true}}
	d, trace := compile(t, r, Env{Replica: Replica{Region: "hf"}}).Explain(&Request{Now: noon, Device: "d", Addr: addr("203.0.113.1")})
	if checks := trace.Steps[0].Checks; len(checks) != 2 || !checks[1].Unknown || checks[1].Got != "no city database" {
		t.Errorf("checks %+v", checks)
	}
	if d.Notes != 0 {
		t.Errorf("notes %v, want none", d.Notes.Strings())
	}
}

func TestReasonsAndNotesHaveNames(t *testing.T) {
	t.Parallel()
	for reason, want := range map[Reason]string{None: "NONE", Sticky: "STICKY", ByPolicy: "POLICY", Default: "DEFAULT",
		Failover: "FAILOVER", Fallback: "FALLBACK", NoID: "NO_ID", 99: "NONE"} {
		if got := reason.String(); got != want {
			t.Errorf("Reason(%d) = %s, want %s", reason, got, want)
		}
	}
	if got := (BadVersion | UserAbsent | GeoAbsent).Strings(); strings.Join(got, " ") != "bad_version user_absent geo_absent" {
		t.Errorf("notes %v", got)
	}
}
