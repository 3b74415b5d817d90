package policy

// folding is what each byte counts as when texts are compared.
type folding [256]byte

// Case is folded in ASCII alone: platforms and channels are ASCII words, and
// Unicode folding would make K and the Kelvin sign one. In a locale, zh_CN, as
// some platforms write it, is also zh-CN.
var (
	exactly    = newFolding(func(c byte) byte { return c })
	ignoreCase = newFolding(lowerByte)
	localeTag  = newFolding(func(c byte) byte {
		if c == '_' {
			return '-'
		}
		return lowerByte(c)
	})
)

func newFolding(of func(byte) byte) *folding {
	var f folding
	for c := range f {
		f[c] = of(byte(c))
	}
	return &f
}

func lowerByte(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// folding is how conditions of a kind compare texts.
func (k kind) folding() *folding {
	switch k {
	case kindPlatform, kindChannel, kindCarrier:
		return ignoreCase
	case kindLocale:
		return localeTag
	default:
		return exactly
	}
}

// text is text with every byte folded.
func (f *folding) text(text string) string {
	out := []byte(text)
	for i, c := range out {
		out[i] = f[c]
	}
	return string(out)
}

// contains says whether values, already folded, contain got.
func (f *folding) contains(values []string, got string) bool {
	for _, v := range values {
		if f.same(v, got) {
			return true
		}
	}
	return false
}

func (f *folding) same(folded, got string) bool {
	if len(folded) != len(got) {
		return false
	}
	for i := range len(got) {
		if folded[i] != f[got[i]] {
			return false
		}
	}
	return true
}

// texts numbers the texts that rules name, for look-ups by texts that are not
// folded yet. It is a hash table at most half full; a map would want a folded
// copy, and takes twice the time. Rules alone fill it, so that no request can
// lengthen a look-up.
type texts struct {
	fold  *folding
	slots []textSlot // a power of two
}

// textSlot is a folded text and its number, 0 in a free slot.
type textSlot struct {
	text   string
	number int32
}

// maxIndexed is the longest text in bytes that is looked up; a longer one counts
// as one that no rule names.
const maxIndexed = 64

// newTexts has room for count texts.
func newTexts(fold *folding, count int) texts {
	size := 2
	for size < 2*count {
		size *= 2
	}
	return texts{fold: fold, slots: make([]textSlot, size)}
}

// number is the number of a text, 0 if there is none.
func (t *texts) number(text string) int32 {
	if len(text) > maxIndexed {
		return 0
	}
	return t.slot(text).number
}

// slot is where a text stands or would stand.
func (t *texts) slot(text string) *textSlot {
	hash := uint32(2_166_136_261) // FNV-1a
	for i := range len(text) {
		hash = (hash ^ uint32(t.fold[text[i]])) * 16_777_619
	}
	for at := int(hash ^ hash>>16); ; at++ {
		s := &t.slots[at&(len(t.slots)-1)]
		if s.number == 0 || t.fold.same(s.text, text) {
			return s
		}
	}
}
