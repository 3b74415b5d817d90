package policy

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/whitelist"
)

// conditionEnv knows everything that conditions may ask.
func conditionEnv(tb testing.TB) Env {
	return Env{
		Lists: listIndex(tb, map[string][]string{
			"device/staff": {"d-1", "d-2"}, "user/vip": {"u-1"}, "device/none": {},
		}),
		Tables:  map[string]*Prefixes{"cn": parsePrefixes(tb, "203.0.113.0/24,sh\n198.51.100.0/24,harbour\n")},
		Geo:     testGeo(tb),
		Replica: Replica{Region: "hf"},
	}
}

var tableOrigin = []Origin{{Table: "cn"}}

// Every condition, also under not: yes holds alone, no holds under not, and
// unknown, which is absent or unreadable, holds neither way.
func TestConditions(t *testing.T) {
	t.Parallel()
	env := conditionEnv(t)
	instants := []time.Time{noon, noon.Add(time.Hour)}
	for _, row := range []struct {
		name string
		when When
		req  Request
		want verdict
		note Notes
	}{
		{"list holds the device", When{InList: Strings{"staff"}}, Request{Device: "d-1"}, yes, 0},
		{"list does not hold it", When{InList: Strings{"staff"}}, Request{Device: "d-9", User: "d-1"}, no, 0},
		{"e33: an absent id is in no list", When{InList: Strings{"staff"}}, Request{User: "d-1"}, no, DeviceAbsent},
		{"an absent user is in no list", When{InList: Strings{"vip"}}, Request{Device: "u-1"}, no, UserAbsent},
		{"one of several lists", When{InList: Strings{"staff", "vip"}}, Request{Device: "d-9", User: "u-1"}, yes, 0},
		{"an empty list holds nobody", When{InList: Strings{"none"}}, Request{Device: "d-1"}, no, 0},
		{"platform ignores case", When{Platform: Strings{"iOS"}}, Request{Platform: "IOS"}, yes, 0},
		{"another platform", When{Platform: Strings{"ios", "harmony"}}, Request{Platform: "android"}, no, 0},
		{"no platform", When{Platform: Strings{"ios"}}, Request{}, unknown, FactAbsent},
		{"a very long platform", When{Platform: Strings{"ios"}}, Request{Platform: strings.Repeat("i", 1000)}, no, 0},
		{"channel", When{Channel: Strings{"huawei"}}, Request{Channel: "Huawei"}, yes, 0},
		{"folding is ASCII", When{Channel: Strings{"k"}}, Request{Channel: "\u212a"}, no, 0},
		{"no channel", When{Channel: Strings{"huawei"}}, Request{}, unknown, FactAbsent},
		{"carrier", When{Carrier: Strings{"CMCC", "CUCC"}}, Request{Carrier: "cucc"}, yes, 0},
		{"no carrier", When{Carrier: Strings{"cmcc"}}, Request{}, unknown, FactAbsent},
		{"locale takes _ for -", When{Locale: Strings{"zh-CN"}}, Request{Locale: "zh_cn"}, yes, 0},
		{"locale is a whole tag", When{Locale: Strings{"zh"}}, Request{Locale: "zh-CN"}, no, 0},
		{"channel keeps _ apart from -", When{Channel: Strings{"a-b"}}, Request{Channel: "a_b"}, no, 0},
		{"no locale", When{Locale: Strings{"zh"}}, Request{}, unknown, FactAbsent},
		{"version inside", When{AppVersion: ">=10.2, <11"}, Request{AppVersion: "v10.5"}, yes, 0},
		{"version outside", When{AppVersion: ">=10.2, <11"}, Request{AppVersion: "9.9.1"}, no, 0},
		{"e41: no version", When{AppVersion: ">=10.2"}, Request{}, unknown, BadVersion},
		{"e41: unreadable version", When{AppVersion: ">=10.2"}, Request{AppVersion: "9.x"}, unknown, BadVersion},
		{"e41: 200 bytes of version", When{AppVersion: ">=10.2"}, Request{AppVersion: strings.Repeat("9", 200)}, unknown, BadVersion},
		{"from is inside", When{Between: instants}, Request{Now: instants[0]}, yes, 0},
		{"to is outside", When{Between: instants}, Request{Now: instants[1]}, no, 0},
		{"before from", When{Between: instants}, Request{Now: instants[0].Add(-1)}, no, 0},
		{"region of the replica", When{RegionOfReplica: Strings{"sh", "hf"}}, Request{}, yes, 0},
		{"another replica", When{RegionOfReplica: Strings{"sh"}}, Request{}, no, 0},
		{"attr", When{Attr: map[string]Strings{"tier": {"gold"}}}, Request{Attrs: []Attr{{"tier", "gold"}}}, yes, 0},
		{"the first attr of a name counts", When{Attr: map[string]Strings{"tier": {"gold"}}}, Request{Attrs: []Attr{{"tier", "tin"}, {"tier", "gold"}}}, no, 0},
		{"attr keeps case", When{Attr: map[string]Strings{"tier": {"gold"}}}, Request{Attrs: []Attr{{"tier", "Gold"}}}, no, 0},
		{"no attr", When{Attr: map[string]Strings{"tier": {"gold"}}}, Request{Attrs: []Attr{{"TIER", "gold"}}}, unknown, FactAbsent},
		{"origin by table", When{Origin: Strings{"sh"}}, Request{Addr: addr("203.0.113.1")}, yes, 0},
		{"origin by a label that is no region", When{Origin: Strings{"harbour"}}, Request{Addr: addr("198.51.100.1")}, yes, 0},
		{"another origin", When{Origin: Strings{"hf"}}, Request{Addr: addr("203.0.113.1")}, no, 0},
		{"no origin", When{Origin: Strings{"sh"}}, Request{Addr: addr("8.8.8.8")}, unknown, OriginAbsent},
		{"e43: cidr of a mapped address", When{CIDR: Strings{"172.16.0.0/12"}}, Request{Addr: addr("::ffff:172.23.0.7")}, yes, 0},
		{"e43: cidr of IPv6", When{CIDR: Strings{"2001:db8::/32"}}, Request{Addr: addr("2001:0DB8:0:0::1")}, yes, 0},
		{"e43: an address with a zone", When{CIDR: Strings{"2001:db8::/32"}}, Request{Addr: addr("fe80::1%eth0")}, no, 0},
		{"cidr of one address", When{CIDR: Strings{"10.0.0.0/8", "192.0.2.7"}}, Request{Addr: addr("192.0.2.7")}, yes, 0},
		{"cidr without an address", When{CIDR: Strings{"0.0.0.0/0"}}, Request{}, unknown, AddrAbsent},
		{"country", When{Country: Strings{"cn"}}, Request{Addr: addr("203.0.113.1")}, yes, 0},
		{"another country", When{Country: Strings{"CN"}}, Request{Addr: addr("192.0.2.1")}, no, 0},
		{"an address that is nowhere", When{Country: Strings{"CN"}}, Request{Addr: addr("8.8.8.8")}, unknown, GeoAbsent},
		{"subdivision in any country", When{Subdivision: Strings{"SH"}}, Request{Addr: addr("192.0.2.1")}, yes, 0},
		{"subdivision of a country", When{Subdivision: Strings{"CN-SH"}}, Request{Addr: addr("192.0.2.1")}, no, 0},
		{"subdivision of its country", When{Subdivision: Strings{"cn-sh"}}, Request{Addr: addr("203.0.113.1")}, yes, 0},
		{"a country without subdivisions", When{Subdivision: Strings{"SH"}}, Request{Addr: addr("100.64.0.1")}, unknown, GeoAbsent},
		{"asn", When{ASN: []uint32{4134, 4812}}, Request{Addr: addr("203.0.113.1")}, yes, 0},
		{"another asn", When{ASN: []uint32{4134}}, Request{Addr: addr("203.0.113.1")}, no, 0},
		{"no asn", When{ASN: []uint32{4134}}, Request{Addr: addr("8.8.8.8")}, unknown, GeoAbsent},
		{"has a device", When{HasDevice: ptr(true)}, Request{Device: "d"}, yes, 0},
		{"has no device", When{HasDevice: ptr(true)}, Request{User: "u"}, no, 0},
		{"wants no device", When{HasDevice: ptr(false)}, Request{User: "u"}, yes, 0},
		{"has a user", When{HasUser: ptr(true)}, Request{User: "u"}, yes, 0},
		{"wants no user", When{HasUser: ptr(false)}, Request{User: "u"}, no, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.req.Now.IsZero() {
				row.req.Now = noon
			}
			for _, not := range []bool{false, true} {
				when, want := row.when, row.want == yes
				if not {
					when, want = When{Not: &row.when}, row.want == no
				}
				r := rules(Policy{Key: "p", When: when, Then: toRegion("gz")})
				r.Origins = tableOrigin
				d := compile(t, r, env).Decide(&row.req)
				if got := d.Reason == ByPolicy; got != want {
					t.Errorf("not %v: holds = %v, want %v", not, got, want)
				}
				// The last step's own choice of an endpoint may note the ids and address.
				noted := d.Notes &^ (DeviceAbsent | UserAbsent | AddrAbsent)
				if want := row.note &^ (DeviceAbsent | UserAbsent | AddrAbsent); noted != want || d.Notes&row.note != row.note {
					t.Errorf("not %v: notes %v, want %v", not, d.Notes.Strings(), row.note.Strings())
				}
			}
		})
	}
}

