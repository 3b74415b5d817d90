package policy

import (
	"cmp"
	"strings"
)

// maxVersion is the longest text that is still a version; apps send about ten
// bytes, and a header may carry kilobytes.
const maxVersion = 128

// Version is the version of an app: any number of numeric parts, then a
// pre-release as in SemVer. Build metadata is read and ignored.
type Version struct {
	parts [4]uint64 // the numbers, if small
	small bool      // at most four parts, each below 1e18
	core  string    // 10.2.0
	pre   string    // rc.1, without its hyphen
}

// ParseVersion reads a version: spaces around it and a leading v or V do not
// count, missing parts are zero. Unlike SemVer it allows any number of parts
// and leading zeros. It does not allocate.
func ParseVersion(text string) (v Version, ok bool) {
	ok = v.parse(text)
	return v, ok
}

// parse reads text into v, which is zero.
func (v *Version) parse(text string) bool {
	if text != "" && (text[0] <= ' ' || text[len(text)-1] <= ' ') {
		text = strings.Trim(text, " \t\r\n")
	}
	if len(text) > maxVersion {
		return false
	}
	if text != "" && (text[0] == 'v' || text[0] == 'V') {
		text = text[1:]
	}
	v.small = true
	rest, ok := v.numbers(text)
	if !ok || rest == "" {
		return ok
	}
	rest, build, hasBuild := strings.Cut(rest, "+")
	if rest != "" { // numbers ends at a hyphen, or else at the plus
		v.pre = rest[1:]
		ok = rest[0] == '-' && identifiers(v.pre)
	}
	return ok && (!hasBuild || identifiers(build))
}

// numbers reads the dotted list of numbers that text begins with, and says
// whether there is one.
func (v *Version) numbers(text string) (rest string, ok bool) {
	const full = uint64(1e17) // one more digit stays below 1e18
	part, digits, end := 0, 0, 0
	for ; end < len(text); end++ {
		c := text[end]
		if c == '.' {
			if digits == 0 {
				return "", false
			}
			part, digits = part+1, 0
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		digits++
		if part >= len(v.parts) || v.parts[part] >= full {
			v.small = false
			continue
		}
		v.parts[part] = v.parts[part]*10 + uint64(c-'0')
	}
	v.core = text[:end]
	return text[end:], digits > 0
}

// identifiers says whether text is a dotted list of [0-9A-Za-z-]+.
func identifiers(text string) bool {
	length := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '.' && length > 0:
			length = 0
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-':
			length++
		default:
			return false
		}
	}
	return length > 0
}

// Compare is -1, 0 or 1 as v is older than, the same as or newer than o, in the
// order of SemVer: 10.2-rc.1 < 10.2 = 10.2.0 < 10.2.0.1.
func (v Version) Compare(o Version) int { return v.compare(&o) }

func (v *Version) compare(o *Version) int {
	if v.small && o.small {
		for i := range v.parts {
			if c := cmp.Compare(v.parts[i], o.parts[i]); c != 0 {
				return c
			}
		}
		return comparePre(v.pre, o.pre)
	}
	for a, b := v.core, o.core; a != "" || b != ""; {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		if c := compareNumbers(x, y); c != 0 {
			return c
		}
	}
	return comparePre(v.pre, o.pre)
}

// compareNumbers compares digits of any length; none is zero.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// comparePre compares pre-releases by SemVer 2.0.0, section 11.
func comparePre(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(len(b), len(a)) // the one without a pre-release is newer
	}
	for a != "" && b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		if c := compareIdentifiers(x, y); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b)) // the longer list is newer
}

func compareIdentifiers(a, b string) int {
	switch x, y := numeric(a), numeric(b); {
	case x && y:
		return compareNumbers(a, b)
	case x:
		return -1
	case y:
		return 1
	}
	return strings.Compare(a, b)
}

func numeric(text string) bool { return strings.Trim(text, "0123456789") == "" }
