package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gaissmai/bart"
)

// empty says whether no condition is written, not even an empty one.
func (w When) empty() bool { return reflect.ValueOf(w).IsZero() }

// when compiles conditions into the order in which they are tried.
func (c *compiler) when(path string, w When) []cond {
	conds := c.conditions(path, w, false)
	if w.Not != nil {
		switch {
		case w.Not.empty():
			c.addf(path+".not", "holds no conditions")
		case w.Not.Not != nil:
			c.addf(path+".not.not", "goes one level too deep; write these conditions without not")
		}
		conds = append(conds, c.conditions(path+".not", *w.Not, true)...)
	}
	slices.SortStableFunc(conds, func(a, b cond) int { return int(a.kind) - int(b.kind) })
	return conds
}

func (c *compiler) conditions(path string, w When, not bool) []cond {
	var conds []cond
	add := func(k kind, written bool, values []string, check func(path, value string) string) *cond {
		if !written {
			return nil
		}
		at := path + "." + k.String()
		if len(values) == 0 {
			c.addf(at, "is empty; name at least one value or leave it out")
		}
		cd := cond{kind: k, not: not}
		for i, v := range values {
			cd.values = append(cd.values, check(element(at, i, len(values)), v))
		}
		conds = append(conds, cd)
		return &conds[len(conds)-1]
	}
	set := func(k kind, values Strings, check func(path, value string) string) *cond {
		return add(k, values != nil, values, check)
	}
	set(kindPlatform, w.Platform, c.word)
	set(kindChannel, w.Channel, c.word)
	set(kindCarrier, w.Carrier, c.word)
	set(kindLocale, w.Locale, c.locale)
	set(kindRegionOfReplica, w.RegionOfReplica, c.present)
	set(kindOrigin, w.Origin, c.label)
	set(kindCountry, w.Country, c.country)
	set(kindSubdivision, w.Subdivision, c.subdivision)
	for _, name := range slices.Sorted(maps.Keys(w.Attr)) {
		if name == "" {
			c.addf(path+".attr", "an attr needs a name")
		}
		if cd := add(kindAttr, true, w.Attr[name], c.present); cd != nil {
			cd.attr = name
		}
	}
	if cd := set(kindCIDR, w.CIDR, c.present); cd != nil {
		cd.nets = c.nets(path+".cidr", cd.values)
	}
	if cd := set(kindInList, w.InList, c.present); cd != nil {
		cd.lists = c.lists(path+".in_list", cd.values, not)
	}
	conds = append(conds, c.scalars(path, w, not)...)
	return conds
}

// element is the path of one value; a bare string is a list of one.
func element(path string, i, of int) string {
	if of == 1 {
		return path
	}
	return path + "[" + strconv.Itoa(i) + "]"
}

// scalars compiles the conditions that are no list of strings.
func (c *compiler) scalars(path string, w When, not bool) []cond {
	var conds []cond
	if w.HasDevice != nil {
		conds = append(conds, cond{kind: kindHasDevice, not: not, want: *w.HasDevice, values: []string{strconv.FormatBool(*w.HasDevice)}})
	}
	if w.HasUser != nil {
		conds = append(conds, cond{kind: kindHasUser, not: not, want: *w.HasUser, values: []string{strconv.FormatBool(*w.HasUser)}})
	}
	if w.AppVersion != "" {
		versions, err := ParseRange(w.AppVersion)
		if err != nil {
			c.add(path+".app_version", err)
		}
		conds = append(conds, cond{kind: kindAppVersion, not: not, versions: versions, values: []string{w.AppVersion}})
	}
	if w.Between != nil {
		conds = append(conds, c.between(path+".between", w.Between, not))
	}
	if w.ASN != nil {
		conds = append(conds, c.networks(path+".asn", w.ASN, not))
	}
	return conds
}

func (c *compiler) between(path string, instants []time.Time, not bool) cond {
	if len(instants) != 2 {
		c.addf(path, "needs two instants, from and to, got %d", len(instants))
		return cond{kind: kindBetween, not: not}
	}
	from, to := instants[0], instants[1]
	if !from.Before(to) {
		c.addf(path, "ends at %s, before it begins, so it never holds", to.Format(time.RFC3339))
	}
	return cond{kind: kindBetween, not: not, from: from, to: to,
		values: []string{from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano)}}
}

