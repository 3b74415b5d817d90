package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
)

func all(key string) Policy { return Policy{Key: key, MatchAll: true, Then: toRegion("hf")} }

func onIOS(key string, then Action) Policy {
	return Policy{Key: key, When: When{Platform: Strings{"ios"}}, Then: then}
}

func salted(p Policy, salt string) Policy {
	p.Salt = salt
	return p
}

func when(w When) Rules { return rules(Policy{Key: "p", When: w, Then: toRegion("hf")}) }

func then(a Action) Rules { return rules(Policy{Key: "p", MatchAll: true, Then: a}) }

func otherwise(a Action) Rules {
	r := rules()
	r.Otherwise = a
	return r
}

func origins(o ...Origin) Rules {
	r := rules()
	r.Origins = o
	return r
}

func with(r Rules, change func(*Rules)) Rules {
	change(&r)
	return r
}

// Each row has one mistake: its path, and what the problem says about it.
func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path, says string
		rules            Rules
	}{
		{"unknown region", "policies[0].then.region", `"moon" is unknown`, then(toRegion("moon"))},
		{"unknown region of a share", "policies[0].then.share.region", `"moon" is unknown`, then(share("moon", 10))},
		{"unknown region of a split", "otherwise.split[1].region", `"moon" is unknown`, otherwise(split("sh", 1, "moon", 9999))},
		{"unknown list", "policies[0].when.in_list", `"ghosts" is unknown`, when(When{InList: Strings{"ghosts"}})},
		{"one unknown list of two", "policies[0].when.in_list[1]", `"ghosts" is unknown`, when(When{InList: Strings{"staff", "ghosts"}})},
		{"unknown table", "origins[0].table", `"moon" is unknown`, origins(Origin{Table: "moon"})},
		{"unknown region of an origin", "origins[0].geoip.subdivision.SH", `"moon" is unknown`, origins(Origin{GeoIP: &GeoIP{Subdivision: map[string]string{"SH": "moon"}}})},
		{"no origin form", "origins[0]", "0 are given", origins(Origin{})},
		{"two origin forms", "origins[0]", "2 are given", origins(Origin{Hint: true, Table: "cn"})},
		{"an origin that maps nothing", "origins[0].geoip", "maps nothing", origins(Origin{GeoIP: &GeoIP{}})},
		{"a country that is none", "origins[0].geoip.country.China", "ISO 3166", origins(Origin{GeoIP: &GeoIP{Country: map[string]string{"China": "sh"}}})},
		{"a code in two cases", "origins[0].geoip.country.cn", "already mapped", origins(Origin{GeoIP: &GeoIP{Country: map[string]string{"CN": "sh", "cn": "hf"}}})},
		{"e16: a split of 9,999", "otherwise.split", "add to 9999, not 10000", otherwise(split("sh", 5000, "hf", 4999))},
		{"e16: a split of 10,001", "otherwise.split", "add to 10001, not 10000", otherwise(split("sh", 5000, "hf", 5001))},
		{"a split of nothing", "otherwise.split", "add to 0", otherwise(Action{Split: []Share{}})},
		{"e16: a share of -1", "policies[0].then.share.of", "-1 is not between", then(share("hf", -1))},
		{"e16: a share of 10,001", "policies[0].then.share.of", "10001 is not between", then(share("hf", 10001))},
		{"e17: a share that says nothing", "policies[0].then.share", "neither of nor buckets", then(Action{Share: &Share{Region: "hf"}})},
		{"a share that says both", "policies[0].then.share", "both of and buckets", then(Action{Share: &Share{Region: "hf", Of: ptr(1), Buckets: [][2]int{{0, 1}}}})},
		{"a reversed interval", "policies[0].then.share.buckets[0]", "[9, 3] is no interval", then(shareOf("hf", [2]int{9, 3}))},
		{"an interval past the end", "policies[0].then.share.buckets[0]", "[0, 10000] is no interval", then(shareOf("hf", [2]int{0, 10000}))},
		{"overlapping intervals", "policies[0].then", "[0, 10] and [10, 20] overlap", then(shareOf("hf", [2]int{10, 20}, [2]int{0, 10}))},
		{"a split in two forms", "otherwise.split", "1 of 2 parts say of", otherwise(Action{Split: []Share{{Region: "sh", Of: ptr(5000)}, {Region: "hf", Buckets: [][2]int{{5000, 9999}}}}})},
		{"no action", "policies[0].then", "0 are given", then(Action{})},
		{"two actions", "policies[0].then", "2 are given", then(Action{Region: "sh", Split: split("sh", 10000).Split})},
		{"a share at the end", "otherwise.share", "nothing comes after", otherwise(share("hf", 10000))},
		{"no end", "otherwise", "0 are given", otherwise(Action{})},
		{"e34: no conditions", "policies[0]", "match_all: true", rules(Policy{Key: "p", Then: toRegion("hf")})},
		{"match_all with conditions", "policies[0].match_all", "without conditions", rules(Policy{Key: "p", MatchAll: true, When: When{HasUser: ptr(true)}, Then: toRegion("hf")})},
		{"an empty list of lists", "policies[0].when.in_list", "is empty", when(When{InList: Strings{}})},
		{"an empty platform", "policies[0].when.platform", "is empty", when(When{Platform: Strings{}})},
		{"e33: a blank platform", "policies[0].when.platform", "is blank", when(When{Platform: Strings{" "}})},
		{"spaces around a value", "policies[0].when.channel[1]", "spaces around", when(When{Channel: Strings{"a", "b "}})},
		{"an empty attr", "policies[0].when.attr", "is empty", when(When{Attr: map[string]Strings{"tier": {}}})},
		{"an attr without a name", "policies[0].when.attr", "needs a name", when(When{Attr: map[string]Strings{"": {"x"}}})},
		{"no asn", "policies[0].when.asn", "is empty", when(When{ASN: []uint32{}})},
		{"asn 0", "policies[0].when.asn", "0 is no network", when(When{ASN: []uint32{0}})},
		{"not of nothing", "policies[0].when.not", "holds no conditions", when(When{Not: &When{}})},
		{"not of not", "policies[0].when.not.not", "one level too deep", when(When{Not: &When{HasUser: ptr(true), Not: &When{HasDevice: ptr(true)}}})},
		{"a bad range", "policies[0].when.app_version", `cannot read "10.x"`, when(When{AppVersion: "10.x"})},
		{"an empty range", "policies[0].when.app_version", `no version is in ">=11, <10"`, when(When{AppVersion: ">=11, <10"})},
		{"an empty range under not", "policies[0].when.not.app_version", "no version is in", when(When{Not: &When{AppVersion: ">=11, <11"}})},
		{"one instant", "policies[0].when.between", "two instants", when(When{Between: []time.Time{noon}})},
		{"a reversed time", "policies[0].when.between", "before it begins", when(When{Between: []time.Time{noon, noon}})},
		{"a bad cidr", "policies[0].when.cidr[1]", "is not a prefix", when(When{CIDR: Strings{"10.0.0.0/8", "10.0.0.0/8/9"}})},
		{"host bits", "policies[0].when.cidr", "write 10.0.0.0/8", when(When{CIDR: Strings{"10.1.0.0/8"}})},
		{"a bad country", "policies[0].when.country", "ISO 3166-1", when(When{Country: Strings{"CHN"}})},
		{"a bad subdivision", "policies[0].when.subdivision", "ISO 3166-2", when(When{Subdivision: Strings{"Shanghai"}})},
		{"an origin that nothing gives", "policies[0].when.origin", `no origin gives "moon"`, with(when(When{Origin: Strings{"moon"}}), func(r *Rules) { r.Origins = []Origin{{Hint: true}} })},
		{"an origin without origins", "policies[0].when.origin", "no origins", when(When{Origin: Strings{"sh"}})},
		{"platform required and refused", "policies[0].when", "platform ios and not platform ios, android", when(When{Platform: Strings{"iOS"}, Not: &When{Platform: Strings{"ios", "android"}}})},
		{"list required and refused", "policies[0].when", "can never match", when(When{InList: Strings{"staff"}, Not: &When{InList: Strings{"staff"}}})},
		{"a device list without devices", "policies[0].when", "has_device false and in_list staff", when(When{InList: Strings{"staff"}, HasDevice: ptr(false)})},
		{"e36: two policies of one key", "policies[1].key", `"p" looks like "p" at policies[0]`, rules(onIOS("p", toRegion("hf")), all("p"))},
		{"e36: look-alike keys", "policies[1].key", `looks like "gray-1" at policies[0]`, rules(onIOS("gray-1", toRegion("hf")), all("gray_1"))},
		{"a key in capitals", "policies[0].key", "'G'", rules(all("Gray"))},
		{"the key of the last step", "policies[0].key", "the name of the last step", rules(all("otherwise"))},
		{"shadowed by match_all", "policies[1]", `policy "first" at policies[0] takes everything first`, rules(all("first"), onIOS("second", toRegion("gz")))},
		{"shadowed by a whole share", "policies[1]", "takes everything first", rules(gray(10000), onIOS("second", toRegion("gz")))},
		{"shadowed by equal conditions", "policies[1]", "takes everything first", rules(onIOS("a", toRegion("hf")), onIOS("b", toRegion("gz")))},
		{"a share over a taken one", "policies[1].then.share", "[0, 299] overlap [0, 499]", rules(salted(gray(500), "s"), salted(onIOS("b", share("gz", 300)), "s"))},
		{"an unknown bucket_by", "bucket_by", `"cookie" is unknown`, with(rules(), func(r *Rules) { r.BucketBy = "cookie" })},
		{"an unknown bucket_by of a policy", "policies[0].bucket_by", `"ip" is unknown`, with(then(share("hf", 1)), func(r *Rules) { r.Policies[0].BucketBy = "ip" })},
		{"a salt with a zero byte", "policies[0].salt", "zero byte", rules(salted(gray(1), "a\x00b"))},
		{"a salt that is not UTF-8", "policies[0].salt", "UTF-8", rules(salted(gray(1), "a\xff"))},
		{"an empty stored salt", "otherwise", "is not 1 to", with(rules(), func(r *Rules) { r.Salts = map[string]string{"otherwise": ""} })},
		{"e1: the salt of the last step", "otherwise", `"mobile/otherwise" is already that of policies[0].salt`, rules(salted(gray(1), "mobile/otherwise"))},
		{"e1: the salt of an endpoint choice", "regions[0], endpoint salt", "already that of policies[0].salt", rules(salted(gray(1), "endpoint/mobile/sh"))},
		{"two regions of one key", "regions[1].key", "looks like", with(rules(), func(r *Rules) { r.Regions = []domain.Region{region("sh", 1), region("sh", 1)} })},
		{"failover to itself", "regions[0].failover[0]", "fails over to itself", with(rules(), func(r *Rules) { r.Regions[0].Failover = []string{"sh"} })},
		{"an active region without an endpoint", "regions[2].endpoints", "active", with(rules(), func(r *Rules) { r.Regions[2].Endpoints = nil })},
	} {
		t.Run(row.name, func(t *testing.T) {
			env := Env{Lists: listIndex(t, map[string][]string{"device/staff": {"d-1"}}),
				Tables: map[string]*Prefixes{"cn": parsePrefixes(t, "10.0.0.0/8,sh\n")}}
			_, err := Compile(row.rules, env)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, p := range problemsOf(t, err) {
				if p.Path == row.path && strings.Contains(p.Detail, row.says) {
					return
				}
			}
			t.Errorf("no problem at %s says %q:\n%v", row.path, row.says, err)
		})
	}
}

