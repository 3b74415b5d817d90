package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

type bucketVectors struct {
	Algorithm int
	About     string
	Reference []struct{ Text, XXH64 string }
	Vectors   []struct {
		Salt, ID, XXH64 string
		Repeat          int
		Bucket          uint16
	}
}

// e4, e9: the file comes from an implementation of its own, so this compares two.
func TestBucketVectors(t *testing.T) {
	t.Parallel()
	var file bucketVectors
	vectors(t, "buckets.json", &file)
	if file.Algorithm != BucketAlgorithm {
		t.Fatalf("the vectors are of algorithm %d, Bucket is %d", file.Algorithm, BucketAlgorithm)
	}
	if len(file.Vectors) < 1000 {
		t.Errorf("%d vectors, want at least 1,000", len(file.Vectors))
	}
	for _, v := range file.Vectors {
		id := strings.Repeat(v.ID, max(1, v.Repeat))
		if got := Bucket(v.Salt, id); got != v.Bucket {
			t.Errorf("Bucket(%q, %q × %d) = %d, want %d", v.Salt, v.ID, max(1, v.Repeat), got, v.Bucket)
		}
		if want, err := strconv.ParseUint(v.XXH64, 16, 64); err != nil || uint16(want%Whole) != v.Bucket {
			t.Errorf("vector %q %q: bucket %d is not %s mod %d", v.Salt, v.ID, v.Bucket, v.XXH64, Whole)
		}
	}
}

// The published values of XXH64 with seed 0, from the test suites of its
// reference implementation and bindings.
func TestHashIsXXH64(t *testing.T) {
	t.Parallel()
	var file bucketVectors
	vectors(t, "buckets.json", &file)
	if len(file.Reference) == 0 {
		t.Fatal("no reference values")
	}
	for _, v := range file.Reference {
		if got := fmt.Sprintf("%016x", xxhash.Sum64String(v.Text)); got != v.XXH64 {
			t.Errorf("XXH64(%q) = %s, want %s", v.Text, got, v.XXH64)
		}
	}
}

// e13
func TestSaltAndIDDoNotRunTogether(t *testing.T) {
	t.Parallel()
	differ := 0
	for i := range 100 {
		if rest := strconv.Itoa(i); Bucket("p1", "0abc"+rest) != Bucket("p10", "abc"+rest) {
			differ++
		}
	}
	if differ < 98 { // each pair may meet in one bucket by chance, 1 in 10,000
		t.Errorf(`salt "p1" with "0abc…" and salt "p10" with "abc…" share %d of 100 buckets`, 100-differ)
	}
}

const million = 1_000_000

// families are the kinds of id that apps send, a million of each.
func families() map[string]func(i int) string {
	random := rand.New(rand.NewPCG(14, 14))
	return map[string]func(i int) string{
		"sequential": func(i int) string { return fmt.Sprintf("u%07d", i+1) },
		"phone":      func(i int) string { return fmt.Sprintf("138%08d", i*97%100_000_000) },
		"uuid": func(int) string {
			a, b := random.Uint64(), random.Uint64()
			return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&(1<<48-1))
		},
		"imei": func(i int) string { return imei(86_012_304_000_000 + i) },
	}
}

// imei appends the Luhn digit to 14 digits.
func imei(number int) string {
	digits := strconv.Itoa(number)
	sum := 0
	for i, c := range digits {
		d := int(c - '0')
		if i%2 == 1 {
			d = d*2/10 + d*2%10
		}
		sum += d
	}
	return digits + strconv.Itoa((10-sum%10)%10)
}

// e14: chi-square over 10,000 buckets has mean 9,999 and standard deviation
// 141.4; 566 is four of them.
func TestBucketsAreEven(t *testing.T) {
	t.Parallel()
	for family, id := range families() {
		t.Run(family, func(t *testing.T) {
			var counts [Whole]float64
			for i := range million {
				counts[Bucket("mobile/gray", id(i))]++
			}
			const expected = float64(million) / Whole
			chi := 0.0
			for _, n := range counts {
				chi += (n - expected) * (n - expected) / expected
			}
			if chi < 9_999-566 || chi > 9_999+566 {
				t.Errorf("chi-square = %.0f, want 9,999 ± 566", chi)
			}
			t.Logf("chi-square = %.0f", chi)
		})
	}
}

func BenchmarkBucket(b *testing.B) {
	s := newSalt("mobile/gray-10-2")
	measure(b, func(int) { s.bucket("6f9619ff-8b86-4d01-b42d-00cf4fc964ff") })
}

func TestBucketDoesNotAllocate(t *testing.T) {
	s := newSalt("mobile/gray")
	v6 := netip.MustParseAddr("2001:db8:1:2ff::1")
	if n := testing.AllocsPerRun(100, func() {
		Bucket("mobile/gray", "d-1001")
		s.bucketOfPrefix(v6)
	}); n != 0 {
		t.Errorf("%.0f allocations, want 0", n)
	}
}

func TestPrefixStandsInForAnAbsentID(t *testing.T) {
	t.Parallel()
	s := newSalt("mobile/otherwise")
	for _, row := range []struct{ addr, text string }{
		{"203.0.113.77", "203.0.113.0/24"},
		{"::ffff:203.0.113.9", "203.0.113.0/24"},
		{"2001:db8:1:2ff::1", "2001:db8:1:200::/56"},
		{"fe80::1%eth0", "fe80::/56"},
	} {
		if got, want := s.bucketOfPrefix(plainAddr(netip.MustParseAddr(row.addr))), s.bucket(row.text); got != want {
			t.Errorf("%s: bucket %d, want %d, that of %q", row.addr, got, want, row.text)
		}
	}
	if got, want := s.bucketOfPrefix(netip.Addr{}), s.bucket(""); got != want {
		t.Errorf("no address: bucket %d, want %d, that of the empty id", got, want)
	}
}

func TestTTLIsSixtyToEightyPercentByTheID(t *testing.T) {
	t.Parallel()
	const left = 30 * time.Minute
	low, high := left, time.Duration(0)
	for i := range 10_000 {
		id := strconv.Itoa(i)
		ttl := TTL(left, id)
		if ttl != TTL(left, id) {
			t.Fatalf("%s: two answers", id)
		}
		low, high = min(low, ttl), max(high, ttl)
	}
	if low != 18*time.Minute || high != 24*time.Minute-time.Second {
		t.Errorf("from %s to %s, want 18m0s to 23m59s", low, high)
	}
	if got := TTL(0, "a"); got != time.Second {
		t.Errorf("TTL(0) = %s, want 1s", got)
	}
	if got := TTL(12*time.Hour, "a"); got < 12*time.Hour*6/10 || got > 12*time.Hour*8/10 {
		t.Errorf("TTL(12h) = %s", got)
	}
}
