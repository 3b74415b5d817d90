package domain

import (
	"strings"
	"unicode"

	"dispatch.example/dispatch/internal/fault"
)

// MaxKey is the longest key in bytes.
const MaxKey = 64

// CheckKey says whether s may name an app, region, endpoint, cluster, policy,
// list or table: lower-case letters, digits and - _ . inside, at most MaxKey
// bytes, beginning and ending with a letter or digit. Keys stand in URLs, file
// names, metric labels and salts, so nothing in them ever needs quoting.
func CheckKey(s string) error {
	refuse := func(format string, args ...any) error {
		err := fault.New(fault.Invalid, "bad_key", format, args...)
		if proposal := proposeKey(s); proposal != "" {
			return err.WithHint("write " + proposal)
		}
		return err.WithHint("use lower-case letters, digits and - _ . such as sh-main")
	}
	if s == "" {
		return refuse("a key is missing")
	}
	if len(s) > MaxKey {
		return refuse("key %s is %d bytes long; at most %d are allowed", quote(s), len(s), MaxKey)
	}
	for _, r := range s {
		if !isLetterOrDigit(r) && !strings.ContainsRune("-_.", r) {
			return refuse("key %s holds %q", quote(s), r)
		}
	}
	if !isLetterOrDigit(rune(s[0])) || !isLetterOrDigit(rune(s[len(s)-1])) {
		return refuse("key %s does not begin and end with a letter or digit", quote(s))
	}
	return nil
}

// FoldKey maps keys that people would take for one another to the same string:
// case and white space do not count, and - _ . look alike. Two things of one
// kind may not share a folded key.
func FoldKey(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return -1
		case r == '_' || r == '.':
			return '-'
		default:
			return unicode.ToLower(r)
		}
	}, s)
}

// proposeKey is s made acceptable by lower case and dashes, empty when that is not enough.
func proposeKey(s string) string {
	proposal := strings.ToLower(strings.Join(strings.Fields(s), "-"))
	if proposal == "" || proposal == s || CheckKey(proposal) != nil {
		return ""
	}
	return proposal
}

func isLetterOrDigit(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }
