package pages

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

// ordinary are the codes of refusals that people meet in ordinary work: a page in
// Chinese says each of them, and its next step, in Chinese. What is not here is a
// mistake in a document or in the start of a process, or comes from a pipeline.
func ordinary() []string {
	return strings.Fields(`
		role no_reason confirm_mismatch expect_mismatch stale_base stale_paper stale_approval stale_plan draft_state draft_conflict base_current
		frozen canary_running store_behind fork no_release busy idempotency_key_used
		safety_rule bad_override last_region last_domain region_empty region_removed big_move no_change endpoint_off unknown_endpoint no_serving_endpoint
		unknown_app unknown_region unknown_cluster unknown_policy bad_emergency
		needs_approval self_approval already_approved bad_digest target_changed held
		host_not_approved host_outside_suffixes outside_suffixes unknown_host duplicate
		list_changed unknown_list unknown_import import_state bad_max no_file bad_upload bad_ids too_many_look_ups
		not_approved gray_state not_ready salt_changed no_step gray_changed steps_left not_everywhere no_plan no_gray share_form bad_share signal_fails bad_plan
		gray_running changed last_step approval_required
		bad_settings bad_document bad_base bad_draft bad_time no_zone unknown_release
		too_many_tries bad_credentials disabled password_expired not_armed no_role bad_password weak_password bad_code bad_secret no_second_factor signed_out session_ended
		not_local last_administrator own_roles administrators_only not_break_glass bad_account
		too_large bad_form too_many_streams store_timeout store_busy store_full store_unavailable cross_origin`)
}

// source is a sentence of Go's, or a part of one.
type source struct{ text, where string }

// sources are the sentences of ordinary refusals and of rules, and all literals.
func sources(t *testing.T) (needed []source, literals map[string]bool) {
	t.Helper()
	literals = map[string]bool{}
	for _, pattern := range []string{"../actions/*.go", "*.go", "../signin/*.go", "../../domain/*.go", "../../internal/fault/*.go", "../../release/guard.go", "../../release/operational*.go",
		"../../store/account.go", "../../store/approval.go", "../../store/change.go", "../../store/errors.go", "../../store/host.go", "../../store/paper.go", "../../store/release.go"} {
		for _, name := range must(filepath.Glob(pattern)) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			ast.Inspect(must(parser.ParseFile(set, name, nil, 0)), func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					if text, ok := literal(e); ok {
						literals[text] = true
					}
				}
				if call, ok := n.(*ast.CallExpr); ok {
					texts := said(call)
					if slices.Contains(checks(), filepath.Base(name)) && called(call) == "Addf" {
						texts = words(call, 1)
					}
					for _, text := range texts {
						needed = append(needed, source{text, fmt.Sprintf("%s:%d", name, set.Position(call.Pos()).Line)})
					}
				}
				return true
			})
		}
	}
	return needed, literals
}

// checks are the files whose findings about an input people meet in forms.
func checks() []string { return []string{"gray_plan.go", "target.go", "freeze.go", "settings.go"} }

// said are the sentences of one call that a page must be able to say.
func said(call *ast.CallExpr) []string {
	known := slices.Contains(ordinary(), codeOf(call))
	switch name := called(call); {
	case name == "Textf", name == "Word", name == "changedEntry", known && name == "Hintf":
		return words(call, 0)
	case name == "mismatch", known && name == "Err":
		return words(call, 1)
	case known && name == "New":
		return words(call, 2)
	case name == "wrongState":
		return words(call, 1, 2)
	case known && name == "WithHint":
		if _, joined := call.Args[0].(*ast.BinaryExpr); joined && len(words(call, 0)) == 0 {
			return []string{"a hint that is put together without Hintf"}
		}
		return words(call, 0)
	}
	return nil
}

