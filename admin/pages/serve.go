package pages

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
)

// csp is the content security policy of every page: nothing inline, nothing from
// elsewhere, never in a frame.
const csp = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxForm bounds a form in bytes, as the API bounds its JSON. Uploads are multipart
// and read by their page as they come.
const maxForm = 8 << 20

// ServeHTTP answers one request.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy":      csp,
		"X-Frame-Options":              "DENY", // for browsers that do not know frame-ancestors
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=()",
		"Cache-Control":                "no-store",
	} {
		w.Header().Set(name, value)
	}
	if _, pattern := p.mux.Handler(r); pattern == "" {
		p.unknown(w, r)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// unknown answers a path that is none, and a method that the path does not take.
func (p *Pages) unknown(w http.ResponseWriter, r *http.Request) {
	status, body := http.StatusNotFound, fault.Body{Code: "unknown_path", Detail: "no such path", Hint: "the navigation has all pages"}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if _, pattern := p.mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host}); pattern != "" {
			status, body = http.StatusMethodNotAllowed, fault.Body{Code: "unknown_method", Detail: "no such method on this path", Hint: "open the page and use its forms"}
			w.Header().Set("Allow", method)
		}
	}
	body.Status, body.Title = status, http.StatusText(status)
	v := &visit{Pages: p, w: w, r: r, lang: p.language(r)}
	v.Visitor, _ = p.opt.Visitors.Visitor(r) // signed out: the page without its bar
	if !wantsPage(r) || strings.HasPrefix(r.URL.Path, "/api/") {
		body.Hint = "GET /api/v1/openapi.json lists all paths and what they take"
		v.problem(body)
		return
	}
	v.fail(body)
}

// wantsPage says whether the caller reads HTML: what browsers send.
func wantsPage(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") || r.Header.Get("X-Fragment") != ""
}

// answer admits a visitor to one row of the table, and shows what goes wrong there.
func (p *Pages) answer(row page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(actions.Patient(r.Context()))
		v := &visit{Pages: p, w: w, r: r, lang: p.language(r)}
		defer func() {
			if caught := recover(); caught != nil {
				if caught == http.ErrAbortHandler {
					panic(caught)
				}
				v.broken(row, fmt.Errorf("panic: %v\n%s", caught, debug.Stack()))
			}
		}()
		if v.choose() {
			return
		}
		in, err := v.admit(row)
		if err == nil && in {
			err = row.do(v)
		}
		if err != nil {
			v.broken(row, err)
		}
	})
}

// admit finds out who asks, whether they may, and what their form says. It is false
// for somebody who was sent elsewhere.
func (v *visit) admit(row page) (bool, error) {
	visitor, err := v.opt.Visitors.Visitor(v.r)
	if row.operation == "" { // signing in and out
		v.Visitor = visitor
		return true, v.readForm()
	}
	switch {
	case fault.KindOf(err) == fault.Unauthenticated:
		v.signIn()
		return false, nil
	case err != nil:
		return false, err
	case visitor.MustChange && row.operation != "own-account":
		v.send("/account")
		return false, nil
	}
	v.Visitor = visitor
	if err := visitor.May(row.operation); err != nil {
		return false, err
	}
	return true, v.readForm()
}

// signIn sends a browser to the sign-in page, which brings it back. The script
// hears of it by the status: a fragment cannot hold that page.
func (v *visit) signIn() {
	if v.fragment() != "" || strings.HasPrefix(v.r.URL.Path, "/events/") {
		v.w.WriteHeader(http.StatusUnauthorized)
		return
	}
	next := "/"
	if v.r.Method == http.MethodGet || v.r.Method == http.MethodHead {
		next = v.r.URL.RequestURI()
	}
	v.send("/login?next=" + url.QueryEscape(next))
}

// send goes on to another page. The script follows by itself: what it would get by
// a redirect it could not put in place.
func (v *visit) send(path string) {
	if v.fragment() != "" {
		v.w.Header().Set("X-Location", path)
		v.w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
}

// fragment is the element that the script asked for alone, empty for the whole page.
func (v *visit) fragment() string { return v.r.Header.Get("X-Fragment") }

// readForm reads a form that is not an upload.
func (v *visit) readForm() error {
	kind, _, _ := mime.ParseMediaType(v.r.Header.Get("Content-Type")) // none: no form
	if v.r.Method != http.MethodPost || kind != "application/x-www-form-urlencoded" {
		return nil
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
	err := v.r.ParseForm()
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return fault.New(fault.TooLarge, "too_large", "the form has more than 8 MiB").WithHint("import larger things as files").Because(err)
	}
	if err != nil {
		return fault.New(fault.Invalid, "bad_form", "the form could not be read").
			WithHint("go back and send it again").Because(err)
	}
	return nil
}

// broken answers with the error as a page. Our own are logged here and nowhere else,
// unless the caller has gone and that is all that went wrong.
func (v *visit) broken(row page, err error) {
	if fault.KindOf(err) == fault.Internal && v.r.Context().Err() == nil {
		v.opt.Log.ErrorContext(v.r.Context(), "page failed", "page", row.pattern, "err", err)
	}
	v.fail(fault.BodyOf(err))
}
