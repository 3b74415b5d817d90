package domain

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"dispatch.example/dispatch/internal/fault"
)

// Limits of DNS in bytes (RFC 1035, 2.3.4), and the longest raw text that is
// looked at: 253 bytes of name come from less than that.
const (
	maxHost  = 253
	maxLabel = 63
	maxRaw   = 1024
)

// otherDots are the characters that browsers or people take for a dot.
const otherDots = "。．｡․﹒·・･•‧∙⋅‥…۔܁܂ꞏ"

// NormalHost is the one form in which a host is stored, compared and signed:
// lower case, no trailing dot, IDNA A-labels (xn--…), at least two labels. It
// changes nothing else. Whatever would have to be guessed at is refused with a
// code and a hint of its own: white space, scheme, user, path, port, address,
// wildcard, and names that only look like the intended one. Its result is
// accepted again unchanged. client/vectors/hosts.json is the table.
func NormalHost(raw string) (string, error) {
	if err := checkText(raw); err != nil {
		return "", err
	}
	if err := checkParts(raw); err != nil {
		return "", err
	}
	name, err := lower(strings.TrimSuffix(raw, "."))
	if err != nil {
		return "", err
	}
	if err := checkLabels(raw, name); err != nil {
		return "", err
	}
	host, err := toASCII(raw, name)
	if err != nil {
		return "", err
	}
	if err := checkScripts(raw, host); err != nil {
		return "", err
	}
	return host, nil
}

// hostError is a refusal of raw; format continues a sentence that begins with it.
func hostError(raw, code, hint, format string, args ...any) error {
	return fault.New(fault.Invalid, code, "host %s %s", quote(raw), fmt.Sprintf(format, args...)).WithHint(hint)
}

// quote shows s with its invisible characters escaped, cut to a readable length.
func quote(s string) string {
	const limit = 80
	if len(s) > limit {
		return fmt.Sprintf("%+q… (%d bytes)", s[:limit], len(s))
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) {
		return fmt.Sprintf("%q (%+q)", s, s)
	}
	return fmt.Sprintf("%q", s)
}

// checkText refuses what is no text of a host at all.
func checkText(raw string) error {
	switch {
	case strings.TrimSpace(raw) == "":
		return hostError(raw, "host_empty", "write a full name such as app.bank.example", "is empty")
	case len(raw) > maxRaw:
		return hostError(raw, "host_too_long", "shorten it", "is longer than any host name")
	case !utf8.ValidString(raw):
		return hostError(raw, "host_character", "save the text as UTF-8", "is not valid UTF-8")
	case strings.TrimSpace(raw) != raw:
		return hostError(raw, "host_space", "remove the white space", "has white space around it")
	case strings.ContainsFunc(raw, unicode.IsSpace):
		return hostError(raw, "host_space", "write one host an entry", "has white space inside")
	}
	for _, r := range raw {
		if !unicode.IsPrint(r) {
			return hostError(raw, "host_character", "type the name instead of pasting it",
				"holds the invisible character %U", r)
		}
	}
	return nil
}

// checkParts refuses what belongs to a URL or an address rather than a host.
func checkParts(raw string) error {
	before, after, colon := strings.Cut(raw, ":")
	_, notAddr := netip.ParseAddr(raw)
	_, notAddrPort := netip.ParseAddrPort(raw)
	switch {
	case strings.Contains(raw, "://") || strings.HasPrefix(raw, "//"):
		return hostError(raw, "host_scheme", "write the host alone, without https://", "has a scheme")
	case notAddr == nil || notAddrPort == nil || strings.ContainsAny(raw, "[]"):
		return hostError(raw, "host_address", "write the domain name that leads there", "is an address")
	case strings.Contains(raw, "@"):
		return hostError(raw, "host_user", "write only what follows the last @", "has a user part")
	case strings.ContainsAny(raw, `/\?#`):
		return hostError(raw, "host_path", "remove everything from the first / ? or # on", "has a path or query")
	case colon && strings.Trim(after, "0123456789") == "":
		return hostError(raw, "host_port", "remove the port; apps use 443", "has a port")
	case colon:
		return hostError(raw, "host_scheme", "remove "+quote(before+":"), "has a scheme")
	case strings.ContainsAny(raw, otherDots):
		return hostError(raw, "host_dot", "write the ASCII dot U+002E", "holds a character that looks like a dot")
	case strings.Contains(raw, "*"):
		return hostError(raw, "host_wildcard", "name each host; a suffix already covers the hosts below it", "has a wildcard")
	case strings.Contains(raw, "_"):
		return hostError(raw, "host_underscore", "use a hyphen", "has an underscore")
	}
	return nil
}