// e51: one bad policy of many is refused with all that is wrong, in one go.
func TestCompileListsEveryMistakeAtOnce(t *testing.T) {
	t.Parallel()
	r := rules(all("Bad Key"), onIOS("b", share("moon", 20_000)))
	r.Otherwise = split("sh", 1)
	r.BucketBy = "cookie"
	_, err := Compile(r, Env{})
	var paths []string
	for _, p := range problemsOf(t, err) {
		paths = append(paths, p.Path)
	}
	for _, want := range []string{"bucket_by", "policies[0].key", "policies[1].then.share.region", "policies[1].then.share.of", "policies[1]", "otherwise.split"} {
		if !slices.Contains(paths, want) {
			t.Errorf("no problem at %s, only at %v", want, paths)
		}
	}
}

func TestCompileAccepts(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Rules{
		"e60: weights 0 and 10,000 in a split":   otherwise(split("sh", 0, "hf", 10000)),
		"a split by intervals":                   otherwise(Action{Split: []Share{{Region: "sh", Buckets: [][2]int{{0, 99}, {200, 9999}}}, {Region: "hf", Buckets: [][2]int{{100, 199}}}}}),
		"a share of nothing before another":      rules(salted(gray(0), "s"), salted(onIOS("b", share("gz", 300)), "s")),
		"one salt and buckets that are free":     rules(salted(gray(500), "s"), salted(onIOS("b", shareOf("gz", [2]int{500, 999})), "s")),
		"one salt on platforms that are apart":   rules(salted(onIOS("a", share("hf", 500)), "s"), salted(Policy{Key: "b", When: When{Platform: Strings{"android"}}, Then: share("hf", 500)}, "s")),
		"one salt in versions that are apart":    rules(salted(Policy{Key: "a", When: When{AppVersion: "<10"}, Then: share("hf", 500)}, "s"), salted(Policy{Key: "b", When: When{AppVersion: ">=10"}, Then: share("gz", 500)}, "s")),
		"one salt in times that are apart":       rules(salted(Policy{Key: "a", When: When{Between: []time.Time{noon, noon.Add(1)}}, Then: share("hf", 500)}, "s"), salted(Policy{Key: "b", When: When{Between: []time.Time{noon.Add(1), noon.Add(2)}}, Then: share("gz", 500)}, "s")),
		"one salt by another id":                 rules(salted(gray(500), "s"), with(rules(salted(onIOS("b", share("gz", 300)), "s")), func(r *Rules) { r.Policies[0].BucketBy = ByUser }).Policies[0]),
		"a part of the platforms refused":        when(When{Platform: Strings{"ios", "android"}, Not: &When{Platform: Strings{"ios"}}}),
		"epochs and salts of policies that left": with(rules(), func(r *Rules) { r.Epochs = map[string]uint32{"gone": 2}; r.Salts = map[string]string{"gone": "x"} }),
	} {
		if _, err := Compile(r, Env{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSaltsAreStatedThenStoredThenDefault(t *testing.T) {
	t.Parallel()
	r := rules(salted(gray(1), "stated"), onIOS("stored", share("hf", 1)), onIOS("default", share("gz", 1)))
	r.Salts = map[string]string{"gray": "ignored", "stored": "old/name", "failover/sh": "f", "endpoint/hf": "e"}
	got := compile(t, r, Env{}).Salts()
	for key, want := range map[string]string{
		"gray": "stated", "stored": "old/name", "default": "mobile/default", "otherwise": "mobile/otherwise",
		"failover/sh": "f", "failover/hf": "failover/mobile/hf", "endpoint/sh": "endpoint/mobile/sh", "endpoint/hf": "e",
	} {
		if got[key] != want {
			t.Errorf("salt of %s = %q, want %q", key, got[key], want)
		}
	}
}
