package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	"dispatch.example/dispatch/whitelist"
)

// checkReach refuses policies that can never take a request: conditions that
// exclude one another, an earlier policy that takes everything first, and a
// share over buckets that an earlier one under the same salt already took.
func (c *compiler) checkReach() {
	first := map[string]int{} // by its conditions in writing, a policy that takes all who meet them
	for i := range c.t.rules {
		path := fmt.Sprintf("policies[%d]", i)
		for _, clash := range contradictions(c.t.rules[i].late) {
			c.addf(path+".when", "can never match: %s", clash)
		}
		shadow := c.shadow(i, first)
		for j := range shadow {
			c.checkTaken(path, j, i)
		}
		if shadow < i {
			c.addf(path, "can never match: policy %q at policies[%d] takes everything first", c.t.rules[shadow].key, shadow)
		}
	}
}

// shadow is the first policy that takes every request that policy i could, or i.
// Equal conditions are seen; whether different ones imply each other is not asked.
// Policies are asked for in their order, and i joins first.
func (c *compiler) shadow(i int, first map[string]int) int {
	text, err := json.Marshal(c.rules.Policies[i].When)
	if err != nil {
		return i // a time that cannot be written was refused already
	}
	shadow, conditions := i, string(text)
	for _, text := range []string{"{}", conditions} { // without conditions it takes everything
		if j, ok := first[text]; ok {
			shadow = min(shadow, j)
		}
	}
	if _, ok := first[conditions]; !ok && c.t.rules[i].do.takesAll() {
		first[conditions] = i
	}
	return shadow
}

// checkTaken refuses a share of i over buckets that the share of j holds, when
// both draw alike and some request could meet the conditions of both.
func (c *compiler) checkTaken(path string, j, i int) {
	earlier, later := &c.t.rules[j], &c.t.rules[i]
	a, b := &earlier.do, &later.do
	if a.split || b.split || a.by != b.by || a.salt.text != b.salt.text || exclusive(earlier.late, later.late) {
		return
	}
	if x, y, found := common(a.spans, b.spans); found {
		c.addf(path+".then.share", "buckets [%d, %d] overlap [%d, %d], which policy %q at policies[%d] takes under the same salt; write free buckets or another salt",
			y.lo, y.hi, x.lo, x.hi, earlier.key, j)
	}
}

// contradictions describes conditions of one policy that no request can meet together.
func contradictions(conds []cond) []string {
	var found []string
	for i := range conds {
		for j := range conds {
			a, b := &conds[i], &conds[j]
			if a.withoutID(b) {
				found = append(found, fmt.Sprintf("%s and %s", a.describe(), b.describe()))
			}
			if a.not || !b.not || a.kind != b.kind || a.attr != b.attr {
				continue
			}
			if subset(a.values, b.values) {
				found = append(found, fmt.Sprintf("%s and %s", a.describe(), b.describe()))
			}
		}
	}
	return found
}

// withoutID says whether c is for requests without the id that every list of o holds.
func (c *cond) withoutID(o *cond) bool {
	var of whitelist.Of
	switch {
	case o.kind != kindInList || o.not || c.want != c.not:
		return false
	case c.kind == kindHasDevice:
		of = whitelist.Device
	case c.kind == kindHasUser:
		of = whitelist.User
	default:
		return false
	}
	return !slices.ContainsFunc(o.lists, func(l listRef) bool { return l.of != of })
}

func subset(a, b []string) bool {
	return len(a) > 0 && !slices.ContainsFunc(a, func(v string) bool { return !slices.Contains(b, v) })
}

// exclusive says whether two policies can be seen never to match the same request:
// one of their conditions names values, times or versions that the other's does not.
func exclusive(a, b []cond) bool {
	for i := range a {
		for j := range b {
			x, y := &a[i], &b[j]
			if x.kind == y.kind && x.attr == y.attr && !x.not && !y.not && x.excludes(y) {
				return true
			}
		}
	}
	return false
}

func (c *cond) excludes(o *cond) bool {
	switch c.kind {
	case kindAppVersion:
		return c.versions.disjoint(&o.versions)
	case kindBetween:
		return !c.from.Before(o.to) || !o.from.Before(c.to)
	case kindInList, kindCIDR, kindSubdivision: // an id or address may be in several
		return false
	}
	return !slices.ContainsFunc(c.values, func(v string) bool { return slices.Contains(o.values, v) })
}
