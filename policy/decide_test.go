package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// bigWorld is 50 policies of every kind, five lists that hold ids in all, and an
// address table. A request that no list holds walks all of them to the last step.
func bigWorld(tb testing.TB, ids, prefixes int) (*Table, []netip.Addr) {
	tb.Helper()
	lists := map[string][]string{}
	for l := range 5 {
		var members []string
		for i := l; i < ids; i += 5 {
			members = append(members, bigID(i))
		}
		lists["device/list-"+strconv.Itoa(l)] = members
	}
	csv, addrs := randomPrefixes(prefixes)
	r := rules()
	r.Regions = append(r.Regions, region("bj", 10))
	r.Origins = []Origin{{Hint: true}, {Table: "cn"}, {Replica: true}}
	for i := range 10 {
		ends := noon.Add(time.Duration(8*i-63) * time.Hour) // the last two of the waves are under way
		key := func(kind string) string { return kind + "-" + strconv.Itoa(i) }
		r.Policies = append(r.Policies,
			Policy{Key: key("version"), When: When{Platform: Strings{"ios"}, AppVersion: fmt.Sprintf(">=%d.2, <%d", 20+i, 21+i)}, Then: share("hf", 500)},
			Policy{Key: key("channel"), When: When{Channel: Strings{key("store"), key("shop")}, HasUser: ptr(true)}, Then: toRegion("hf")},
			Policy{Key: key("home"), When: When{Origin: Strings{"bj"}, Attr: map[string]Strings{"tier": {key("tier")}}}, Then: toRegion("bj")},
			Policy{Key: key("wave"), When: When{Between: []time.Time{noon.Add(-80 * time.Hour), ends}, Locale: Strings{"zh-CN"}, Not: &When{Carrier: Strings{key("carrier")}}}, Then: share("gz", 1)},
		)
		if i%2 == 0 {
			r.Policies = append(r.Policies, Policy{Key: key("list"), When: When{InList: Strings{"list-" + strconv.Itoa(i/2)}}, Then: toRegion("gz")})
		} else {
			r.Policies = append(r.Policies, Policy{Key: key("net"), When: When{CIDR: Strings{fmt.Sprintf("240.%d.0.0/16", i)}}, Then: toRegion("gz")})
		}
	}
	r.Policies = append(r.Policies[:49], Policy{Key: "home", When: When{Origin: Strings{"sh", "hf"}}, Then: toRegion("sh")})
	r.Otherwise = split("sh", 6000, "hf", 4000)
	return compile(tb, r, Env{Lists: listIndex(tb, lists), Tables: map[string]*Prefixes{"cn": parsePrefixes(tb, csv)}}), addrs
}

func bigID(i int) string { return fmt.Sprintf("6f9619ff-8b86-4d01-b42d-%012d", i) }

// bigRequests are distinct ids in random order, of which every second is in a
// list. They lie in memory as they are asked for: a real id has just been read
// from its request, and is no cache miss of Decide's.
func bigRequests(n, ids int) []string {
	out := make([]string, n)
	for i, at := range rand.New(rand.NewPCG(5, 5)).Perm(n) {
		if at%2 == 0 {
			out[i] = bigID(at / 2 * 7 % ids)
		} else {
			out[i] = bigID(ids + at)
		}
	}
	return out
}

func bigRequest() Request {
	return Request{Now: noon, User: "u-1", AppVersion: "10.5.1", Platform: "iOS", Channel: "appstore", Carrier: "cmcc",
		Locale: "zh_CN", Attrs: []Attr{{"build", "7"}, {"tier", "tin"}}}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	table, addrs := bigWorld(t, 5000, 1000)
	if n := len(table.rules); n != 50 {
		t.Fatalf("%d policies, want 50", n)
	}
	ids := bigRequests(1000, 5000)
	req := bigRequest()
	i, reasons := 0, map[Reason]int{}
	decide := func() {
		req.Device, req.Addr = ids[i%len(ids)], addrs[i%len(addrs)]
		reasons[table.Decide(&req).Reason]++
		i++
	}
	for range 1000 {
		decide()
	}
	if n := testing.AllocsPerRun(1000, decide); n != 0 {
		t.Errorf("%.2f allocations, want 0", n)
	}
	if reasons[ByPolicy] < 1000 || reasons[Default] == 0 {
		t.Errorf("reasons %v: the requests are not what the benchmark means", reasons)
	}
}

