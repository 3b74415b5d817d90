package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Range is a set of versions, such as ">=10.2, <11 || =12.0.1".
type Range struct {
	text string
	any  [][]bound // any of the alternatives, each of which needs all of its bounds
}

type bound struct {
	op relation
	v  Version
}

type relation uint8

const (
	equal relation = iota
	notEqual
	greater
	atLeast
	less
	atMost
)

// ParseRange reads a range: alternatives between ||, each a list of bounds
// between commas that must all hold, each an operator (= != > >= < <=, none is
// =) and a version. A range with an alternative that no version can meet is an
// error.
//
// The order is SemVer's with one exception: < leaves out the pre-releases of
// its own version, so <11 does not hold for 11-beta. <11-rc.1 holds for it.
func ParseRange(text string) (Range, error) {
	r := Range{text: text}
	for alternative := range strings.SplitSeq(text, "||") {
		var bounds []bound
		for part := range strings.SplitSeq(alternative, ",") {
			b, err := parseBound(strings.TrimSpace(part))
			if err != nil {
				return Range{}, err
			}
			bounds = append(bounds, b)
		}
		if unsatisfiable(bounds) {
			return Range{}, fmt.Errorf("no version is in %q", strings.TrimSpace(alternative))
		}
		r.any = append(r.any, bounds)
	}
	return r, nil
}

func parseBound(text string) (bound, error) {
	op, rest := cutOperator(text)
	v, ok := ParseVersion(rest)
	if !ok {
		return bound{}, fmt.Errorf("cannot read %q; write bounds such as >=10.2, <11", text)
	}
	b := bound{op: op, v: v}
	if b.op == less && v.pre == "" {
		b.v.pre = "0" // the oldest pre-release there is, so that < leaves out all of them
	}
	return b, nil
}

func cutOperator(text string) (relation, string) {
	// Longer signs come before their own beginnings.
	for _, o := range [...]struct {
		sign string
		op   relation
	}{{">=", atLeast}, {"<=", atMost}, {"!=", notEqual}, {"==", equal}, {">", greater}, {"<", less}, {"=", equal}} {
		if rest, ok := strings.CutPrefix(text, o.sign); ok {
			return o.op, rest
		}
	}
	return equal, text
}

// Has says whether v is in the range.
func (r Range) Has(v Version) bool { return r.has(&v) }

// String is the range as it was written.
func (r Range) String() string { return r.text }

func (r *Range) has(v *Version) bool {
	return r.holds(func(b *bound) int { return v.compare(&b.v) })
}

// holds asks compare how a version stands to each bound.
func (r *Range) holds(compare func(*bound) int) bool {
	for _, bounds := range r.any {
		if meets(bounds, compare) {
			return true
		}
	}
	return false
}

func meets(bounds []bound, compare func(*bound) int) bool {
	for i := range bounds {
		if !bounds[i].op.allows(compare(&bounds[i])) {
			return false
		}
	}
	return true
}

// allows says whether the operator accepts a version that compares as c to its own.
func (op relation) allows(c int) bool {
	switch op {
	case equal:
		return c == 0
	case notEqual:
		return c != 0
	case greater:
		return c > 0
	case atLeast:
		return c >= 0
	case less:
		return c < 0
	default: // atMost
		return c <= 0
	}
}

// unsatisfiable says whether the bounds exclude one another: some lower one lies
// above some upper one, or the one version left is refused.
func unsatisfiable(bounds []bound) bool {
	for i := range bounds {
		low := &bounds[i]
		if low.op == less || low.op == atMost || low.op == notEqual {
			continue
		}
		for j := range bounds {
			high := &bounds[j]
			if high.op == greater || high.op == atLeast || high.op == notEqual {
				continue
			}
			c := low.v.compare(&high.v)
			open := low.op == greater || high.op == less
			if c > 0 || c == 0 && (open || !meets(bounds, func(b *bound) int { return low.v.compare(&b.v) })) {
				return true
			}
		}
	}
	return false
}

// disjoint says whether no version is in both ranges.
func (r *Range) disjoint(o *Range) bool {
	for _, a := range r.any {
		for _, b := range o.any {
			if !unsatisfiable(slices.Concat(a, b)) {
				return false
			}
		}
	}
	return true
}
