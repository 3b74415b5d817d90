package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/gaissmai/bart"
)

// Nested prefixes of every length and both families, in any order, asked for at
// both ends of each and beside them.
func TestPrefixesAgreeWithATrie(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 4))
	// Few distinct bytes, so that prefixes nest and adjoin.
	some := func(b []byte) {
		for i := range b {
			b[i] = [...]byte{0, 1, 127, 128, 254, 255}[random.IntN(6)]
		}
	}
	for count := 1; count < 200; count++ {
		trie := new(bart.Table[string])
		var text strings.Builder
		var asked []netip.Addr
		for range count {
			addr, length := netip.Addr{}, 0
			if random.IntN(2) == 0 {
				var b [4]byte
				some(b[:])
				addr, length = netip.AddrFrom4(b), random.IntN(33)
			} else {
				var b [16]byte
				some(b[random.IntN(14):])
				addr, length = netip.AddrFrom16(b), random.IntN(129)
			}
			prefix := netip.PrefixFrom(addr, length).Masked()
			label := fmt.Sprint("label-", random.IntN(3))
			if _, known := trie.Get(prefix); known || prefix.Addr().Is4In6() {
				continue
			}
			trie.Insert(prefix, label)
			fmt.Fprintf(&text, "%s,%s\n", prefix, label)
			end := lastOf(prefix)
			for _, addr := range []netip.Addr{prefix.Addr(), prefix.Addr().Prev(), end, end.Next(), addr} {
				if addr.IsValid() && !addr.Is4In6() {
					asked = append(asked, addr)
				}
			}
		}
		if trie.Size() == 0 {
			continue
		}
		p := parsePrefixes(t, text.String())
		if p.Len() != trie.Size() {
			t.Fatalf("%d prefixes, want %d", p.Len(), trie.Size())
		}
		for _, addr := range asked {
			want, label, found := trie.LookupPrefixLPM(netip.PrefixFrom(addr, addr.BitLen()))
			if got, gotLabel, ok := p.Match(addr); ok != found || got != want || gotLabel != label {
				t.Fatalf("%s in\n%s%s %q %v, want %s %q %v", addr, text.String(), got, gotLabel, ok, want, label, found)
			}
			if got, ok := p.Lookup(addr); ok != found || got != label {
				t.Fatalf("%s: label %q %v, want %q %v", addr, got, ok, label, found)
			}
		}
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// Blocks fill, and the last one is cut.
func TestManyPrefixesAreFoundInAnyOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 5))
	const n = 3*blockSize + 5
	var text strings.Builder
	for _, i := range random.Perm(n) {
		fmt.Fprintf(&text, "10.%d.%d.0/24,four-%d\n2001:db8:%x::/48,six-%d\n", i>>8, i&255, i, i, i)
	}
	p := parsePrefixes(t, text.String())
	for i := range n {
		if got, _ := p.Lookup(netip.MustParseAddr(fmt.Sprintf("10.%d.%d.7", i>>8, i&255))); got != fmt.Sprint("four-", i) {
			t.Fatalf("IPv4 prefix %d: %q", i, got)
		}
		if got, _ := p.Lookup(netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::7", i))); got != fmt.Sprint("six-", i) {
			t.Fatalf("IPv6 prefix %d: %q", i, got)
		}
	}
}
