package house

import (
	"go/ast"
	"strings"
)

// banned are names whose call means that something was left undone or is done elsewhere.
var banned = map[string]string{
	"AutoMigrate": "the schema comes from migrations/",
}

// unbuilt finds what was left undone.
func unbuilt(r *Repo) (found []Finding) {
	r.product(func(_ *Package, f *File) {
		each(f, func(call *ast.CallExpr) {
			if dotted(call.Fun) == "panic" && len(call.Args) == 1 && literal(call.Args[0]) == "unbuilt" {
				found = append(found, r.at(call, "a stub was left; build it or delete it"))
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && banned[sel.Sel.Name] != "" {
				found = append(found, r.at(call, "no %s: %s", sel.Sel.Name, banned[sel.Sel.Name]))
			}
		})
		for _, group := range f.Comments {
			for _, mark := range []string{"TODO", "FIXME", "XXX"} {
				if strings.Contains(group.Text(), mark+":") || strings.Contains(group.Text(), mark+"(") {
					found = append(found, r.at(group, "a %s was left; do it, or say in docs/ what is open", mark))
				}
			}
		}
	})
	return found
}

// exits holds that only commands end the process.
func exits(r *Repo) (found []Finding) {
	r.product(func(p *Package, f *File) {
		each(f, func(call *ast.CallExpr) {
			if name := dotted(call.Fun); (name == "os.Exit" || strings.HasPrefix(name, "log.Fatal")) && p.Name != "main" {
				found = append(found, r.at(call, "no %s outside a command: return the error", name))
			}
		})
	})
	return found
}

// sleeps holds that every wait ends with a context; under synctest a sleep costs no time.
func sleeps(r *Repo) (found []Finding) {
	r.files(func(p *Package, f *File) {
		synctest := false
		for _, spec := range f.Imports {
			synctest = synctest || spec.Path.Value == `"testing/synctest"`
		}
		if f.Test && synctest {
			return
		}
		each(f, func(sel *ast.SelectorExpr) {
			if sel.Sel.Name == "Sleep" && p.imported(f, sel.X) == "time" {
				found = append(found, r.at(sel, "no time.Sleep: wait on a timer or channel together with ctx.Done(); in tests use testing/synctest, or poll with a deadline"))
			}
		})
	})
	return found
}

// skips holds that a green run ran everything.
func skips(r *Repo) (found []Finding) {
	r.files(func(p *Package, f *File) {
		each(f, func(call *ast.CallExpr) {
			receiver, method, ok := strings.Cut(dotted(call.Fun), ".")
			switch {
			case !ok:
			case receiver == "testing" && method == "Short":
				found = append(found, r.at(call, "no testing.Short: make the test fast instead"))
			case strings.Contains(" t b f tb ", " "+receiver+" ") && (method == "Skip" || method == "Skipf" || method == "SkipNow"):
				found = append(found, r.at(call, "no skipping: get what the test needs from internal/testenv, which fails clearly without it"))
			}
		})
	})
	return found
}