// e35: all conditions must hold; under not each must fail.
func TestAllConditionsMustHold(t *testing.T) {
	t.Parallel()
	table := compile(t, rules(
		Policy{Key: "both", When: When{Platform: Strings{"ios"}, AppVersion: ">=8"}, Then: toRegion("hf")},
		Policy{Key: "neither", When: When{Not: &When{Platform: Strings{"ios"}, Channel: Strings{"beta"}}}, Then: toRegion("gz")},
	), Env{})
	for _, row := range []struct {
		req  Request
		want string
	}{
		{Request{Platform: "ios", AppVersion: "8"}, "hf"},
		{Request{Platform: "ios"}, "sh"},
		{Request{Platform: "android", AppVersion: "8", Channel: "store"}, "gz"},
		{Request{Platform: "android", Channel: "beta"}, "sh"},
		{Request{Platform: "ios", Channel: "store"}, "sh"},
		{Request{Platform: "android"}, "sh"}, // no channel: unknown
	} {
		if got, _ := where(table, row.req); got != row.want {
			t.Errorf("%+v: %s, want %s", row.req, got, row.want)
		}
	}
}

// The first origin that answers counts. A label that the app cannot know is no answer.
func TestOriginsAnswerInOrder(t *testing.T) {
	t.Parallel()
	env := conditionEnv(t)
	geo := Origin{GeoIP: &GeoIP{Subdivision: map[string]string{"CN-SH": "sh", "SH": "gz", "AH": "hf"}, Country: map[string]string{"cn": "gz"}}}
	all := []Origin{{Hint: true}, {Table: "cn"}, geo, {Replica: true}}
	for _, row := range []struct {
		name    string
		origins []Origin
		req     Request
		want    string
	}{
		{"hint first", all, Request{Hint: "gz", Addr: addr("203.0.113.1")}, "gz"},
		{"a hint may be a label of a table", all, Request{Hint: "harbour"}, "harbour"},
		{"an unknown hint is no answer", all, Request{Hint: "moon", Addr: addr("203.0.113.1")}, "sh"},
		{"then the table", all, Request{Addr: addr("198.51.100.1")}, "harbour"},
		{"then the replica", all, Request{Addr: addr("8.8.8.8")}, "hf"},
		{"subdivision in its country", []Origin{geo}, Request{Addr: addr("203.0.113.1")}, "sh"},
		{"subdivision in another country", []Origin{geo}, Request{Addr: addr("192.0.2.1")}, "gz"},
		{"subdivision alone", []Origin{geo}, Request{Addr: addr("198.51.100.1")}, "hf"},
		{"country", []Origin{geo}, Request{Addr: addr("2001:db8::1")}, "gz"},
		{"nothing", []Origin{{Hint: true}, geo}, Request{Addr: addr("8.8.8.8")}, ""},
	} {
		r := rules()
		r.Origins = row.origins
		w := walker{t: compile(t, r, env), req: &row.req, addr: plainAddr(row.req.Addr)}
		if got := w.origin().label; got != row.want {
			t.Errorf("%s: origin %q, want %q", row.name, got, row.want)
		}
	}
}

