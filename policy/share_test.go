package policy

import (
	"fmt"
	"strconv"
	"testing"

	"dispatch.example/dispatch/domain"
)

// deviceIn is an id whose bucket under the salt is b.
func deviceIn(tb testing.TB, salt string, b uint16) string {
	tb.Helper()
	for i := range 2_000_000 {
		if id := "d" + strconv.Itoa(i); Bucket(salt, id) == b {
			return id
		}
	}
	tb.Fatalf("no id for bucket %d", b)
	return ""
}

// e5, e6, e7, e17: in if and only if the bucket is below the share.
func TestShareBoundaries(t *testing.T) {
	t.Parallel()
	for _, of := range []int{0, 1, 4999, 5000, 9999, 10000} {
		table := compile(t, rules(gray(of)), Env{})
		for _, b := range []int{0, of - 1, of, 9999} {
			if b < 0 || b >= Whole {
				continue
			}
			want := "sh"
			if b < of {
				want = "hf"
			}
			if got, _ := where(table, Request{Device: deviceIn(t, "mobile/gray", uint16(b))}); got != want {
				t.Errorf("share %d, bucket %d: %s, want %s", of, b, got, want)
			}
		}
	}
}

// e5: 0 % is nobody of a million, 10,000 is everybody.
func TestShareOfNothingAndOfAll(t *testing.T) {
	t.Parallel()
	nobody, everybody := compile(t, rules(gray(0)), Env{}), compile(t, rules(gray(Whole)), Env{})
	for i := range million {
		id := "d" + strconv.Itoa(i)
		if got, _ := where(nobody, Request{Device: id}); got != "sh" {
			t.Fatalf("%s is in a share of 0", id)
		}
		if got, _ := where(everybody, Request{Device: id}); got != "hf" {
			t.Fatalf("%s is outside a share of 10,000", id)
		}
	}
}

// e18, e19: without an id a share of 10,000 takes the request, a smaller one passes it on.
func TestShareWithoutAnID(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		of   int
		want string
	}{{0, "sh"}, {1, "sh"}, {9999, "sh"}, {10000, "hf"}} {
		table := compile(t, rules(gray(row.of)), Env{})
		for i := range 1000 {
			req := Request{Now: noon, Addr: addr(fmt.Sprintf("10.%d.%d.1", i/256, i%256)), User: "u1"}
			d := table.Decide(&req)
			if got := table.Regions()[d.Region].Key; got != row.want || d.Notes&DeviceAbsent == 0 {
				t.Fatalf("share %d: %s, notes %v, want %s and device_absent", row.of, got, d.Notes.Strings(), row.want)
			}
		}
	}
}

// e18: a split without an id uses the address's prefix, the same for all of one network.
func TestSplitWithoutAnIDUsesThePrefix(t *testing.T) {
	t.Parallel()
	r := rules()
	r.Otherwise = split("sh", 5000, "hf", 5000)
	table := compile(t, r, Env{})
	seen := map[string]int{}
	for i := range 1000 {
		first, reason := where(table, Request{Addr: addr(fmt.Sprintf("10.%d.%d.1", i/256, i%256))})
		second, _ := where(table, Request{Addr: addr(fmt.Sprintf("10.%d.%d.200", i/256, i%256))})
		if first != second || reason != NoID {
			t.Fatalf("network %d: %s and %s, %s", i, first, second, reason)
		}
		seen[first]++
	}
	if seen["sh"] < 430 || seen["hf"] < 430 { // 500 ± 4 sigma of 15.8
		t.Errorf("1,000 networks split %v", seen)
	}
	a, reason := where(table, Request{})
	if b, _ := where(table, Request{Platform: "ios"}); a != b || reason != NoID {
		t.Errorf("without an id and address: %s and %s, %s", a, b, reason)
	}
}

func TestBucketByChoosesTheID(t *testing.T) {
	t.Parallel()
	device, user := "d-x", "u-y"
	for _, row := range []struct {
		by   BucketBy
		req  Request
		want string // the id that is hashed; empty is none
	}{
		{ByDevice, Request{Device: device, User: user}, device},
		{ByDevice, Request{User: user}, ""},
		{ByUser, Request{Device: device, User: user}, user},
		{ByUser, Request{Device: device}, ""},
		{ByDeviceThenUser, Request{Device: device, User: user}, device},
		{ByDeviceThenUser, Request{User: user}, user},
		{ByDeviceThenUser, Request{}, ""},
		{ByUserThenDevice, Request{Device: device, User: user}, user},
		{ByUserThenDevice, Request{Device: device}, device},
		{ByUserThenDevice, Request{}, ""},
	} {
		p := gray(Whole)
		p.BucketBy = row.by
		want := int16(-1)
		if row.want != "" {
			want = int16(Bucket("mobile/gray", row.want))
		}
		row.req.Now = noon
		if got := compile(t, rules(p), Env{}).Decide(&row.req).Bucket; got != want {
			t.Errorf("%s of %q and %q: bucket %d, want %d", row.by, row.req.Device, row.req.User, got, want)
		}
	}
}

