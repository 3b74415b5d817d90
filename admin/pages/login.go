package pages

import (
	"net/http"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/internal/fault"
)

// loginPage is the form of who has not signed in.
type loginPage struct {
	Next, Login string
	Provider    string // issuer; empty: none
}

func (v *visit) loginPage(login string) loginPage {
	page := loginPage{Next: v.next(v.r.FormValue("next")), Login: login}
	if state, ok := v.opt.SignIn.ProviderState(); ok {
		page.Provider = state.Issuer
	}
	return page
}

// next is where to go after signing in: a page of ours, else the first one.
func (v *visit) next(raw string) string {
	path := signin.Local(raw)
	r, err := http.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		return "/"
	}
	if _, pattern := v.mux.Handler(r); pattern == "" {
		return "/"
	}
	return path
}

// login shows the form. Who has signed in already goes on.
func (v *visit) login() error {
	if v.opt.SignIn == nil {
		return fault.New(fault.NotFound, "no_sign_in", "nobody signs in here").WithHint("use the API with a token")
	}
	if v.Name != "" {
		v.send(v.next(v.r.FormValue("next")))
		return nil
	}
	return v.show("login", v.loginPage(""))
}

// signInNow takes the form.
func (v *visit) signInNow() error {
	if v.opt.SignIn == nil {
		return v.login()
	}
	form := v.r.PostForm
	_, err := v.opt.SignIn.In(v.w, v.r, actions.Credentials{Login: form.Get("login"), Password: form.Get("password"), Code: form.Get("code")})
	if err != nil {
		v.Visitor = signin.Visitor{}
		return v.refuse("login", v.loginPage(form.Get("login")), err)
	}
	v.send(v.next(form.Get("next")))
	return nil
}

// signOut ends the session.
func (v *visit) signOut() error {
	if v.opt.SignIn == nil {
		return v.login()
	}
	if err := v.opt.SignIn.Out(v.w, v.r); err != nil {
		return err
	}
	return v.done("/login", "login.out")
}

// toProvider sends the browser to the identity provider. It is a link and no form,
// because the content security policy lets no form lead elsewhere.
func (v *visit) toProvider() error {
	if v.opt.SignIn == nil {
		return v.login()
	}
	at, err := v.opt.SignIn.Begin(v.w, v.r, v.next(v.r.FormValue("next")))
	if err != nil {
		return v.refuse("login", v.loginPage(""), err)
	}
	http.Redirect(v.w, v.r, at, http.StatusSeeOther)
	return nil
}

// fromProvider is where the provider sends the browser back to.
func (v *visit) fromProvider() error {
	if v.opt.SignIn == nil {
		return v.login()
	}
	next, err := v.opt.SignIn.Callback(v.w, v.r)
	if err != nil {
		v.Visitor = signin.Visitor{}
		return v.refuse("login", v.loginPage(""), err)
	}
	v.send(v.next(next))
	return nil
}