// A request without ids and with every value unreadable costs no allocation either.
func TestDecideOnNothingDoesNotAllocate(t *testing.T) {
	table, next := randomWorld(t)
	random := rand.New(rand.NewPCG(9, 9))
	requests := make([]Request, 500)
	for i := range requests {
		requests[i] = next(random)
		requests[i].Addr = netip.Addr{} // the address databases keep no promise of none
	}
	i := 0
	if n := testing.AllocsPerRun(len(requests)-1, func() { table.Decide(&requests[i]); i++ }); n != 0 {
		t.Errorf("%.2f allocations, want 0", n)
	}
}

// 500 policies that cannot match the platform are not even looked at.
func TestIndexLeavesOutOtherPlatforms(t *testing.T) {
	t.Parallel()
	table := platformWorld(t, 500)
	for platform, want := range map[string]int{"android": 1, "": 1, "harmony": 1, "IOS": 2} {
		w := walker{t: table, req: &Request{Platform: platform, Channel: "c0", AppVersion: "600"}}
		var left candidates
		left.begin(&w)
		got := 0
		for left.next() >= 0 {
			got++
		}
		if got != want {
			t.Errorf("%q: %d candidates, want %d", platform, got, want)
		}
	}
}

// platformWorld is n policies for ios and five for anybody.
func platformWorld(tb testing.TB, n int) *Table {
	r := rules()
	for i := range n {
		r.Policies = append(r.Policies, Policy{Key: fmt.Sprint("ios-", i), When: When{Platform: Strings{"ios"}, AppVersion: fmt.Sprint("=", 101+i)}, Then: toRegion("hf")})
	}
	for i := range 5 {
		r.Policies = append(r.Policies, Policy{Key: fmt.Sprint("any-", i), When: When{Channel: Strings{fmt.Sprint("c", i)}}, Then: toRegion("hf")})
	}
	return compile(tb, r, Env{})
}

// measure runs one benchmark loop and reports the processor time beside the wall
// time, which a busy machine stretches.
func measure(b *testing.B, op func(i int)) {
	b.ReportAllocs()
	i, start := 0, processorTime(b)
	for b.Loop() {
		op(i)
		i++
	}
	b.ReportMetric(float64(processorTime(b)-start)/float64(i), "cpu-ns/op")
}

func processorTime(tb testing.TB) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkDecide has a budget of 1 µs and no allocation, and at 5M ids at most
// three times the cost at 5k: 1,000,000 distinct ids in random order, half of
// them in a list, 100,000 prefixes, 50 policies.
func BenchmarkDecide(b *testing.B) {
	for _, size := range []struct {
		name string
		ids  int
	}{{"ids=5k", 5_000}, {"ids=5M", 5_000_000}} {
		table, addrs := bigWorld(b, size.ids, 100_000)
		ids := bigRequests(million, size.ids)
		b.Run(size.name, func(b *testing.B) {
			req := bigRequest()
			measure(b, func(i int) {
				req.Device, req.Addr = ids[i%len(ids)], addrs[i%len(addrs)]
				table.Decide(&req)
			})
		})
	}
}

// BenchmarkDecidePlatforms: 500 policies that cannot match cost at most three times 5.
func BenchmarkDecidePlatforms(b *testing.B) {
	for _, n := range []int{5, 500} {
		table := platformWorld(b, n)
		b.Run("policies="+strconv.Itoa(n), func(b *testing.B) {
			req := Request{Now: noon, Device: "d-1", Platform: "android", Channel: "store"}
			measure(b, func(int) { table.Decide(&req) })
		})
	}
}

func BenchmarkDecideSticky(b *testing.B) {
	table, addrs := bigWorld(b, 5000, 1000)
	req := bigRequest()
	req.Device, req.Addr, req.Session = "d", addrs[0], Session{Region: "hf", Endpoint: "hf-main"}
	measure(b, func(int) { table.Decide(&req) })
}

func BenchmarkExplain(b *testing.B) {
	table, addrs := bigWorld(b, 5000, 1000)
	req := bigRequest()
	req.Device, req.Addr = bigID(9999), addrs[0]
	b.ReportAllocs()
	for b.Loop() {
		table.Explain(&req)
	}
}

func BenchmarkCompile(b *testing.B) {
	r := rules()
	for i := range 500 {
		r.Policies = append(r.Policies, Policy{Key: fmt.Sprint("p-", i), When: When{Platform: Strings{"ios"}, AppVersion: fmt.Sprint("=", i)}, Then: share("hf", 10)})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(r, Env{}); err != nil {
			b.Fatal(err)
		}
	}
}
