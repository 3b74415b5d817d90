package pages

import (
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"dispatch.example/dispatch/admin/actions"
)

//go:embed templates/*.html locale/*/*.yaml static/*
var files embed.FS

// shared are the templates that every page is parsed with.
func shared() []string {
	return []string{"templates/layout.html", "templates/parts.html", "templates/chart.html", "templates/differences.html", "templates/hostparts.html", "templates/inner.html", "templates/grow.html"}
}

// templates are the pages, parsed once for each language. Their functions know who
// looks: a set is bound to the roles of its viewers when the first of them comes.
type templates struct {
	plain map[string]*template.Template // LANGUAGE/PAGE, never executed, so that it can be copied

	mu    sync.Mutex // guards bound
	bound map[string]*template.Template
}

func parseTemplates(files fs.FS, c *catalogue, a assets, now func() time.Time) (*templates, error) {
	t := &templates{plain: map[string]*template.Template{}, bound: map[string]*template.Template{}}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	for _, lang := range languages() {
		base, err := template.New("").Funcs(functions(c, lang, a, now)).ParseFS(files, shared()...)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if slices.Contains(shared(), name) {
				continue
			}
			page, err := base.Clone()
			if err != nil {
				return nil, fmt.Errorf("copy layout for %s: %w", name, err)
			}
			if page, err = page.ParseFS(files, name); err != nil {
				return nil, err
			}
			t.plain[lang+"/"+strings.TrimSuffix(path.Base(name), ".html")] = page
		}
	}
	return t, nil
}

// of is the page's templates for somebody with the roles.
func (t *templates) of(lang string, roles []string, name string) (*template.Template, error) {
	plain := t.plain[lang+"/"+name]
	if plain == nil {
		return nil, fmt.Errorf("templates/%s.html does not exist", name)
	}
	roles = slices.DeleteFunc(actions.AllRoles(), func(role string) bool { return !slices.Contains(roles, role) })
	key := lang + "/" + name + " " + strings.Join(roles, " ")
	t.mu.Lock()
	defer t.mu.Unlock()
	if set := t.bound[key]; set != nil {
		return set, nil
	}
	set, err := plain.Clone()
	if err != nil {
		return nil, fmt.Errorf("copy templates of %s: %w", name, err)
	}
	set.Funcs(template.FuncMap{"may": func(operation string) bool { return actions.Actor{Roles: roles}.May(operation) == nil }})
	t.bound[key] = set
	return set, nil
}

// isFragment says whether the script may have the block alone.
func isFragment(set *template.Template, block string) bool {
	return set.Lookup(block) != nil && !slices.Contains([]string{"", "layout", "title", "main", "said"}, block)
}