// e8: every bucket of a split has exactly one part.
func TestSplitCoversEveryBucketOnce(t *testing.T) {
	t.Parallel()
	r := rules()
	r.Otherwise = split("sh", 3333, "hf", 3333, "gz", 3334)
	table := compile(t, r, Env{})
	counts := map[int16]int{}
	for b := range int16(Whole) {
		counts[table.otherwise.find(b)]++
	}
	if len(counts) != 3 || counts[0] != 3333 || counts[1] != 3333 || counts[2] != 3334 {
		t.Errorf("buckets by region: %v", counts)
	}
}

// e11: moving 1,000 from b to c moves exactly those, and nobody of a.
func TestSplitEditMovesOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	before, after := rules(), rules()
	before.Otherwise = split("sh", 5000, "hf", 3000, "gz", 2000)
	after.Otherwise = split("sh", 5000, "hf", 2000, "gz", 3000)
	old, next := compile(t, before, Env{}), compile(t, after, Env{})
	moved := map[string]int{}
	for b := range int16(Whole) {
		from, to := old.otherwise.find(b), next.otherwise.find(b)
		if from != to {
			moved[old.regionKeyOf(from)+">"+next.regionKeyOf(to)]++
		}
	}
	if len(moved) != 1 || moved["hf>gz"] != 1000 {
		t.Errorf("moved %v, want 1,000 hf>gz", moved)
	}
}

func (t *Table) regionKeyOf(n int16) string { return t.regions[n].Key }

func TestIntervalsTakeExactlyTheirBuckets(t *testing.T) {
	t.Parallel()
	table := compile(t, rules(Policy{Key: "gray", MatchAll: true, Then: shareOf("hf", [2]int{9000, 9099}, [2]int{0, 499})}), Env{})
	inside := 0
	for b := range int16(Whole) {
		want := b <= 499 || b >= 9000 && b <= 9099
		if got := table.rules[0].do.find(b) >= 0; got != want {
			t.Errorf("bucket %d: %v, want %v", b, got, want)
		} else if got {
			inside++
		}
	}
	if inside != 600 {
		t.Errorf("%d buckets, want 600", inside)
	}
}

// P20, e10: a share that grows takes nobody back. Buckets are a function of salt and id
// alone (client/vectors), so versions and restarts are no part of it.
func TestP20GrowingMovesNobodyBack(t *testing.T) {
	t.Parallel()
	var tables []*Table
	for _, of := range []int{100, 500, 2000, 5000, 10000} {
		tables = append(tables, compile(t, rules(gray(of)), Env{}))
	}
	for i := range million {
		req := Request{Now: noon, Device: fmt.Sprintf("u%07d", i)}
		was := false
		for n, table := range tables {
			in := table.Decide(&req).Reason == ByPolicy
			if was && !in {
				t.Fatalf("%s leaves at step %d", req.Device, n)
			}
			was = in
		}
		if !was {
			t.Fatalf("%s is outside a share of 10,000", req.Device)
		}
	}
}

// e2, e3: two policies of 10 % overlap by a hundredth; with one salt they are the same people.
func TestSaltsMakeSharesIndependent(t *testing.T) {
	t.Parallel()
	both := 0
	for i := range million {
		id := fmt.Sprintf("u%07d", i)
		if Bucket("mobile/one", id) < 1000 && Bucket("mobile/two", id) < 1000 {
			both++
		}
	}
	if both < 9_600 || both > 10_400 {
		t.Errorf("%d of a million are in both, want 10,000 ± 400", both)
	}
	ios := Policy{Key: "one", When: When{Platform: Strings{"ios"}}, Salt: "wave-7", Then: share("hf", 1000)}
	android := Policy{Key: "two", When: When{Platform: Strings{"android"}}, Salt: "wave-7", Then: share("hf", 1000)}
	table := compile(t, rules(ios, android), Env{})
	for i := range 10_000 {
		id := fmt.Sprintf("u%07d", i)
		x, _ := where(table, Request{Device: id, Platform: "ios"})
		y, _ := where(table, Request{Device: id, Platform: "android"})
		if x != y {
			t.Fatalf("%s: %s on ios and %s on android under one salt", id, x, y)
		}
	}
}

// e1: inside a gray of 10 % the endpoints of its region share evenly, because
// their choice has a salt of its own.
func TestChoiceInsideAShareIsIndependent(t *testing.T) {
	t.Parallel()
	r := rules(gray(1000))
	r.Regions[1].Endpoints = []domain.Endpoint{{Key: "b", Domain: "b.bank.example"}, {Key: "c", Domain: "c.bank.example"}}
	table := compile(t, r, Env{})
	var counts [2]float64
	for i := range million {
		req := Request{Now: noon, Device: fmt.Sprintf("u%07d", i)}
		if d := table.Decide(&req); d.Reason == ByPolicy {
			counts[d.Endpoint]++
		}
	}
	if part := counts[0] / (counts[0] + counts[1]); part < 0.493 || part > 0.507 {
		t.Errorf("endpoint b has %.4f of the gray, want 0.5 ± 0.007", part)
	}
}
