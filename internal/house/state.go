package house

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

func noInit(r *Repo) (found []Finding) {
	r.files(func(_ *Package, f *File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				found = append(found, r.at(fn.Name, "no init: let a constructor do it, and call that"))
			}
		}
	})
	return found
}

// fixedMakers are functions of others, or whole packages of them, whose result
// never changes or cannot be seen to. A package variable may be made by these,
// by our own functions and by conversions.
const fixedMakers = `errors.New fmt.Errorf fault.New regexp.MustCompile sync.OnceValue sync.OnceValues
	netip.MustParsePrefix netip.MustParseAddr strings.NewReplacer template.Must idna.New big.NewInt time.Date
	time.Duration reflect.TypeFor base64.RawURLEncoding.Strict json.RawMessage fmt.Sprintf sha256.Sum256
	strings strconv path unicode hex math`

// packageVariables holds that nothing in a package changes after start: tests
// run side by side, and a reader need not ask who set it.
func packageVariables(r *Repo) (found []Finding) {
	r.product(func(p *Package, f *File) {
		for _, d := range f.Decls {
			if gen, ok := d.(*ast.GenDecl); ok && gen.Tok == token.VAR {
				for _, spec := range gen.Specs {
					found = append(found, variableMade(r, gen, spec.(*ast.ValueSpec))...)
				}
			}
		}
	})
	r.files(func(p *Package, f *File) { found = append(found, variableChanged(r, p, f)...) })
	return found
}

// variableMade looks at how a package variable begins.
func variableMade(r *Repo, gen *ast.GenDecl, spec *ast.ValueSpec) (found []Finding) {
	name := spec.Names[0]
	if name.Name == "_" {
		return nil
	}
	if len(spec.Values) == 0 && !embeds(gen.Doc) && !embeds(spec.Doc) {
		return []Finding{r.at(name, "package variable %s has no value, so something must set it later; pass it in", name.Name)}
	}
	for _, value := range spec.Values {
		ast.Inspect(value, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.ChanType:
				found = append(found, r.at(n, "package variable %s is a channel; make it where it is used", name.Name))
			case *ast.CompositeLit:
				if t := dotted(n.Type); strings.HasPrefix(t, "sync.") || strings.HasPrefix(t, "atomic.") {
					found = append(found, r.at(n, "package variable %s is a %s; make it a field", name.Name, t))
				}
			case *ast.CallExpr:
				if maker := dotted(n.Fun); maker == "make" || maker == "new" ||
					strings.Contains(maker, ".") && !isFixed(maker) {
					found = append(found, r.at(n, "package variable %s is made by %s and may change; pass it in, or add %s to fixedMakers in internal/house if what it makes cannot", name.Name, maker, maker))
				}
			}
			return true
		})
	}
	return found
}

func isFixed(maker string) bool {
	pkg, _, _ := strings.Cut(maker, ".")
	makers := strings.Fields(fixedMakers)
	return slices.Contains(makers, maker) || slices.Contains(makers, pkg)
}

func embeds(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

// dotted is a name such as pkg.Func, empty for anything else.
func dotted(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x := dotted(e.X); x != "" {
			return x + "." + e.Sel.Name
		}
	}
	return ""
}

// changers are functions that change their first argument.
const changers = `append clear delete copy sort.Strings sort.Ints sort.Slice sort.Sort slices.Sort slices.SortFunc
	slices.Reverse maps.Copy maps.DeleteFunc maps.Insert`

// variableChanged looks for whatever changes a package variable.
func variableChanged(r *Repo, p *Package, f *File) (found []Finding) {
	changed := func(at ast.Node, e ast.Expr, how string) {
		root := base(e)
		if v := p.packageVar(root); v != nil && !(f.Test && strings.HasSuffix(r.Fset.Position(v.Pos()).Filename, "_test.go")) {
			found = append(found, r.at(at, "package variable %s is %s; keep it in a struct that a constructor makes", v.Name(), how))
		} else if outside := p.imported(f, root); outside != "" && e != root && how != "addressed" {
			found = append(found, r.at(at, "a variable of package %s is %s; pass a value of your own instead", outside, how))
		}
	}
	ast.Inspect(f.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if n.Tok != token.DEFINE {
					changed(n, left, "assigned to")
				}
			}
		case *ast.IncDecStmt:
			changed(n, n.X, "assigned to")
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				changed(n, n.Key, "assigned to")
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				changed(n, n.X, "addressed")
			}
		case *ast.CallExpr:
			if name := dotted(n.Fun); len(n.Args) > 0 && slices.Contains(strings.Fields(changers), name) {
				changed(n, n.Args[0], "changed by "+name)
			}
		}
		return true
	})
	return found
}

// base is the variable at the root of x.f[i], *x and (x).
func base(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return base(e.X)
	case *ast.IndexExpr:
		return base(e.X)
	case *ast.SliceExpr:
		return base(e.X)
	case *ast.StarExpr:
		return base(e.X)
	case *ast.ParenExpr:
		return base(e.X)
	}
	return e
}

// goroutineInNew holds that constructors only check and return.
func goroutineInNew(r *Repo) (found []Finding) {
	r.product(func(_ *Package, f *File) {
		each(f, func(fn *ast.FuncDecl) {
			if fn.Body == nil || !strings.HasPrefix(fn.Name.Name, "New") && !strings.HasPrefix(fn.Name.Name, "new") {
				return
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					found = append(found, r.at(g, "%s starts a goroutine; give the type a Run(ctx) that owns it", fn.Name.Name))
				}
				_, inner := n.(*ast.FuncLit)
				return !inner
			})
		})
	})
	return found
}
