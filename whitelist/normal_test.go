package whitelist

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"dispatch.example/dispatch/internal/fault"
	"golang.org/x/text/unicode/norm"
)

type idVector struct {
	Name   string `json:"name"`
	Raw    string `json:"raw"`
	RawHex string `json:"raw_hex"`
	Fold   bool   `json:"fold"`
	ID     string `json:"id"`
	Absent string `json:"absent"`
}

func (v idVector) raw(tb testing.TB) string {
	if v.RawHex == "" {
		return v.Raw
	}
	raw, err := hex.DecodeString(v.RawHex)
	if err != nil {
		tb.Fatalf("%s: %v", v.Name, err)
	}
	return string(raw)
}

func idVectors(tb testing.TB) []idVector {
	tb.Helper()
	data, err := os.ReadFile("../client/vectors/ids.json")
	if err != nil {
		tb.Fatal(err)
	}
	var file struct {
		MaxBytes     int        `json:"max_bytes"`
		Placeholders []string   `json:"placeholders"`
		IDs          []idVector `json:"ids"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		tb.Fatal(err)
	}
	if file.MaxBytes != MaxID || !slices.Equal(file.Placeholders, DefaultAbsent) {
		tb.Error("the vectors are for another limit or other placeholders")
	}
	if len(file.IDs) < 100 {
		tb.Errorf("%d vectors", len(file.IDs))
	}
	return file.IDs
}

// e18, e20, e23, e24, e25, e26.
func TestNormalFormFollowsTheVectors(t *testing.T) {
	t.Parallel()
	for _, v := range idVectors(t) {
		id, why := normalizer(t, v.Fold).Normalize(v.raw(t))
		if id != v.ID || why.String() != v.Absent {
			t.Errorf("%s: %+q is %+q %s, want %+q %s", v.Name, v.raw(t), id, why, v.ID, v.Absent)
		}
	}
}

// e20: the list of placeholders is configurable.
func TestPlaceholdersAreThoseConfigured(t *testing.T) {
	t.Parallel()
	n, err := NewNormalizer([]string{"ANONYMOUS_USER", " Müller "}, false)
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]Absence{
		"anonymous_user": Placeholder, "ANONYMOUS_USER\n": Placeholder, "MU\u0308LLER": Placeholder,
		"null": Present, "anonymous_user2": Present, "": Missing,
	} {
		if _, why := n.Normalize(raw); why != want {
			t.Errorf("%q: %v, want %v", raw, why, want)
		}
	}
	none, err := NewNormalizer([]string{}, false)
	if err != nil {
		t.Fatal(err)
	}
	if id, why := none.Normalize("null"); id != "null" || why != Present {
		t.Errorf("with no placeholders null is %q %v", id, why)
	}
}

func TestPlaceholdersThatCannotOccurAreRefused(t *testing.T) {
	t.Parallel()
	_, err := NewNormalizer([]string{"ok", "", "a\nb", strings.Repeat("x", 300), "\xff"}, false)
	if fault.CodeOf(err) != "bad_absent_ids" || strings.Count(err.Error(), "can never occur") != 4 {
		t.Errorf("got %v", err)
	}
}

// e26: what is one id in one place is one id everywhere, so a normal form is its own normal form.
func FuzzNormalize(f *testing.F) {
	for _, v := range idVectors(f) {
		f.Add(v.raw(f), v.Fold)
	}
	f.Fuzz(func(t *testing.T, raw string, fold bool) {
		n := normalizer(t, fold)
		id, why := n.Normalize(raw)
		if (id == "") != (why != Present) {
			t.Fatalf("%q: id %q and %v", raw, id, why)
		}
		if why != Present {
			return
		}
		if len(id) > MaxID || !utf8.ValidString(id) || !norm.NFC.IsNormalString(id) || strings.ContainsFunc(id, unicode.IsControl) {
			t.Errorf("%q is no normal form", id)
		}
		if again, _ := n.Normalize(id); again != id {
			t.Errorf("%q became %q, then %q", raw, id, again)
		}
		if _, ok := checkNormal(id); !ok {
			t.Errorf("a list would refuse %q", id)
		}
	})
}

// No id that would fit after NFC is refused before it: take the longest way to
// write each character in single code points. None from U+30000 on decomposes.
func TestNFCShrinksNoMoreThanTheLimitAllows(t *testing.T) {
	t.Parallel()
	longest := map[string]int{} // by NFD of one code point
	for r := rune(0); r < 0x30000; r++ {
		if nfd := norm.NFD.String(string(r)); utf8.RuneCountInString(nfd) == 1 {
			longest[nfd] = max(longest[nfd], utf8.RuneLen(r))
		}
	}
	for r := rune(0); r < 0x30000; r++ {
		length := 0
		for _, part := range norm.NFD.String(string(r)) {
			length += longest[string(part)]
		}
		if nfc := len(norm.NFC.String(string(r))); length*MaxID > nfc*maxRaw {
			t.Errorf("%+q: %d bytes become %d", r, length, nfc)
		}
	}
}

func TestNormalizeDoesNotAllocateForASCII(t *testing.T) {
	n, folding := normalizer(t, false), normalizer(t, true)
	ids := []string{"d-1001", "6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "null", " d-1001 ", "用户-张三", strings.Repeat("a", MaxID)}
	if allocs := testing.AllocsPerRun(100, func() {
		for _, id := range ids {
			n.Normalize(id)
			folding.Normalize(ids[1])
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
