package pages

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestCatalogueHasEveryMessageInEachLanguage(t *testing.T) {
	t.Parallel()
	c := must(readCatalogue(files))
	for id := range c.ids["en"] {
		if c.ids["zh"][id] == "" {
			t.Errorf("%s is missing in locale/zh", id)
		}
	}
	for id, file := range c.ids["zh"] {
		if c.ids["en"][id] == "" {
			t.Errorf("%s of %s is missing in locale/en", id, file)
		}
	}
}

// uses are the ids that pages name, whole and as the beginnings of composed ones.
func uses(t *testing.T) (whole, beginnings map[string]string) {
	t.Helper()
	whole, beginnings = map[string]string{}, map[string]string{}
	inTemplate := regexp.MustCompile(`\bt "([^"]+)"`)
	composed := regexp.MustCompile(`\bt \(print "([^"]+)"`)
	inGo := regexp.MustCompile(`"([a-z]+\.[A-Za-z0-9_.-]*)"`)
	names := must(fs.Glob(files, "templates/*.html"))
	for _, name := range names {
		text := string(must(fs.ReadFile(files, name)))
		for _, m := range inTemplate.FindAllStringSubmatch(text, -1) {
			whole[m[1]] = name
		}
		for _, m := range composed.FindAllStringSubmatch(text, -1) {
			beginnings[m[1]] = name
		}
	}
	for _, name := range must(filepath.Glob("*.go")) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range inGo.FindAllStringSubmatch(string(must(os.ReadFile(name))), -1) {
			if strings.HasSuffix(m[1], ".") {
				beginnings[m[1]] = name
			} else {
				whole[m[1]] = name
			}
		}
	}
	return whole, beginnings
}

func TestCatalogueHasWhatPagesSayAndNoMore(t *testing.T) {
	t.Parallel()
	c := must(readCatalogue(files))
	whole, beginnings := uses(t)
	for id, where := range whole {
		if strings.HasSuffix(where, ".html") && !c.has(id) {
			t.Errorf("%s says %s, which is not in the catalogue", where, id)
		}
	}
	ids := slices.Sorted(maps.Keys(c.ids["en"]))
	for beginning, where := range beginnings {
		if strings.HasSuffix(where, ".html") && !slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(id, beginning) }) {
			t.Errorf("%s composes %s…, of which the catalogue has none", where, beginning)
		}
	}
	for _, id := range ids {
		used := whole[id] != ""
		for beginning := range beginnings {
			used = used || strings.HasPrefix(id, beginning)
		}
		if !used {
			t.Errorf("%s of %s is said nowhere; remove it", id, c.ids["en"][id])
		}
	}
}

// Every message that takes values takes the same ones in each language.
func TestCatalogueTakesTheSameValues(t *testing.T) {
	t.Parallel()
	value := regexp.MustCompile(`\{\{\.([A-Za-z]+)\}\}`)
	c := must(readCatalogue(files))
	of := func(lang, id string) []string {
		data := []any{"Count", 2}
		for _, name := range []string{"N", "Time", "Release", "Replica", "Replicas", "Of", "Domain", "App", "Region"} {
			data = append(data, name, "{{."+name+"}}")
		}
		var found []string
		for _, m := range value.FindAllStringSubmatch(c.say(lang, id, data...), -1) {
			found = append(found, m[1])
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	for id := range c.ids["en"] {
		if en, zh := of("en", id), of("zh", id); !slices.Equal(en, zh) {
			t.Errorf("%s takes %v in English and %v in Chinese", id, en, zh)
		}
	}
}

func TestPluralsFollowTheLanguage(t *testing.T) {
	t.Parallel()
	c := must(readCatalogue(files))
	for _, row := range []struct {
		lang  string
		count any
		want  string
	}{
		{"en", 1, "1 emergency change waits for a second person"},
		{"en", 2, "2 emergency changes wait for a second person"},
		{"en", uint64(1), "1 emergency change waits for a second person"},
		{"zh", 2, "有 2 项应急变更等待第二人复核"},
	} {
		if got := c.say(row.lang, "layout.unreviewed", "Count", row.count); got != row.want {
			t.Errorf("%s %v: %q, want %q", row.lang, row.count, got, row.want)
		}
	}
}
