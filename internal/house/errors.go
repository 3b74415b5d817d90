package house

import (
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// properNames may begin an error text with a capital.
const properNames = " Redis Consul Nacos Chromium Unicode Go Ed25519 Go's "

// idlePhrases say nothing that the chain of errors does not say.
var idlePhrases = []string{"failed to", "failure to", "error while", "error when", "unable to", "an error occurred"}

// errorText holds how an error reads: part of a chain, in lower case, the operation and its key.
func errorText(r *Repo) (found []Finding) {
	r.product(func(_ *Package, f *File) {
		each(f, func(call *ast.CallExpr) {
			text := errorFormat(call)
			if text == "" {
				return
			}
			for _, phrase := range idlePhrases {
				if strings.Contains(strings.ToLower(text), phrase) {
					found = append(found, r.at(call, "%q says %q; name the operation and its key: \"open store %%s: %%w\"", text, phrase))
				}
			}
			word, _, _ := strings.Cut(text, " ")
			first, size := utf8.DecodeRuneInString(word)
			second, _ := utf8.DecodeRuneInString(word[size:])
			name := strings.ContainsFunc(word[size:], unicode.IsUpper) || // MySQL, If-Match
				strings.Contains(properNames, " "+strings.TrimRight(word, ":,")+" ")
			if unicode.IsUpper(first) && unicode.IsLower(second) && !name {
				found = append(found, r.at(call, "%q begins with a capital; errors are joined, so write it in lower case (names go into properNames in internal/house)", text))
			}
			if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "\n") {
				found = append(found, r.at(call, "%q ends a sentence; errors are joined, so leave the end open", text))
			}
		})
	})
	return found
}

// errorWrap holds that a cause stays reachable.
func errorWrap(r *Repo) (found []Finding) {
	r.product(func(_ *Package, f *File) {
		each(f, func(call *ast.CallExpr) {
			if dotted(call.Fun) != "fmt.Errorf" || strings.Contains(errorFormat(call), "%w") {
				return
			}
			for _, arg := range call.Args[1:] {
				if dotted(arg) == "err" {
					found = append(found, r.at(call, "wrap err with %%w, so that callers can ask what it is"))
				}
			}
		})
	})
	return found
}

// errorFormat is the text of a call that makes an error, empty for other calls.
func errorFormat(call *ast.CallExpr) string {
	place := map[string]int{"errors.New": 0, "fmt.Errorf": 0, "fault.New": 2}
	if n, ok := place[dotted(call.Fun)]; ok && len(call.Args) > n {
		return literal(call.Args[n])
	}
	return ""
}

// literal is the value of a string literal, empty for anything else.
func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(lit.Value)
	return text
}

// errorsIs holds the order of arguments: with the sentinel first, only the bare
// sentinel matches, never a wrapped one.
func errorsIs(r *Repo) (found []Finding) {
	r.files(func(p *Package, f *File) {
		each(f, func(call *ast.CallExpr) {
			if dotted(call.Fun) != "errors.Is" || len(call.Args) != 2 {
				return
			}
			first := call.Args[0]
			sentinel := p.packageVar(first) != nil
			if sel, ok := first.(*ast.SelectorExpr); ok {
				sentinel = p.imported(f, sel.X) != ""
			}
			if id, ok := first.(*ast.Ident); ok {
				_, isConst := p.Info.Uses[id].(*types.Const)
				sentinel = sentinel || isConst
			}
			if sentinel {
				found = append(found, r.at(call, "errors.Is(err, sentinel): the error comes first, else a wrapped one never matches"))
			}
		})
	})
	return found
}