func (c *compiler) networks(path string, asns []uint32, not bool) cond {
	if len(asns) == 0 {
		c.addf(path, "is empty; name at least one value or leave it out")
	}
	if !c.env.Geo.hasASN() {
		c.warn(path, "this replica has no ASN database, so this never holds")
	}
	cd := cond{kind: kindASN, not: not, asns: slices.Clone(asns)}
	for i, n := range asns {
		if n == 0 {
			c.addf(element(path, i, len(asns)), "0 is no network")
		}
		cd.values = append(cd.values, strconv.FormatUint(uint64(n), 10))
	}
	return cd
}

func (c *compiler) nets(path string, values []string) *bart.Lite {
	nets := new(bart.Lite)
	for i, v := range values {
		var prefix netip.Prefix
		prefix, err := parsePrefix(v)
		if err != nil {
			c.add(element(path, i, len(values)), err)
			continue
		}
		nets.Insert(prefix)
	}
	return nets
}

func (c *compiler) lists(path string, keys []string, not bool) []listRef {
	var refs []listRef
	for i, key := range keys {
		number, ok := c.t.lists.Number(key)
		if !ok {
			c.addf(element(path, i, len(keys)), "list %q is unknown", key)
			continue
		}
		if not && c.t.lists.Count(key) == 0 {
			c.warn(element(path, i, len(keys)), "list %q is empty, so everybody is outside it", key)
		}
		of := c.t.lists.Of(number)
		if !slices.Contains(c.t.asked, of) {
			c.t.asked = append(c.t.asked, of)
		}
		refs = append(refs, listRef{number: number, of: of})
	}
	return refs
}

// The checks of single values return them as they are compared.

func (c *compiler) present(path, value string) string {
	if strings.TrimSpace(value) == "" {
		c.addf(path, "is blank")
	} else if strings.TrimSpace(value) != value {
		c.addf(path, "%q has spaces around it", value)
	}
	return value
}

func (c *compiler) word(path, value string) string { return ignoreCase.text(c.present(path, value)) }

func (c *compiler) locale(path, value string) string { return localeTag.text(c.present(path, value)) }

func (c *compiler) label(path, value string) string {
	if len(c.t.origins) == 0 {
		c.addf(path, "the app has no origins, so nothing has an origin")
	} else if !c.labels[c.present(path, value)] {
		c.addf(path, "no origin gives %q; it is neither a region nor a label of the tables in origins", value)
	}
	return value
}

func (c *compiler) country(path, value string) string {
	return c.place(path, value, isCountry, "an ISO 3166-1 country such as CN")
}

func (c *compiler) subdivision(path, value string) string {
	return c.place(path, value, isSubdivision, "an ISO 3166-2 subdivision such as CN-SH or SH")
}

func (c *compiler) place(path, value string, valid func(string) bool, what string) string {
	upper := strings.ToUpper(value)
	if !valid(upper) {
		c.addf(path, "%q is not %s", value, what)
	}
	if !c.env.Geo.hasCity() {
		c.warn(path, "this replica has no city database, so this never holds")
	}
	return upper
}

func isCountry(code string) bool { return len(code) == 2 && isCode(code, false) }

func isSubdivision(code string) bool {
	country, part, both := strings.Cut(code, "-")
	if !both {
		country, part = "XX", code
	}
	return isCountry(country) && len(part) >= 1 && len(part) <= 3 && isCode(part, true)
}

func isCode(text string, digits bool) bool {
	for _, r := range text {
		if (r < 'A' || r > 'Z') && !(digits && r >= '0' && r <= '9') {
			return false
		}
	}
	return true
}

// describe is a condition as people write it, for problems and traces.
func (c *cond) describe() string {
	name := c.kind.String()
	if c.attr != "" {
		name += "." + c.attr
	}
	if c.not {
		name = "not " + name
	}
	return fmt.Sprintf("%s %s", name, strings.Join(c.values, ", "))
}
