package caller

import (
	"slices"
	"testing"

	"dispatch.example/dispatch/discovery/rules"
)

// The number of a service changes when its own rules do, with the kill switch, and
// never goes back.
func TestNumbersOfServices(t *testing.T) {
	t.Parallel()
	a, b := rule("a", "v1"), rule("b", "v1")
	other := b
	other.Strategy.Weight = 50
	var k book
	for _, step := range []struct {
		number  uint64
		set     rules.Set
		changed []string
		all     bool
		a, b, c uint64 // numbers; c never has rules
	}{
		{3, rules.Set{Rules: []rules.Rule{a, b}}, []string{"a", "b"}, true, 3, 3, 3},
		{4, rules.Set{Rules: []rules.Rule{a, b}}, nil, false, 3, 3, 3},
		{5, rules.Set{Rules: []rules.Rule{a, other}}, []string{"b"}, false, 3, 5, 3},
		{6, rules.Set{Rules: []rules.Rule{a}}, []string{"b"}, false, 3, 6, 3},
		{7, rules.Set{Rules: []rules.Rule{a}}, nil, false, 3, 6, 3},
		{8, rules.Set{Rules: []rules.Rule{a, b}}, []string{"b"}, false, 3, 8, 3},
		{9, rules.Set{Rules: []rules.Rule{a, b}, Direct: true}, []string{"a", "b"}, true, 9, 9, 9},
		{10, rules.Set{Rules: []rules.Rule{a, b}}, []string{"a", "b"}, true, 10, 10, 10},
	} {
		changed, all := k.turn(step.set, step.number)
		if !slices.Equal(changed, step.changed) || all != step.all {
			t.Errorf("release %d changed %v, all %v", step.number, changed, all)
		}
		if x, y, z := k.chapter("a").since, k.chapter("b").since, k.chapter("c").since; x != step.a || y != step.b || z != step.c {
			t.Errorf("release %d: numbers %d %d %d, want %d %d %d", step.number, x, y, z, step.a, step.b, step.c)
		}
		if k.number != step.number || !k.known {
			t.Errorf("number %d, known %v", k.number, k.known)
		}
	}
}
