// Package house holds the rules that keep this repository readable, as tests.
//
// Open reads the files that git knows into a Repo; every rule is a function
// from a Repo to Findings, and TestRepository fails for each finding. A finding
// says what to do. What a rule must let pass stands in exceptions, with the
// reason; an exception that matches nothing fails too.
//
// Packages are type-checked leniently, each on its own and without its imports:
// enough to know which names are package variables, and still useful while
// another package does not compile. Nothing here runs the code it reads.
package house

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxText is the size above which a file is data rather than text people read.
const maxText = 1 << 20

// A Finding is one place that breaks a rule. Text says what to do.
type Finding struct {
	Path string
	Line int
	Text string
}

// String is path:line: text.
func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text) }

// Repo is the repository as the rules see it.
type Repo struct {
	Module   string
	Texts    map[string]string // by path from the root, without data and binaries
	Paths    map[string]bool   // every file, data included
	Packages []*Package        // by folder and name; the tests of package p outside it are p_test
	Broken   []Finding         // Go files that do not parse
	Fset     *token.FileSet
}

// Package is the files of one package in one folder, its inside tests included.
type Package struct {
	Dir   string // from the root; "." is the root
	Name  string
	Files []*File
	Info  *types.Info
	Types *types.Package
}

// File is one Go file.
type File struct {
	Path  string
	Test  bool
	Lines int
	*ast.File
}

// Open reads the working tree at root: all files that are tracked, and those
// that would be, so that a rule is felt before the commit.
func Open(root string) (*Repo, error) {
	git := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	list, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("list files of %s with git: %w", root, err)
	}
	files := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted but not yet committed, or a link
		}
		if info.Size() > maxText {
			files[name] = ""
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		files[name] = string(text)
	}
	return New(files), nil
}

// New makes a Repo of files given by path; the rules' own tests use it.
func New(files map[string]string) *Repo {
	r := &Repo{Texts: map[string]string{}, Paths: map[string]bool{}, Fset: token.NewFileSet()}
	packages := map[[2]string]*Package{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		r.Paths[name] = true
		if text == "" || strings.Contains(text, "\x00") {
			continue
		}
		r.Texts[name] = text
		if name == "go.mod" {
			r.Module, _, _ = strings.Cut(strings.TrimPrefix(text, "module "), "\n")
		}
		if !strings.HasSuffix(name, ".go") || strings.Contains("/"+name, "/testdata/") || ownModule(files, name) {
			continue
		}
		syntax, err := parser.ParseFile(r.Fset, name, text, parser.ParseComments)
		if err != nil {
			r.Broken = append(r.Broken, Finding{name, 1, "does not parse: " + err.Error()})
			continue
		}
		id := [2]string{path.Dir(name), syntax.Name.Name}
		if packages[id] == nil {
			packages[id] = &Package{Dir: id[0], Name: id[1]}
		}
		packages[id].Files = append(packages[id].Files, &File{Path: name, Test: strings.HasSuffix(name, "_test.go"),
			Lines: strings.Count(text, "\n"), File: syntax})
	}
	r.Packages = slices.SortedFunc(maps.Values(packages), func(a, b *Package) int {
		return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range r.Packages {
		p.check(r.Fset)
	}
	return r
}

// ownModule says whether a file lies in a module of its own, such as bench/peers.
func ownModule(files map[string]string, name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, found := files[dir+"/go.mod"]; found {
			return true
		}
	}
	return false
}

// check resolves names inside the package; errors, such as imports that are not
// followed, are of no interest.
func (p *Package) check(fset *token.FileSet) {
	p.Info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	var files []*ast.File
	for _, f := range p.Files {
		files = append(files, f.File)
	}
	conf := types.Config{Error: func(error) {}}
	p.Types, _ = conf.Check(p.Dir, fset, files, p.Info)
}

// packageVar is the package variable that an expression stands for, nil if none.
func (p *Package) packageVar(e ast.Expr) *types.Var {
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	v, ok := p.Info.Uses[id].(*types.Var)
	if !ok || p.Types == nil || v.Parent() != p.Types.Scope() {
		return nil
	}
	return v
}

// imported is the import path that a name in f stands for, empty if none.
func (p *Package) imported(f *File, e ast.Expr) string {
	id, ok := e.(*ast.Ident)
	if !ok {
		return ""
	}
	if object := p.Info.Uses[id]; object != nil {
		if name, ok := object.(*types.PkgName); ok {
			return name.Imported().Path()
		}
		return ""
	}
	for _, spec := range f.Imports { // the checker guesses names of imports, and misses some
		if id.Name == importName(spec) && p.Info.Defs[id] == nil {
			return strings.Trim(spec.Path.Value, `"`)
		}
	}
	return ""
}

// importName is the name an import is used by: its alias, else the last element
// of its path that is no version.
func importName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	elements := strings.Split(strings.Trim(spec.Path.Value, `"`), "/")
	last := elements[len(elements)-1]
	if len(elements) > 1 && len(last) > 1 && last[0] == 'v' && strings.Trim(last[1:], "0123456789") == "" {
		last = elements[len(elements)-2]
	}
	return strings.TrimSuffix(strings.TrimPrefix(last, "go-"), "-golang")
}

// product calls visit for every file that is built into a program and written by hand.
func (r *Repo) product(visit func(*Package, *File)) {
	r.files(func(p *Package, f *File) {
		if !f.Test && !ast.IsGenerated(f.File) {
			visit(p, f)
		}
	})
}

// files calls visit for every Go file.
func (r *Repo) files(visit func(*Package, *File)) {
	for _, p := range r.Packages {
		for _, f := range p.Files {
			visit(p, f)
		}
	}
}

// at is a finding at a node.
func (r *Repo) at(n ast.Node, format string, args ...any) Finding {
	place := r.Fset.Position(n.Pos())
	return Finding{place.Filename, place.Line, fmt.Sprintf(format, args...)}
}

// each visits every node of a file of type N.
func each[N ast.Node](f *File, visit func(N)) {
	ast.Inspect(f.File, func(n ast.Node) bool {
		if node, ok := n.(N); ok {
			visit(node)
		}
		return true
	})
}
