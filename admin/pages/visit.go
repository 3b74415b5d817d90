package pages

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/internal/fault"
)

// visit is one request to one page by somebody who may make it.
type visit struct {
	*Pages
	w http.ResponseWriter
	r *http.Request
	signin.Visitor
	lang string // en or zh
}

// view is what a template sees.
type view struct {
	Page  any // what the page passed to show
	Me    signin.Visitor
	Path  string
	Lang  string
	Theme string // light, dark; empty: as the system has it
	Bar   bar
	Nav   []link
	Error *fault.Body // what was wrong with the form; nil: nothing
	Said  string      // what the last change did
	Here  here
	Got   bool // by GET, so that it can be got again
}

// here are links to the same page in another language or theme.
type here struct{ English, Chinese, Light, Dark, System string }

// write is what the form says about the change: reason, key, confirm and override.
func (v *visit) write() actions.Write {
	return actions.Write{Actor: v.Actor, Reason: v.r.PostFormValue("reason"), Key: v.r.PostFormValue("key"),
		Confirm: v.r.PostFormValue("confirm"), Override: v.r.PostForm["override"]}
}

// show answers with templates/NAME.html. data is .Page of the template. A script
// that asked for a fragment (X-Fragment: NAME) gets the block of that name alone.
func (v *visit) show(name string, data any) error {
	return v.render(http.StatusOK, name, view{Page: data, Said: v.said()})
}

// refuse shows the page again with what was wrong: err stays visible above the form.
func (v *visit) refuse(name string, data any, err error) error {
	if fault.KindOf(err) == fault.Internal {
		return err
	}
	body := fault.BodyOf(err)
	return v.render(body.Status, name, view{Page: data, Error: &body})
}

// done goes on to another page after a change, which shows the message once.
// message is an id of the catalogue, args are pairs of a name and a value.
func (v *visit) done(path, message string, args ...any) error {
	text, err := json.Marshal(saying{message, args})
	if err != nil {
		return fmt.Errorf("write message %s: %w", message, err)
	}
	http.SetCookie(v.w, v.cookie(saidCookie, base64.RawURLEncoding.EncodeToString(text), 60))
	v.send(path)
	return nil
}

// fail shows an error that no page shows by itself.
func (v *visit) fail(body fault.Body) {
	if err := v.render(body.Status, "error", view{Error: &body}); err != nil {
		v.opt.Log.ErrorContext(v.r.Context(), "error page failed", "err", err)
		http.Error(v.w, body.Title, body.Status)
	}
}

// problem is the same for who reads no pages.
func (v *visit) problem(body fault.Body) {
	v.w.Header().Set("Content-Type", "application/problem+json")
	v.w.WriteHeader(body.Status)
	_ = json.NewEncoder(v.w).Encode(body) // the caller has gone
}

// render executes the template into memory, so that one that fails leaves no half page.
func (v *visit) render(status int, name string, page view) error {
	set, err := v.templates.of(v.lang, v.Roles, name)
	if err != nil {
		return err
	}
	page.Me, page.Path, page.Lang, page.Theme = v.Visitor, v.r.URL.Path, v.lang, v.theme()
	page.Got = v.r.Method == http.MethodGet
	var out bytes.Buffer
	if block := v.fragment(); block != "" && isFragment(set, block) {
		v.w.Header().Set("X-Fragment", block)
		if block == "bar" {
			page.Bar = v.bar()
		}
		if err := set.ExecuteTemplate(&out, "said", page); err != nil {
			return fmt.Errorf("show %s: %w", name, err)
		}
		if err := set.ExecuteTemplate(&out, block, page); err != nil {
			return fmt.Errorf("show %s of %s: %w", block, name, err)
		}
	} else {
		page.Bar, page.Nav, page.Here = v.bar(), v.navigation(), v.here()
		if err := set.ExecuteTemplate(&out, "layout", page); err != nil {
			return fmt.Errorf("show %s: %w", name, err)
		}
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.Header().Set("Content-Language", v.lang)
	v.w.WriteHeader(status)
	_, _ = v.w.Write(out.Bytes()) // the caller has gone
	return nil
}

const (
	langCookie  = "dispatch_lang"
	themeCookie = "dispatch_theme"
	saidCookie  = "dispatch_said"
	aYear       = 365 * 24 * 60 * 60 // seconds
)

func (v *visit) cookie(name, value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true,
		Secure: v.r.TLS != nil, SameSite: http.SameSiteLaxMode}
}

// saying is the message of a change that was done, on its way to the next page. It
// names a message of the catalogue, so whoever forges one can only choose among those.
type saying struct {
	Message string `json:"m"`
	Args    []any  `json:"a,omitempty"`
}

// said is the message of the last change; it is shown once.
func (v *visit) said() string {
	cookie, err := v.r.Cookie(saidCookie)
	if err != nil || v.fragment() != "" {
		return ""
	}
	http.SetCookie(v.w, v.cookie(saidCookie, "", -1))
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	var s saying
	if err != nil || json.Unmarshal(text, &s) != nil || !v.catalogue.has(s.Message) {
		return ""
	}
	return v.catalogue.say(v.lang, s.Message, s.Args...)
}

// choose keeps a language or a theme that the visitor chose by a link, and goes on to
// the page without it.
func (v *visit) choose() bool {
	query := v.r.URL.Query()
	chosen := false
	for name, kept := range map[string]string{"lang": langCookie, "theme": themeCookie} {
		value := query.Get(name)
		if !query.Has(name) || v.r.Method != http.MethodGet {
			continue
		}
		query.Del(name)
		chosen = true
		if slices.Contains([]string{"en", "zh", "light", "dark", "system"}, value) {
			http.SetCookie(v.w, v.cookie(kept, value, aYear))
		}
	}
	if chosen {
		v.send((&url.URL{Path: v.r.URL.Path, RawQuery: query.Encode()}).String())
	}
	return chosen
}

// here are the links that choose reads.
func (v *visit) here() here {
	with := func(name, value string) string {
		query := v.r.URL.Query()
		if v.r.Method != http.MethodGet {
			query = url.Values{}
		}
		query.Set(name, value)
		return "?" + query.Encode()
	}
	return here{English: with("lang", "en"), Chinese: with("lang", "zh"),
		Light: with("theme", "light"), Dark: with("theme", "dark"), System: with("theme", "system")}
}

func (v *visit) theme() string {
	cookie, err := v.r.Cookie(themeCookie)
	if err != nil || cookie.Value != "light" && cookie.Value != "dark" {
		return ""
	}
	return cookie.Value
}
