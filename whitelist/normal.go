package whitelist

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"dispatch.example/dispatch/internal/fault"
	"golang.org/x/text/unicode/norm"
)

// MaxID is the longest normal form in bytes. A longer id counts as absent.
const MaxID = 256

// maxRaw bounds the work on an id before it is in NFC. NFC shrinks a text to
// 2/7 at most (U+1FBE U+0308 U+0341, 7 bytes, is U+0390, 2 bytes), so no id
// above four times MaxID can fit.
const maxRaw = 4 * MaxID

// DefaultAbsent are the ids that software sends when it has none: it would put
// all its users into one bucket. They are compared without case.
var DefaultAbsent = []string{
	"null", "undefined", "(null)", "unknown",
	"00000000-0000-0000-0000-000000000000", // nil UUID; iOS advertising id without consent
	"00000000000000000000000000000000",     // the same without hyphens
	"000000000000000",                      // IMEI
	"00000000000000",                       // IMEI without its check digit
	"0000000000000000",                     // IMEISV; Android id
}

// Absence says why an id counts as absent.
type Absence uint8

// The reasons. The zero value says that the id is there.
const (
	Present     Absence = iota
	Missing             // nothing was sent
	Blank               // only white space
	Placeholder         // one of the configured absent ids
	TooLong             // more than MaxID bytes
	BadUTF8             // not UTF-8
	Control             // a control character or line separator inside
)

var absences = [...]string{"", "missing", "blank", "placeholder", "too_long", "bad_utf8", "control"}

// String is the reason as metrics and logs name it, empty for Present.
func (a Absence) String() string { return absences[a] }

// Normalizer turns raw ids into their normal form, which lists, buckets, logs
// and explain share.
//
// The normal form of an id has no white space (Unicode White_Space) and no
// zero-width character (U+FEFF, U+200B..U+200D, U+2060, U+180E) at its ends. It
// is in Unicode NFC, in the Stream-Safe Text Format of UAX #15 (a joiner after
// 30 combining marks). NFC joins letters and accents and nothing more: full-width
// digits stay other ids than ASCII ones.
//
// With fold, each code point is replaced by the simple lower case of its simple
// upper case (UnicodeData.txt, no language's special rules), then by NFC again.
// So ς and Σ are σ, ſ is s, İ and ı are i, and ß stays.
type Normalizer struct {
	fold   bool
	absent [MaxID + 1][]string // normal forms, by their length
}

// NewNormalizer returns a Normalizer that takes the given ids for absent
// (DefaultAbsent if nil) and folds case if fold is set. An id in absent that can
// never occur is an error.
func NewNormalizer(absent []string, fold bool) (*Normalizer, error) {
	if absent == nil {
		absent = DefaultAbsent
	}
	n := &Normalizer{fold: fold}
	var problems fault.Problems
	for _, raw := range absent {
		id, why := normalForm(raw, fold)
		if why != Present {
			problems.Addf("absent_ids", "%q can never occur: it is %s", raw, why)
			continue
		}
		n.absent[len(id)] = append(n.absent[len(id)], id)
	}
	if err := problems.Err("bad_absent_ids", "the list of absent ids is wrong"); err != nil {
		return nil, err
	}
	return n, nil
}

// Fold says whether upper and lower case are the same.
func (n *Normalizer) Fold() bool { return n.fold }

// Normalize is the id's normal form, or empty and the reason why it counts as
// absent. It does not allocate for an ASCII id that is in normal form already.
func (n *Normalizer) Normalize(raw string) (id string, why Absence) {
	id, why = normalForm(raw, n.fold)
	if why == Present && n.isPlaceholder(id) {
		return "", Placeholder
	}
	return id, why
}

func (n *Normalizer) isPlaceholder(id string) bool {
	for _, absent := range n.absent[len(id)] {
		if strings.EqualFold(id, absent) {
			return true
		}
	}
	return false
}

// checkNormal says why id is not a normal form that a list may hold. Content
// joins ids by line feeds, so it must not rely on its callers for that.
func checkNormal(id string) (why Absence, ok bool) {
	normal, why := normalForm(id, false)
	return why, normal == id && why == Present
}

func normalForm(raw string, fold bool) (string, Absence) {
	if isPlain(raw) {
		if fold {
			return strings.ToLower(raw), Present
		}
		return raw, Present
	}
	if raw == "" {
		return "", Missing
	}
	id := strings.TrimFunc(raw, isMargin)
	switch {
	case id == "":
		return "", Blank
	case len(id) > maxRaw:
		return "", TooLong
	case !utf8.ValidString(id):
		return "", BadUTF8
	case strings.ContainsFunc(id, isControl):
		return "", Control
	}
	id = norm.NFC.String(id)
	if fold {
		id = foldCase(id)
	}
	if len(id) > MaxID {
		return "", TooLong
	}
	return id, Present
}

// isPlain reports a non-empty printable ASCII id without margins that is short enough:
// nearly every id there is.
func isPlain(id string) bool {
	if len(id) == 0 || len(id) > MaxID || id[0] == ' ' || id[len(id)-1] == ' ' {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

func isMargin(r rune) bool {
	switch r {
	case '\ufeff', '\u200b', '\u200c', '\u200d', '\u2060', '\u180e':
		return true
	}
	return unicode.IsSpace(r)
}

// isControl reports what could forge a line of a log, a list or a terminal.
func isControl(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
}

func foldCase(id string) string {
	return norm.NFC.String(strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, id))
}
