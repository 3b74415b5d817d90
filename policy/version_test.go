package policy

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// vectors reads a file that every SDK reads too.
func vectors(tb testing.TB, name string, into any) {
	tb.Helper()
	data, err := os.ReadFile("../client/vectors/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
}

type versionVectors struct {
	Algorithm  int
	About      string
	Order      [][]string
	Same       [][]string
	Unreadable []string
	Ranges     []struct {
		Range           string
		Inside, Outside []string
	}
	BadRanges []string `json:"bad_ranges"`
}

func mustVersion(tb testing.TB, text string) Version {
	tb.Helper()
	v, ok := ParseVersion(text)
	if !ok {
		tb.Fatalf("ParseVersion(%q) cannot read it", text)
	}
	return v
}

// e38, e39, e40, e41
func TestVersionVectors(t *testing.T) {
	t.Parallel()
	var file versionVectors
	vectors(t, "versions.json", &file)
	if file.Algorithm != 1 {
		t.Fatalf("algorithm %d, this test knows 1", file.Algorithm)
	}
	for _, chain := range file.Order {
		for i, a := range chain {
			for j, b := range chain {
				want := max(-1, min(1, i-j))
				if got := mustVersion(t, a).Compare(mustVersion(t, b)); got != want {
					t.Errorf("Compare(%q, %q) = %d, want %d", a, b, got, want)
				}
			}
		}
	}
	for _, group := range file.Same {
		for _, a := range group {
			if got := mustVersion(t, group[0]).Compare(mustVersion(t, a)); got != 0 {
				t.Errorf("Compare(%q, %q) = %d, want 0", group[0], a, got)
			}
		}
	}
	for _, text := range file.Unreadable {
		if _, ok := ParseVersion(text); ok {
			t.Errorf("ParseVersion(%q) reads it", text)
		}
	}
}

func TestRangeVectors(t *testing.T) {
	t.Parallel()
	var file versionVectors
	vectors(t, "versions.json", &file)
	for _, row := range file.Ranges {
		r, err := ParseRange(row.Range)
		if err != nil {
			t.Errorf("ParseRange(%q): %v", row.Range, err)
			continue
		}
		if r.String() != row.Range {
			t.Errorf("String() = %q, want %q", r.String(), row.Range)
		}
		for _, text := range row.Inside {
			if !r.Has(mustVersion(t, text)) {
				t.Errorf("%q leaves out %q", row.Range, text)
			}
		}
		for _, text := range row.Outside {
			if r.Has(mustVersion(t, text)) {
				t.Errorf("%q holds %q", row.Range, text)
			}
		}
	}
	for _, text := range file.BadRanges {
		if _, err := ParseRange(text); err == nil {
			t.Errorf("ParseRange(%q) accepts it", text)
		}
	}
}

func TestRangesAreDisjointOnlyWithoutACommonVersion(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{">=10, <11", ">=11, <12", true},
		{">=10, <=11", ">=11, <12", false},
		{"<9 || >12", ">=9, <12", true},
		{"<9 || >=11", ">=9, <12", false},
		{"=10", "!=10", true},
		{"<11", ">=11-beta, <=11", true},
	} {
		a, errA := ParseRange(row.a)
		b, errB := ParseRange(row.b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if got := a.disjoint(&b); got != row.want {
			t.Errorf("%q and %q: disjoint = %v, want %v", row.a, row.b, got, row.want)
		}
	}
}

func TestParsingAVersionDoesNotAllocate(t *testing.T) {
	r, err := ParseRange(">=10.2, <11")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{" v10.2.0-rc.1+7 ", "1.2.3.4.5.6", "abc", strings.Repeat("1", 200)} {
		if n := testing.AllocsPerRun(100, func() {
			if v, ok := ParseVersion(text); ok {
				r.has(&v)
			}
		}); n != 0 {
			t.Errorf("%q: %.0f allocations, want 0", text, n)
		}
	}
}

// FuzzVersion holds ParseVersion and Compare to the laws of an order.
func FuzzVersion(f *testing.F) {
	var file versionVectors
	vectors(f, "versions.json", &file)
	for _, text := range file.Unreadable {
		f.Add(text, "10.2", "1.2.3.4.5")
	}
	for _, chain := range file.Order {
		for i := 2; i < len(chain); i++ {
			f.Add(chain[i-2], chain[i-1], chain[i])
		}
	}
	f.Fuzz(func(t *testing.T, x, y, z string) {
		a, okA := ParseVersion(x)
		b, okB := ParseVersion(y)
		c, okC := ParseVersion(z)
		if okA && a.Compare(a) != 0 {
			t.Errorf("%q differs from itself", x)
		}
		if okA && okB && a.Compare(b) != -b.Compare(a) {
			t.Errorf("%q and %q: %d and %d", x, y, a.Compare(b), b.Compare(a))
		}
		if okA && okB && okC && a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Errorf("%q <= %q <= %q, but not the first <= the last", x, y, z)
		}
		if okA && !strings.Contains(x, "-") {
			if r, err := ParseRange("<" + x); err == nil && r.Has(a) {
				t.Errorf("%q is below itself", x)
			}
		}
	})
}

func FuzzRange(f *testing.F) {
	var file versionVectors
	vectors(f, "versions.json", &file)
	for _, row := range file.Ranges {
		f.Add(row.Range, row.Inside[0])
	}
	for _, text := range file.BadRanges {
		f.Add(text, "10.2")
	}
	f.Fuzz(func(t *testing.T, text, version string) {
		r, err := ParseRange(text)
		if err != nil {
			return
		}
		again, err := ParseRange(r.String())
		if err != nil {
			t.Fatalf("%q is no range the second time: %v", text, err)
		}
		if v, ok := ParseVersion(version); ok && r.Has(v) != again.Has(v) {
			t.Errorf("%q holds %q once and not twice", text, version)
		}
	})
}
