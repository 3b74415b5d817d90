package house

import (
	"go/ast"
	"go/token"
	"strings"
)

// The sizes that keep a file and a function on a screen.
const (
	maxFileLines     = 400
	maxFunctionLines = 60
	maxParameters    = 4 // not counting a context and a final variadic one
	maxMethods       = 5
	minPackageDoc    = 120 // bytes; shorter than that no shape can be told
)

func fileSize(r *Repo) (found []Finding) {
	r.product(func(_ *Package, f *File) {
		if f.Lines > maxFileLines {
			found = append(found, r.at(f.Name, "%d lines, at most %d; split it by noun", f.Lines, maxFileLines))
		}
	})
	return found
}

func functionSize(r *Repo) (found []Finding) {
	r.product(func(_ *Package, f *File) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := r.Fset.Position(fn.End()).Line - r.Fset.Position(fn.Pos()).Line + 1
			if lines > maxFunctionLines {
				found = append(found, r.at(fn.Name, "function %s has %d lines, at most %d; name its parts", fn.Name.Name, lines, maxFunctionLines))
			}
		}
	})
	return found
}

func parameters(r *Repo) (found []Finding) {
	r.product(func(_ *Package, f *File) {
		count := func(name *ast.Ident, t *ast.FuncType) {
			if n := positional(t); n > maxParameters {
				found = append(found, r.at(name, "%s has %d positional parameters, at most %d; put the optional ones into a struct", name.Name, n, maxParameters))
			}
		}
		each(f, func(fn *ast.FuncDecl) { count(fn.Name, fn.Type) })
		each(f, func(i *ast.InterfaceType) {
			for _, m := range i.Methods.List {
				if t, ok := m.Type.(*ast.FuncType); ok && len(m.Names) > 0 {
					count(m.Names[0], t)
				}
			}
		})
	})
	return found
}

func positional(t *ast.FuncType) (n int) {
	for _, field := range t.Params.List {
		_, variadic := field.Type.(*ast.Ellipsis)
		sel, _ := field.Type.(*ast.SelectorExpr)
		if !variadic && (sel == nil || sel.Sel.Name != "Context") {
			n += max(1, len(field.Names))
		}
	}
	return n
}

func interfaceSize(r *Repo) (found []Finding) {
	r.product(func(_ *Package, f *File) {
		each(f, func(spec *ast.TypeSpec) {
			i, ok := spec.Type.(*ast.InterfaceType)
			if ok && i.Methods.NumFields() > maxMethods {
				found = append(found, r.at(spec, "interface %s has %d methods, at most %d; the reader declares only what it calls", spec.Name.Name, i.Methods.NumFields(), maxMethods))
			}
		})
	})
	return found
}

func packageComments(r *Repo) (found []Finding) {
	for _, p := range r.Packages {
		doc, first := "", (*File)(nil)
		for _, f := range p.Files {
			if !f.Test {
				doc += f.Doc.Text()
				if first == nil {
					first = f
				}
			}
		}
		switch {
		case first == nil: // only tests
		case p.Name != "main" && !strings.HasPrefix(doc, "Package "+p.Name+" "):
			found = append(found, r.at(first.Name, "package %s has no comment; begin one with \"Package %s\"", p.Name, p.Name))
		case len(doc) < minPackageDoc || strings.Contains(doc, "is a part of dispatch"):
			found = append(found, r.at(first.Name, "the comment of package %s does not tell its shape: types, who owns which goroutine, which failure does what", p.Name))
		}
	}
	return found
}

// docComments holds that every exported name of a package is explained.
func docComments(r *Repo) (found []Finding) {
	r.product(func(p *Package, f *File) {
		if p.Name == "main" {
			return
		}
		missing := func(name *ast.Ident) {
			found = append(found, r.at(name, "exported %s has no comment; say what it is for", name.Name))
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) {
					missing(d.Name)
				}
			case *ast.GenDecl:
				undocumented(d, missing)
			}
		}
	})
	return found
}

func undocumented(d *ast.GenDecl, missing func(*ast.Ident)) {
	if d.Tok == token.IMPORT {
		return
	}
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if d.Doc == nil && spec.Doc == nil && spec.Comment == nil && spec.Name.IsExported() {
				missing(spec.Name)
			}
		case *ast.ValueSpec:
			if d.Doc == nil && spec.Doc == nil && spec.Comment == nil && spec.Names[0].IsExported() {
				missing(spec.Names[0])
			}
		}
	}
}

func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}