// words are the arguments that are sentences: written out, and more than values.
func words(call *ast.CallExpr, args ...int) (texts []string) {
	for _, i := range args {
		if text, ok := literal(call.Args[i]); ok && strings.Trim(text, "%s") != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// called is the name of the function.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// codeOf is the code of the fault that a chain of calls begins with.
func codeOf(call *ast.CallExpr) string {
	switch called(call) {
	case "New", "Err":
		for _, arg := range call.Args[:min(2, len(call.Args))] {
			if code, ok := literal(arg); ok {
				return code
			}
		}
	case "WithHint", "Hintf", "Because":
		if before, ok := call.Fun.(*ast.SelectorExpr).X.(*ast.CallExpr); ok {
			return codeOf(before)
		}
	}
	return ""
}

// literal is a string as it is written, in one piece or in several.
func literal(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, err == nil && x.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok1 := literal(x.X)
		right, ok2 := literal(x.Y)
		return left + right, ok1 && ok2
	}
	return "", false
}

// A refusal of ordinary work, its next step, and every text of a safety rule or a
// need are in the catalogue: whoever writes a new one writes it in Chinese, too.
func TestCatalogueKnowsWhatGoSaysInOrdinaryWork(t *testing.T) {
	t.Parallel()
	c := must(readCatalogue(files))
	needed, literals := sources(t)
	if len(needed) < 100 {
		t.Fatalf("only %d sentences were found", len(needed))
	}
	for _, s := range needed {
		if c.told["zh"][s.text] == "" {
			t.Errorf("%s: locale/en/faults.yaml and locale/zh/faults.yaml lack %q", s.where, s.text)
		}
	}
	for english := range c.told["en"] {
		if !literals[english] {
			t.Errorf("locale/en/faults.yaml has what Go does not say: %q", english)
		}
	}
}

// Both languages put the same values into a sentence, each in the same form.
func TestCatalogueTellsTheSameValues(t *testing.T) {
	t.Parallel()
	c := must(readCatalogue(files))
	verb := regexp.MustCompile(`%(?:\[(\d+)\])?([.\d]*[a-z]|%)`)
	values := func(format string) (found []string) {
		next := 1
		for _, m := range verb.FindAllStringSubmatch(format, -1) {
			if m[2] == "%" {
				continue
			}
			if m[1] != "" {
				next = must(strconv.Atoi(m[1]))
			}
			found = append(found, fmt.Sprint(next, m[2]))
			next++
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	for english, chinese := range c.told["zh"] {
		if en, zh := values(english), values(chinese); !slices.Equal(en, zh) {
			t.Errorf("%q has %v and %q has %v", english, en, chinese, zh)
		}
		if chinese == english {
			t.Errorf("%q is English in Chinese", english)
		}
	}
}

// A sentence that the catalogue does not know, and one whose English somebody
// changed by itself, are said in English; their parts in Chinese where they can.
func TestWhatIsUnknownIsToldInEnglish(t *testing.T) {
	t.Parallel()
	c := &catalogue{told: map[string]map[string]string{"en": {}, "zh": {"%s is %d": "共 %[2]d 个 %[1]s", "100 % off": "全免", "paused": "已暂停"}}}
	for _, row := range []struct {
		text fault.Text
		want string
	}{
		{fault.Textf("%s is %d", "x", 3), "共 3 个 x"},
		{fault.Word("100 % off"), "全免"},
		{fault.Word("90 % off"), "90 % off"},
		{fault.Textf("%d %% off", 90), "90 % off"},
		{fault.Textf("so: %s", fault.Word("paused")), "so: 已暂停"},
		{fault.Textf("%s is %d", "x", 3).For("x is 4"), "x is 4"},
		{fault.Join("%s; %s", []fault.Text{fault.Word("paused"), fault.Word("a"), fault.Textf("%s is %d", "x", 3)}), "已暂停; a; 共 3 个 x"},
	} {
		if got := c.tell("zh", row.text); got != row.want {
			t.Errorf("%q is told as %q, want %q", row.text, got, row.want)
		}
		if got := c.tell("en", row.text); got != row.text.String() {
			t.Errorf("%q is told as %q in English", row.text, got)
		}
	}
}
