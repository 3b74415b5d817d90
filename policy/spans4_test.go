package policy

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gaissmai/bart"
)

// Nested prefixes of every length, asked for at both ends of each and beside them.
func TestSpansAgreeWithTheTrie(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 4))
	for count := range 200 {
		table := new(bart.Table[uint32])
		asked := []netip.Addr{netip.AddrFrom4([4]byte{}), netip.AddrFrom4([4]byte{255, 255, 255, 255})}
		for range count {
			// Few distinct bytes, so that prefixes nest and adjoin.
			b := func() byte { return [...]byte{0, 1, 127, 128, 254, 255}[random.IntN(6)] }
			prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{b(), b(), b(), b()}), random.IntN(33)).Masked()
			table.Insert(prefix, uint32(random.IntN(3)))
			first := prefix.Addr()
			last := address4(first) | uint32(uint64(1)<<(32-prefix.Bits())-1)
			end := netip.AddrFrom4([4]byte{byte(last >> 24), byte(last >> 16), byte(last >> 8), byte(last)})
			for _, addr := range []netip.Addr{first, first.Prev(), end, end.Next()} {
				if addr.IsValid() {
					asked = append(asked, addr)
				}
			}
		}
		spans := newSpans4(table)
		for _, addr := range asked {
			want, found := table.Lookup(addr)
			if got, ok := spans.label(addr); ok != found || ok && got != want {
				t.Fatalf("%s among %d prefixes: label %d %v, want %d %v", addr, table.Size(), got, ok, want, found)
			}
		}
	}
}
