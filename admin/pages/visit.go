package pages

import (
	"net/http"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
)

// visit is one request to one page by somebody who may make it.
type visit struct {
	*Pages
	w http.ResponseWriter
	r *http.Request
	signin.Visitor
	lang string // en or zh
}

// write is what the form says about the change: reason, key, confirm and override.
func (v *visit) write() actions.Write {
	return actions.Write{Actor: v.Actor, Reason: v.r.PostFormValue("reason"), Key: v.r.PostFormValue("key"),
		Confirm: v.r.PostFormValue("confirm"), Override: v.r.PostForm["override"]}
}

// show answers with templates/NAME.html. data is .Page of the template. A script
// that asked for a fragment (X-Fragment: NAME) gets the block of that name alone.
func (v *visit) show(name string, data any) error { panic("unbuilt") }

// refuse shows the page again with what was wrong: err stays visible above the form.
func (v *visit) refuse(name string, data any, err error) error { panic("unbuilt") }

// done goes on to another page after a change, which shows the message once.
// message is an id of the catalogue, args are pairs of a name and a value.
func (v *visit) done(path, message string, args ...any) error { panic("unbuilt") }
