package release

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// manual are the tables of docs/document.md by the part of the document that
// they are headed with: rows by the key in their first cell.
func manual(t *testing.T) map[string]map[string]string {
	t.Helper()
	sections := map[string]map[string]string{}
	var rows map[string]string
	heading, row := regexp.MustCompile("^### `(.+)`$"), regexp.MustCompile("^\\| `([^`]+)` \\|(.*)$")
	for line := range strings.Lines(string(read(t, "../docs/document.md"))) {
		line = strings.TrimSpace(line)
		switch h, r := heading.FindStringSubmatch(line), row.FindStringSubmatch(line); {
		case h != nil:
			rows = map[string]string{}
			sections[h[1]] = rows
		case strings.HasPrefix(line, "#"):
			rows = nil
		case r != nil && rows != nil:
			if rows[r[1]] != "" {
				t.Errorf("%s has two rows", r[1])
			}
			rows[r[1]] = r[2]
		}
	}
	return sections
}

// keysOfDocument are the keys of each struct of the schema, by where a document
// has it first.
func keysOfDocument() map[string][]string {
	parts, seen := map[string][]string{}, map[reflect.Type]bool{}
	var visit func(path string, of reflect.Type)
	visit = func(path string, of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Map:
			visit(path, of.Elem())
		case reflect.Slice:
			visit(path+"[]", of.Elem())
		case reflect.Struct:
			if seen[of] || of == reflect.TypeFor[time.Time]() {
				return
			}
			seen[of] = true
			for _, f := range fieldsOf(of) {
				name := "document"
				if path != "" {
					name = path
				}
				parts[name] = append(parts[name], f.key)
				visit(join(path, f.key), of.Field(f.index).Type)
			}
		}
	}
	visit("", reflect.TypeFor[Document]())
	return parts
}

// The manual has a row for each key of the document, and none for any other.
func TestManualNamesEveryKey(t *testing.T) {
	t.Parallel()
	sections, parts := manual(t), keysOfDocument()
	for part, keys := range parts {
		known := map[string]bool{}
		for _, key := range keys {
			known[key] = true
			if sections[part][key] == "" {
				t.Errorf("docs/document.md has no row `%s` under the heading `%s`", key, part)
			}
		}
		for key := range sections[part] {
			if !known[key] {
				t.Errorf("docs/document.md describes `%s` under `%s`, and no document has it", key, part)
			}
		}
	}
	for part := range sections {
		if parts[part] == nil {
			t.Errorf("docs/document.md describes `%s`, and no document has it", part)
		}
	}
}

// Limits and defaults stand in the manual as they are in the code.
func TestManualStatesLimitsAndDefaults(t *testing.T) {
	t.Parallel()
	sections := manual(t)
	number := func(n int) string {
		if n >= 1_000_000 {
			return fmt.Sprintf("%d,%03d,%03d", n/1_000_000, n/1000%1000, n%1000)
		}
		if n >= 1000 {
			return fmt.Sprintf("%d,%03d", n/1000, n%1000)
		}
		return fmt.Sprint(n)
	}
	span := func(d time.Duration) string { return Duration(d).String() }
	for _, c := range []struct{ part, key, want string }{
		{"document", "apps", "1 to " + number(MaxApps)},
		{"document", "lists", number(MaxLists)},
		{"document", "tables", number(MaxTables)},
		{"apps[]", "hosts", number(MaxHosts)},
		{"apps[]", "regions", "1 to " + number(MaxAppRegions)},
		{"apps[]", "policies", number(MaxPolicies)},
		{"apps[]", "session_ttl", span(DefaultSessionTTL)},
		{"apps[]", "session_ttl", span(MinSessionTTL) + " to " + span(MaxSessionTTL)},
		{"apps[]", "session_max", span(DefaultSessionMax)},
		{"apps[]", "session_max", "to " + span(MaxSessionMax)},
		{"apps[].regions[]", "endpoints", number(MaxRegionEndpoints)},
		{"apps[].regions[]", "capacity", "0 to " + number(domain.MaxCapacity)},
		{"apps[].regions[].endpoints[]", "weight", number(domain.DefaultWeight) + " | 0 to " + number(domain.MaxWeight)},
		{"apps[].policies[].then.share", "of", "0 to " + number(policy.Whole)},
		{"lists[]", "expires", fmt.Sprint(int(warnBefore/day), " days")},
	} {
		if !strings.Contains(sections[c.part][c.key], c.want) {
			t.Errorf("the row `%s` under `%s` does not say %q: %s", c.key, c.part, c.want, sections[c.part][c.key])
		}
	}
	text := string(read(t, "../docs/document.md"))
	for _, want := range []string{fmt.Sprintf("%d MiB and %d levels", MaxDocument>>20, maxDepth),
		fmt.Sprintf("longer than %d bytes", whitelist.MaxID), fmt.Sprintf("at most %d bytes, the first", domain.MaxKey)} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/document.md does not say %q", want)
		}
	}
}