// lower is raw in lower case. A character such as the Kelvin sign, whose lower
// case is an ASCII letter, is refused rather than turned into another name.
func lower(raw string) (string, error) {
	for _, r := range raw {
		if r > unicode.MaxASCII && unicode.ToLower(r) <= unicode.MaxASCII {
			return "", hostError(raw, "host_script", "type the letter "+quote(string(unicode.ToLower(r))),
				"holds %U, which looks like an ASCII letter", r)
		}
	}
	return strings.ToLower(raw), nil
}

// checkLabels refuses empty and hyphenated labels and what resolvers read as an
// IPv4 address: by the URL standard, any name whose last label is a number.
func checkLabels(raw, name string) error {
	labels := strings.Split(name, ".")
	for _, label := range labels {
		switch {
		case label == "":
			return hostError(raw, "host_label_empty", "remove the extra dot", "has an empty label")
		case strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-"):
			return hostError(raw, "host_hyphen", "begin and end labels with a letter or digit",
				"has a hyphen at the edge of label %s", quote(label))
		case len(label) > 3 && label[2:4] == "--" && !strings.HasPrefix(label, "xn--"):
			return hostError(raw, "host_hyphen", "only xn-- may have hyphens there",
				"has hyphens in the third and fourth place of label %s", quote(label))
		}
	}
	if isNumber(labels[len(labels)-1]) {
		return hostError(raw, "host_address", "write the domain name that leads there", "is read as an IPv4 address")
	}
	if len(labels) == 1 {
		return hostError(raw, "host_single_label", "write the full name such as app.bank.example", "has only one label")
	}
	return nil
}

func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// toASCII is name with every label as an A-label. The registration profile
// maps nothing: full-width letters, ligatures and ignorable characters are
// errors, where the lookup profile would quietly write another name.
func toASCII(raw, name string) (string, error) {
	host, err := idna.Registration.ToASCII(name)
	if err == nil && samePunycode(name, host) {
		return host, nil
	}
	if err := checkLength(raw, host); err != nil {
		return "", err
	}
	if strings.Contains(name, "xn--") {
		return "", hostError(raw, "host_punycode", "write the name in its own script; the A-label follows from it",
			"has an xn-- label that stands for no valid name")
	}
	hint := "use letters, digits and hyphens"
	if mapped, err := idna.Lookup.ToASCII(name); err == nil {
		hint = "if you mean " + mapped + ", write that"
	}
	return "", hostError(raw, "host_character", hint, "holds a character that host names do not allow")
}

// samePunycode says whether the labels that came as xn-- are unchanged: there
// is only one right spelling of each.
func samePunycode(name, host string) bool {
	out := strings.Split(host, ".")
	for i, label := range strings.Split(name, ".") {
		if strings.HasPrefix(label, "xn--") && label != out[i] {
			return false
		}
	}
	return true
}

func checkLength(raw, host string) error {
	if len(host) > maxHost {
		return hostError(raw, "host_too_long", "shorten it", "is %d bytes long; at most %d are allowed", len(host), maxHost)
	}
	for label := range strings.SplitSeq(host, ".") {
		if len(label) > maxLabel {
			return hostError(raw, "host_label_too_long", "shorten it", "has a label of %d bytes; at most %d are allowed",
				len(label), maxLabel)
		}
	}
	return nil
}