// A replica without databases decides, notes and warns.
func TestGeoConditionsWithoutDatabases(t *testing.T) {
	t.Parallel()
	r := rules(
		Policy{Key: "cn", When: When{Country: Strings{"CN"}}, Then: toRegion("hf")},
		Policy{Key: "not-cn", When: When{Not: &When{Country: Strings{"CN"}}}, Then: toRegion("hf")},
		Policy{Key: "telecom", When: When{ASN: []uint32{4134}}, Then: toRegion("hf")},
	)
	r.Origins = []Origin{{GeoIP: &GeoIP{Country: map[string]string{"CN": "sh"}}}}
	table := compile(t, r, Env{})
	d := table.Decide(&Request{Now: noon, Addr: addr("203.0.113.1")})
	if d.Reason != Default || d.Notes&GeoAbsent == 0 {
		t.Errorf("%s, notes %v, want DEFAULT and geo_absent", d.Reason, d.Notes.Strings())
	}
	paths := map[string]bool{}
	for _, p := range table.Warnings() {
		paths[p.Path] = true
	}
	want := []string{"origins[0].geoip", "policies[0].when.country", "policies[1].when.not.country", "policies[2].when.asn"}
	if got := slices.Sorted(maps.Keys(paths)); !slices.Equal(got, want) {
		t.Errorf("warnings at %v, want %v", got, want)
	}
}

