package signin

import "testing"

// SEC17: whoever makes the link does not choose where it leads.
func TestSEC17NextIsAPathOfOurs(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"/emergency":                "/emergency",
		"/gray/mobile/gray-10-2":    "/gray/mobile/gray-10-2",
		"/audit?actor=li.wei&b=%2F": "/audit?actor=li.wei&b=%2F",
		"/changes/7":                "/changes/7",

		"": "/", "/": "/", "emergency": "/", "//evil.example": "/", "///evil.example": "/", `/\evil.example`: "/", `\/evil.example`: "/", `\\evil.example`: "/",
		"/\t/evil.example": "/", "/%09/evil.example": "/", "/%2f/evil.example": "/", "/%5cevil.example": "/", "https:evil.example": "/",
		"https://evil.example": "/", "https:///evil.example": "/", "javascript:alert(1)": "/", "/\nevil": "/", "/ /evil.example": "/", " //evil.example": "/",
		"/emergency//evil.example": "/", "/emergency/../..//evil.example": "/", "/emergency#//evil": "/", "/@evil.example": "/", "//evil.example/%2f..": "/",
		"/\u2028/evil": "/", "/。evil": "/", "/emergency?next=%zz": "/", "/login": "/", "/login?next=/emergency": "/", "/logout": "/", "/api/v1/logout": "/", "?a=b": "/", "/\x00": "/",
	} {
		if got := Local(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}

func FuzzLocal(f *testing.F) {
	f.Add("/emergency?a=b")
	f.Add("//evil")
	f.Add("/\\evil")
	f.Fuzz(func(t *testing.T, next string) {
		got := Local(next)
		if got[0] != '/' || len(got) > 1 && (got[1] == '/' || got[1] == '\\') {
			t.Errorf("%q leads to %q", next, got)
		}
		if again := Local(got); again != got {
			t.Errorf("%q leads to %q, and that to %q", next, got, again)
		}
	})
}
