package main

import (
	"slices"
	"testing"
)

// Flags come split at commas; the servers of one registry stay together.
func TestNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ pairs, names, values []string }{
		"none":              {},
		"two":               {[]string{"a=static:x", "b=static:y"}, []string{"a", "b"}, []string{"static:x", "static:y"}},
		"three servers":     {[]string{"a=consul://1:8500", "2:8500", "3:8500", "b=static:y"}, []string{"a", "b"}, []string{"consul://1:8500,2:8500,3:8500", "static:y"}},
		"no name":           {[]string{"consul://1:8500", "a=static:x"}, nil, nil},
		"an end":            {[]string{"a=static:x", ""}, nil, nil},
		"twice":             {[]string{"a=static:x", "a=static:y"}, nil, nil},
		"a name with a dot": {[]string{"a.b=static:x"}, nil, nil},
	} {
		names, values, ok := named(c.pairs)
		if !slices.Equal(names, c.names) || !slices.Equal(values, c.values) || ok != (c.names != nil || c.pairs == nil) {
			t.Errorf("%s: %q, %q, %v", name, names, values, ok)
		}
	}
}
