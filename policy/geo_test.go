package policy

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// writeDatabase writes a small MaxMind database; records are by network.
func writeDatabase(tb testing.TB, kind string, records map[string]mmdbtype.Map) string {
	tb.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: kind, IncludeReservedNetworks: true})
	if err != nil {
		tb.Fatal(err)
	}
	for network, record := range records {
		_, parsed, err := net.ParseCIDR(network)
		if err != nil {
			tb.Fatal(err)
		}
		if err := tree.Insert(parsed, record); err != nil {
			tb.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(tb.TempDir(), kind+".mmdb"))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := tree.WriteTo(file); err != nil {
		tb.Fatal(err)
	}
	if err := file.Close(); err != nil {
		tb.Fatal(err)
	}
	return file.Name()
}

func cityOf(country string, subdivisions ...string) mmdbtype.Map {
	parts := mmdbtype.Slice{}
	for _, s := range subdivisions {
		parts = append(parts, mmdbtype.Map{"iso_code": mmdbtype.String(s), "names": mmdbtype.Map{"en": mmdbtype.String("name of " + s)}})
	}
	record := mmdbtype.Map{
		"city":    mmdbtype.Map{"names": mmdbtype.Map{"en": mmdbtype.String("Somewhere"), "zh-CN": mmdbtype.String("某处")}},
		"country": mmdbtype.Map{"iso_code": mmdbtype.String(country), "names": mmdbtype.Map{"en": mmdbtype.String("name")}},
	}
	if len(parts) > 0 {
		record["subdivisions"] = parts
	}
	return record
}

func testGeo(tb testing.TB) *Geo {
	tb.Helper()
	city := writeDatabase(tb, "city", map[string]mmdbtype.Map{
		"203.0.113.0/24":  cityOf("CN", "SH"),
		"198.51.100.0/24": cityOf("CN", "AH", "341"),
		"192.0.2.0/24":    cityOf("DE", "SH"),
		"2001:db8::/32":   cityOf("CN", "JS"),
		"100.64.0.0/16":   cityOf("SG"),
		"100.65.0.0/16":   {"country": mmdbtype.String("not a map")},
	})
	asn := writeDatabase(tb, "asn", map[string]mmdbtype.Map{
		"203.0.113.0/24": {"autonomous_system_number": mmdbtype.Uint32(4812), "autonomous_system_organization": mmdbtype.String("CT")},
		"100.65.0.0/16":  {"autonomous_system_number": mmdbtype.String("4812")},
	})
	g, err := OpenGeo(city, asn)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func TestGeoReadsPlacesAndNetworks(t *testing.T) {
	t.Parallel()
	g := testGeo(t)
	for _, row := range []struct {
		addr string
		want Place
		asn  uint32
	}{
		{"203.0.113.9", Place{"CN", "SH"}, 4812},
		{"::ffff:203.0.113.9", Place{"CN", "SH"}, 4812},
		{"198.51.100.1", Place{"CN", "AH"}, 0},
		{"2001:db8::1%eth0", Place{"CN", "JS"}, 0},
		{"100.64.0.1", Place{Country: "SG"}, 0}, // after a record with subdivisions, none is left over
		{"100.65.0.1", Place{}, 0},              // records of another shape
		{"8.8.8.8", Place{}, 0},
	} {
		addr := netip.MustParseAddr(row.addr)
		if got := g.Place(addr); got != row.want {
			t.Errorf("Place(%s) = %v, want %v", row.addr, got, row.want)
		}
		if got := g.ASN(addr); got != row.asn {
			t.Errorf("ASN(%s) = %d, want %d", row.addr, got, row.asn)
		}
	}
	if got := g.Place(netip.Addr{}); got != (Place{}) {
		t.Errorf("no address is in %v", got)
	}
	if d := g.Digests(); len(d.City) != 64 || len(d.ASN) != 64 || d.City == d.ASN {
		t.Errorf("digests %+v", d)
	}
}

func TestGeoWithoutDatabases(t *testing.T) {
	t.Parallel()
	g, err := OpenGeo("", "")
	if g != nil || err != nil {
		t.Fatalf("OpenGeo without files = %v, %v", g, err)
	}
	addr := netip.MustParseAddr("203.0.113.9")
	if g.Place(addr) != (Place{}) || g.ASN(addr) != 0 || g.Digests() != (GeoDigests{}) {
		t.Error("a nil Geo knows something")
	}
	if _, err := OpenGeo(filepath.Join(t.TempDir(), "missing.mmdb"), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	bad := filepath.Join(t.TempDir(), "bad.mmdb")
	if err := os.WriteFile(bad, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenGeo("", bad); err == nil {
		t.Error("a file that is no database opens")
	}
}

func BenchmarkGeo(b *testing.B) {
	g := testGeo(b)
	addr := netip.MustParseAddr("203.0.113.9")
	b.ReportAllocs()
	for b.Loop() {
		g.Place(addr)
		g.ASN(addr)
	}
}