// e34: outside an empty list is everybody, which is allowed with a warning.
func TestNotInAnEmptyListWarns(t *testing.T) {
	t.Parallel()
	table := compile(t, rules(Policy{Key: "p", When: When{Not: &When{InList: Strings{"none"}}}, Then: toRegion("hf")}),
		Env{Lists: listIndex(t, map[string][]string{"device/none": {}})})
	if w := table.Warnings(); len(w) != 1 || w[0].Path != "policies[0].when.not.in_list" {
		t.Errorf("warnings %v", w)
	}
	if got, _ := where(table, Request{}); got != "hf" {
		t.Errorf("%s, want hf", got)
	}
}

func TestListsOfBothKindsAreApart(t *testing.T) {
	t.Parallel()
	index := listIndex(t, map[string][]string{"device/a": {"same"}, "user/b": {"other"}})
	if !index.Lookup(whitelist.Device, "same").Has(must(index.Number("a"))) || index.Lookup(whitelist.User, "same").Has(must(index.Number("b"))) {
		t.Error("the fixture does not hold what the tests rely on")
	}
	table := compile(t, rules(Policy{Key: "p", When: When{InList: Strings{"a"}}, Then: toRegion("hf")}), Env{Lists: index})
	if got, _ := where(table, Request{Device: "x", User: "same"}); got != "sh" {
		t.Error("a user id is in a list of devices")
	}
}

func must(n int, ok bool) int {
	if !ok {
		panic("no such list")
	}
	return n
}
