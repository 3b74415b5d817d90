package domain

import (
	"errors"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

func TestCheckKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"sh", "sh-main", "gray-10-2", "v10.2_rc1", "4g", "a", strings.Repeat("k", MaxKey)} {
		if err := CheckKey(key); err != nil {
			t.Errorf("CheckKey(%q) = %v, want nil", key, err)
		}
	}
	for key, hint := range map[string]string{
		"SH":                          "write sh",
		" sh":                         "write sh",
		"Sh Main":                     "write sh-main",
		"":                            "",
		".":                           "",
		"..":                          "",
		"-sh":                         "",
		"sh/../x":                     "",
		"sh\x00":                      "",
		"上海":                          "",
		"ѕh":                          "", // Cyrillic ѕ
		"s%68":                        "",
		strings.Repeat("k", MaxKey+1): "",
	} {
		e, ok := errors.AsType[*fault.Error](CheckKey(key))
		if !ok || e.Code != "bad_key" || e.Kind != fault.Invalid || e.Hint == "" {
			t.Errorf("CheckKey(%q) = %v, want bad_key with a hint", key, e)
			continue
		}
		if hint != "" && e.Hint != hint {
			t.Errorf("CheckKey(%q): hint = %q, want %q", key, e.Hint, hint)
		}
	}
}

// e36: names that differ only by case or space are one name to people.
func TestLookAlikeKeysFoldTogether(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"gray-10-2", "Gray-10-2", "GRAY-10-2 ", "gray_10_2", "gray-10.2", "gray -10-2"} {
		if got := FoldKey(key); got != "gray-10-2" {
			t.Errorf("FoldKey(%q) = %q, want gray-10-2", key, got)
		}
	}
	for _, pair := range [][2]string{{"sh", "hf"}, {"sh-1", "sh1"}, {"gray-1", "gray-2"}} {
		if FoldKey(pair[0]) == FoldKey(pair[1]) {
			t.Errorf("%q and %q fold together", pair[0], pair[1])
		}
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, s := range []string{"sh-main", "SH main", "", ".", "上海", "a\xff", " A\t.b "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckKey(s) == nil && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Errorf("CheckKey(%q) lets through what must be quoted", s)
		}
		if folded := FoldKey(s); FoldKey(folded) != folded {
			t.Errorf("FoldKey(%q) = %q is folded once more by a second call", s, folded)
		}
	})
}
