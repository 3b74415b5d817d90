package domain

import (
	"slices"
	"unicode"

	"golang.org/x/net/idna"
)

// mixes are the scripts that people do write together (Unicode TR 39, "highly
// restrictive"). A host keeps to one of these rows or to one single script.
var mixes = [][]*unicode.RangeTable{
	{plainLatin, unicode.Han, unicode.Bopomofo},
	{plainLatin, unicode.Han, unicode.Hiragana, unicode.Katakana, soundMark},
	{plainLatin, unicode.Han, unicode.Hangul},
}

// plainLatin is the lower-case Latin letters that read as the ASCII letter they
// are built on: accents, but not letters such as dotless i or the phonetic
// alpha, which pass for an ASCII letter.
var plainLatin = &unicode.RangeTable{
	R16: []unicode.Range16{
		{'a', 'z', 1}, {0x00DF, 0x00F6, 1}, {0x00F8, 0x0130, 1}, {0x0132, 0x0137, 1}, {0x0139, 0x017E, 1},
		{0x01A1, 0x01A1, 1}, {0x01B0, 0x01B0, 1}, {0x1E00, 0x1EFF, 1},
	},
	LatinOffset: 2,
}

// soundMark lengthens a vowel in kana; Unicode files it under no script.
var soundMark = &unicode.RangeTable{R16: []unicode.Range16{{'ー', 'ー', 1}}}

// checkScripts refuses a name that mixes scripts, such as the Cyrillic а inside
// bаnk. It looks at the whole host, not at each label: a label wholly of Cyrillic
// look-alikes under an ASCII suffix is the same trick.
func checkScripts(raw, host string) error {
	written, err := idna.Registration.ToUnicode(host)
	if err != nil {
		return hostError(raw, "host_punycode", "write the name in its own script", "stands for no valid name")
	}
	var letters []rune
	for _, r := range written {
		switch {
		case r == '.' || r == '-' || '0' <= r && r <= '9':
		case !unicode.IsLetter(r) && !unicode.IsMark(r), unicode.Is(unicode.Inherited, r):
			return hostError(raw, "host_character", "use letters, digits and hyphens", "holds %q (%U)", r, r)
		default:
			letters = append(letters, r)
		}
	}
	within := func(tables ...*unicode.RangeTable) bool {
		return !slices.ContainsFunc(letters, func(r rune) bool { return !unicode.In(r, tables...) })
	}
	for _, mix := range mixes {
		if within(mix...) {
			return nil
		}
	}
	for name, script := range unicode.Scripts {
		if name != "Common" && name != "Latin" && within(script) {
			return nil
		}
	}
	return hostError(raw, "host_script", "type the name again in one script",
		"mixes scripts, so it may look like another name; it reads %+q", written)
}
