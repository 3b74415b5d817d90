package domain

import (
	"errors"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

func TestSuffixesNameEveryBadEntry(t *testing.T) {
	t.Parallel()
	_, err := NewSuffixes([]string{"bank.example", "", "com.cn", "10.0.0.1", ".a.com.cn", "*.a.com.cn", "cn", "github.io"})
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Kind != fault.Invalid || e.Code != "bad_suffixes" {
		t.Fatalf("err = %v, want bad_suffixes", err)
	}
	want := []string{"[1]", "[2]", "[3]", "[4]", "[5]", "[6]", "[7]"}
	if len(e.Problems) != len(want) {
		t.Fatalf("problems = %v, want one for each of %v", e.Problems, want)
	}
	for i, p := range e.Problems {
		if p.Path != want[i] || p.Detail == "" || p.Hint == "" {
			t.Errorf("problem %d = %+v, want path %s with a detail and a hint", i, p, want[i])
		}
	}
}

func TestSuffixesAreInNormalForm(t *testing.T) {
	t.Parallel()
	s, err := NewSuffixes([]string{"B.com.cn.", "bank.example", "b.com.cn", "bücher.example"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "b.com.cn,bank.example,xn--bcher-kva.example"; s.String() != want {
		t.Errorf("String() = %q, want %q", s, want)
	}
	if !s.Allows("app.xn--bcher-kva.example") {
		t.Error("a host below the A-label form of a suffix is not allowed")
	}
}

func TestAllowsOnlyNormalForm(t *testing.T) {
	t.Parallel()
	s, err := NewSuffixes([]string{"bank.example"})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"WAP.bank.example", "wap.bank.example.", "evil.com/.bank.example", "evil.com\n.bank.example",
		" wap.bank.example", "", ".bank.example", "-.bank.example"} {
		if s.Allows(host) {
			t.Errorf("Allows(%q) = true for a host that is not in normal form", host)
		}
	}
	if (Suffixes{}).Allows("wap.bank.example") {
		t.Error("the zero value allows a host")
	}
}
