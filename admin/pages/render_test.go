package pages

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/internal/fault"
)

// samples are what the pages show, by template: fill makes a value of the type with
// every text in it the same. A page that shows nothing of its own has nil.
func samples() map[string]any {
	return map[string]any{
		"error": nil, "home": homePage{}, "emergency": &emergencyPage{}, "explain": explainPage{}, "fleet": fleetPage{},
		"events": progress{}, "effect": effectPage{},
		"map": &mapPage{}, "services": servicesPage{}, "service": &servicePage{}, "queues": queuesPage{}, "calls": callsPage{},
		"access": accessPage{}, "account": accountPage{}, "login": loginPage{},
		"gray": []actions.GrayStatus{}, "grayrun": grayPage{}, "graypreview": grayPreview{},
		"changes": changesPage{}, "draft": draftPage{}, "draft_edit": editPage{}, "release": releasePage{}, "diff": diffPage{},
		"lists": listsPage{}, "list": listPage{}, "list_import": importPage{}, "audit": auditPage{},
		"domains": &domainsPage{}, "host": &registered{},
		"rules": rulesPage{}, "settings": settingsPage{},
	}
}

// fill sets everything in v that can hold something: texts to text, slices and
// maps to one element.
func fill(v reflect.Value, text string, depth int) {
	if depth > 12 || !v.CanSet() && v.Kind() != reflect.Struct { // an embedded struct cannot be set, its fields can
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text, depth+1)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2027, 3, 1, 2, 30, 0, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), text, depth+1)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(fmt.Sprintf("%q", text)))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		for i := range v.Len() {
			fill(v.Index(i), text, depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), text, depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text, depth+1)
		fill(elem, text, depth+1)
		v.SetMapIndex(key, elem)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(text))
		}
	}
}

// drawn is a page with one text everywhere.
func drawn(t *testing.T, c *console, lang, name string, sample any, text string) string {
	t.Helper()
	page := view{Lang: lang, Path: text, Theme: "dark", Said: text, Nav: []link{{Path: text, Name: text}},
		Error: &fault.Body{Code: text, Detail: text, Hint: text, Problems: []fault.Problem{{Path: text, Line: 1, Detail: text, Hint: text}}},
		Me:    signin.Visitor{Actor: actions.Actor{Name: text, Roles: []string{text}}, Display: text}}
	fill(reflect.ValueOf(&page.Bar).Elem(), text, 0)
	fill(reflect.ValueOf(&page.Here).Elem(), text, 0)
	if sample != nil {
		v := reflect.New(reflect.TypeOf(sample)).Elem()
		fill(v, text, 0)
		page.Page = v.Interface()
	}
	set := must(c.pages.templates.of(lang, []string{actions.Administrator}, name))
	var out bytes.Buffer
	if err := set.ExecuteTemplate(&out, "layout", page); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return out.String()
}

// shape is the page without its texts: each element with its attributes' names, and
// what attributes that load or run something begin with.
func shape(text string) (elements []string) {
	z := html.NewTokenizer(strings.NewReader(text))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return elements
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			var names []string
			for _, a := range token.Attr {
				names = append(names, a.Key)
				if slices.Contains([]string{"href", "src", "action", "formaction"}, a.Key) {
					scheme, _, found := strings.Cut(strings.ToLower(strings.TrimSpace(a.Val)), ":")
					if found && !strings.ContainsAny(scheme, "/?#") {
						names = append(names, scheme+":")
					}
				}
			}
			slices.Sort(names)
			elements = append(elements, token.Data+" "+strings.Join(names, " "))
		}
	}
}

// payloads are what people put into text fields to run a script of theirs.
func payloads() []string {
	return []string{
		`<script>alert(1)</script>`, `"><script>alert(1)</script>`, `'><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`,
		`'><img src=x onerror=alert(1)>`, `<img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`, `<svg><script>alert(1)</script></svg>`,
		`"><svg/onload=alert(1)//`, `<iframe src="javascript:alert(1)">`, `<iframe srcdoc="<script>alert(1)</script>">`, `javascript:alert(1)`,
		`JaVaScRiPt:alert(1)`, "java\tscript:alert(1)", ` javascript:alert(1)`, `data:text/html,<script>alert(1)</script>`,
		`vbscript:msgbox(1)`, `" onmouseover="alert(1)`, `' onmouseover='alert(1)`, `" autofocus onfocus="alert(1)`,
		`x onmouseover=alert(1)`, `</title><script>alert(1)</script>`, `</textarea><script>alert(1)</script>`, `</style><script>alert(1)</script>`,
		`</script><script>alert(1)</script>`, `</option></select><script>alert(1)</script>`, `--><script>alert(1)</script>`, `<!--<script>alert(1)//-->`,
		`<style>*{background:url(//evil.example)}</style>`, `" style="background:url(//evil.example)`, `<base href="//evil.example/">`, `<meta http-equiv="refresh" content="0;url=//evil.example">`,
		`<link rel=stylesheet href=//evil.example>`, `<object data="javascript:alert(1)">`, `<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>`, `{{.Me.Name}}`,
		`{{template "layout" .}}`, `\u003cscript\u003ealert(1)\u003c/script\u003e`, "`-alert(1)-`", `<a href="//evil.example" target=_blank>x</a>`,
	}
}

// A text is a text wherever it is shown: the page has the same elements and
// attributes as with a harmless one. What a browser makes of it, e2e/browser tries.
func TestSEC11TextsStayTexts(t *testing.T) {
	t.Parallel()
	if len(payloads()) < 40 {
		t.Fatalf("%d payloads", len(payloads()))
	}
	c := open(t, "", actions.Administrator)
	for name, sample := range samples() {
		want := shape(drawn(t, c, "en", name, sample, "harmless"))
		for _, payload := range payloads() {
			if got := shape(drawn(t, c, "en", name, sample, payload)); !slices.Equal(got, want) {
				t.Errorf("%s changes with %q: %s", name, payload, firstDifference(got, want))
			}
		}
	}
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("<%s> instead of <%s>", got[i], want[i])
		}
	}
	return fmt.Sprintf("%d elements instead of %d", len(got), len(want))
}

func TestEveryTemplateRendersInEachLanguage(t *testing.T) {
	t.Parallel()
	c := open(t, "", actions.Administrator)
	for _, file := range must(fs.Glob(files, "templates/*.html")) {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if slices.Contains(shared(), file) {
			continue
		}
		sample, ok := samples()[name]
		if !ok {
			t.Errorf("%s has no sample: add the type that it shows to samples", file)
			continue
		}
		for _, lang := range languages() {
			text := drawn(t, c, lang, name, sample, "harmless")
			if strings.Count(text, "<h1") > 1 {
				t.Errorf("%s has several h1", name)
			}
			for _, banned := range []string{" style=", " onclick=", "<script>", "<style", `href="http`, `src="http`} {
				if strings.Contains(text, banned) {
					t.Errorf("%s has %s", name, banned)
				}
			}
		}
	}
}
