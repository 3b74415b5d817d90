package policy

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"dispatch.example/dispatch/internal/fault"
)

func parsePrefixes(tb testing.TB, csv string) *Prefixes {
	tb.Helper()
	p, err := ParsePrefixes(strings.NewReader(csv))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// e43 and its kind
func TestMostSpecificPrefixWins(t *testing.T) {
	t.Parallel()
	p := parsePrefixes(t, "\ufeffprefix,label\r\n"+
		"# from the registry\n\n"+
		"172.16.0.0/12,office\n"+
		"172.23.0.0/16 , \"branch, east\"\n"+
		"172.23.0.7,desk\n"+
		"2001:db8::/32,v6\n"+
		"::ffff:198.51.100.0/120,mapped\n"+
		"172.16.0.0/12,office\n")
	if p.Len() != 5 {
		t.Errorf("Len() = %d, want 5", p.Len())
	}
	for _, row := range []struct{ addr, label, prefix string }{
		{"172.16.0.1", "office", "172.16.0.0/12"},
		{"::ffff:172.23.0.8", "branch, east", "172.23.0.0/16"},
		{"172.23.0.7", "desk", "172.23.0.7/32"},
		{"2001:0DB8:0:0::1", "v6", "2001:db8::/32"},
		{"2001:db8::1%eth0", "v6", "2001:db8::/32"},
		{"198.51.100.200", "mapped", "198.51.100.0/24"},
		{"fe80::1%eth0", "", ""},
		{"192.0.2.1", "", ""},
	} {
		addr := netip.MustParseAddr(row.addr)
		if label, ok := p.Lookup(addr); label != row.label || ok != (row.label != "") {
			t.Errorf("Lookup(%s) = %q, %v, want %q", row.addr, label, ok, row.label)
		}
		if prefix, label, ok := p.Match(addr); ok != (row.label != "") || label != row.label || ok && prefix.String() != row.prefix {
			t.Errorf("Match(%s) = %s %q, want %s %q", row.addr, prefix, label, row.prefix, row.label)
		}
	}
	if _, ok := p.Lookup(netip.Addr{}); ok {
		t.Error("no address has a label")
	}
	if _, _, ok := p.Match(netip.Addr{}); ok {
		t.Error("no address has a prefix")
	}
}

func TestEveryBadLineIsListedWithItsNumber(t *testing.T) {
	t.Parallel()
	_, err := ParsePrefixes(strings.NewReader("10.0.0.0/8,a\n" +
		"10.1.2.0/8,b\n" +
		"10.0.0.0/8,c\n" +
		"nonsense,d\n" +
		"10.0.0.0/33,e\n" +
		"11.0.0.0/8,\n" +
		"12.0.0.0/8\n" +
		"13.0.0.0/8,f,g\n" +
		"14.0.0.0/8,\"h\n15.0.0.0/8,i\"x\n" +
		"fe80::1%eth0,j\n" +
		"::ffff:0:0/90,k\n"))
	problems := problemsOf(t, err)
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
	}
	if got, want := fmt.Sprint(lines), "[2 3 4 5 6 7 8 10 11 12]"; got != want {
		t.Errorf("bad lines %s, want %s\n%v", got, want, err)
	}
	for i, want := range []string{"write 10.0.0.0/8", `"c" here and "a" before`} {
		if !strings.Contains(problems[i].Detail, want) {
			t.Errorf("line %d: %q does not say %q", problems[i].Line, problems[i].Detail, want)
		}
	}
}

func TestAnAddressTableWithoutPrefixesIsRefused(t *testing.T) {
	t.Parallel()
	for _, csv := range []string{"", "\n\n", "prefix,label\n", "# nothing\n"} {
		if _, err := ParsePrefixes(strings.NewReader(csv)); fault.CodeOf(err) != "bad_table" {
			t.Errorf("%q: %v, want bad_table", csv, err)
		}
	}
	broken := errors.New("broken pipe")
	if _, err := ParsePrefixes(io.MultiReader(strings.NewReader("10.0.0.0/8,a\n"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("a failing reader: %v", err)
	}
}

func TestProblemsOfATableAreBounded(t *testing.T) {
	t.Parallel()
	_, err := ParsePrefixes(strings.NewReader(strings.Repeat("bad\n", maxBadLines+5)))
	problems := problemsOf(t, err)
	if len(problems) != maxBadLines+1 || problems[maxBadLines].Detail != "and 5 more bad lines" {
		t.Errorf("%d problems, the last %q", len(problems), problems[len(problems)-1].Detail)
	}
}

func problemsOf(tb testing.TB, err error) []fault.Problem {
	tb.Helper()
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Kind != fault.Invalid {
		tb.Fatalf("error %v, want an invalid one with problems", err)
	}
	return e.Problems
}

func FuzzParsePrefixes(f *testing.F) {
	f.Add("10.0.0.0/8,a\n::ffff:1.2.3.4,b\n", "1.2.3.4")
	f.Add("\ufeffprefix,label\n\"x\n", "fe80::1%eth0")
	f.Add("::/0,v6\n0.0.0.0/0,v4\n", "::ffff:0.0.0.1")
	f.Fuzz(func(t *testing.T, csv, addr string) {
		p, err := ParsePrefixes(strings.NewReader(csv))
		if err != nil {
			return
		}
		a, _ := netip.ParseAddr(addr)
		label, ok := p.Lookup(a)
		prefix, again, found := p.Match(a)
		if ok != found || label != again || ok && !prefix.Contains(plainAddr(a)) {
			t.Errorf("%s: Lookup %q %v, Match %s %q %v", addr, label, ok, prefix, again, found)
		}
	})
}

// randomPrefixes is a table of n distinct prefixes, mostly IPv4 of /16 to /24 as
// real ones are, and addresses of which most lie inside.
func randomPrefixes(n int) (csv string, addrs []netip.Addr) {
	random := rand.New(rand.NewPCG(43, 43))
	var b strings.Builder
	seen := map[netip.Prefix]bool{}
	for len(seen) < n {
		var prefix netip.Prefix
		if len(seen)%5 == 4 {
			addr := netip.AddrFrom16([16]byte{0x24, byte(random.IntN(16)), byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())})
			prefix = netip.PrefixFrom(addr, 29+random.IntN(20)).Masked()
		} else {
			addr := netip.AddrFrom4([4]byte{byte(1 + random.IntN(223)), byte(random.Uint32()), byte(random.Uint32()), 0})
			prefix = netip.PrefixFrom(addr, 16+random.IntN(9)).Masked()
		}
		if seen[prefix] {
			continue
		}
		seen[prefix] = true
		fmt.Fprintf(&b, "%s,%s\n", prefix, [...]string{"sh", "hf", "gz", "bj"}[random.IntN(4)])
		addrs = append(addrs, prefix.Addr().Next())
	}
	random.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return b.String(), addrs
}

func BenchmarkPrefixes(b *testing.B) {
	csv, addrs := randomPrefixes(500_000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := parsePrefixes(b, csv)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(csv)
	bytes := float64(after.HeapAlloc) - float64(before.HeapAlloc)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, ok := p.Lookup(addrs[i]); !ok {
			b.Fatal("an address of the table has no label")
		}
		if i++; i == len(addrs) {
			i = 0
		}
	}
	b.ReportMetric(bytes/float64(p.Len()), "B/prefix")
	b.ReportMetric(bytes/(1<<20), "MiB")
}
