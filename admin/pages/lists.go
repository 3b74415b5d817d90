package pages

import (
	"net/http"
	"net/url"
	"strings"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/whitelist"
)

// listsPage is every list, and how much waits for each.
type listsPage struct {
	Lists   []actions.ListInfo
	Waiting map[string]int // imports by list
}

func (v *visit) lists() error {
	waiting, err := v.do.WaitingImports(v.r.Context())
	if err != nil {
		return err
	}
	return v.show("lists", listsPage{Lists: v.do.Lists(), Waiting: waiting})
}

// listPage is one list to read, what waits to become its content, and what was typed
// into its forms.
type listPage struct {
	actions.ListInfo
	Waiting []actions.ListImport
	Found   *found // of a search
	Add     string
	Remove  string
	Confirm string // what must be typed to remove many ids
}

// found is whether the list holds an id.
type found struct {
	Contains bool
	Absent   string // why the text is no id
}

func (v *visit) readList() (listPage, error) {
	info, err := v.do.List(v.r.PathValue("list"))
	p := listPage{ListInfo: info, Confirm: v.do.ConfirmList(info.Key)}
	if err == nil {
		p.Waiting, err = v.do.ListImports(v.r.Context(), info.Key)
	}
	return p, err
}

func (v *visit) list() error {
	p, err := v.readList()
	if err != nil {
		return err
	}
	return v.show("list", p)
}

func listPath(key string) string { return "/lists/" + url.PathEscape(key) }

// changedList goes back to the list after a change, or shows it with what was wrong.
func (v *visit) changedList(err error, message string, args ...any) error {
	if err == nil {
		return v.done(listPath(v.r.PathValue("list")), message, args...)
	}
	p, unread := v.readList()
	if unread != nil {
		return err
	}
	p.Add, p.Remove = v.r.PostFormValue("add"), v.r.PostFormValue("remove")
	return v.refuse("list", p, err)
}

// searchList is a form and no link: an id in an address would stay in the history of
// the browser and in the logs of proxies.
func (v *visit) searchList() error {
	p, err := v.readList()
	if err != nil {
		return err
	}
	var f found
	if f.Contains, f.Absent, err = v.do.Contains(v.r.Context(), v.Actor, p.Key, v.r.PostFormValue("id")); err != nil {
		return v.refuse("list", p, err)
	}
	p.Found = &f
	return v.show("list", p)
}

// ids are the lines of a text field.
func ids(text string) (ids []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			ids = append(ids, line)
		}
	}
	return ids
}

func (v *visit) patchList() error {
	out, err := v.do.PatchList(v.r.Context(), v.write(), actions.ListPatch{List: v.r.PathValue("list"),
		Add: ids(v.r.PostFormValue("add")), Remove: ids(v.r.PostFormValue("remove"))})
	return v.changedList(err, "lists.said.patched", "Added", out.Added, "Removed", out.Removed, "Release", out.Release)
}

func (v *visit) applyImport() error {
	out, err := v.do.ApplyImport(v.r.Context(), v.write(), v.r.PathValue("list"), v.r.PathValue("id"))
	return v.changedList(err, "lists.said.applied", "Release", out.Release)
}

func (v *visit) approveImport() error {
	out, err := v.do.ApproveImport(v.r.Context(), v.write(), v.r.PathValue("list"), v.r.PostFormValue("digest"))
	return v.changedList(err, "lists.said.applied", "Release", out.Release)
}

func (v *visit) withdrawImport() error {
	_, err := v.do.WithdrawImport(v.r.Context(), v.write(), v.r.PathValue("list"), v.r.PathValue("id"))
	return v.changedList(err, "lists.said.withdrawn")
}

// exportList is a form and no link, because the export is written down.
func (v *visit) exportList() error {
	format, kind, suffix := whitelist.Lines, "text/plain; charset=utf-8", ".txt"
	if v.r.PostFormValue("format") == string(whitelist.CSV) {
		format, kind, suffix = whitelist.CSV, "text/csv; charset=utf-8", ".csv"
	}
	export, err := v.do.ExportList(v.r.Context(), v.Actor, v.r.PathValue("list"), format)
	if err != nil {
		return v.changedList(err, "")
	}
	return v.download(kind, export.List+suffix, func() error { return export.Write(v.r.Context(), v.w) })
}

// download streams a file. What breaks off on the way ends the connection, so that
// nobody takes a part for the whole.
func (v *visit) download(kind, name string, write func() error) error {
	v.w.Header().Set("Content-Type", kind)
	v.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	if err := write(); err != nil {
		if fault.KindOf(err) == fault.Internal && v.r.Context().Err() == nil {
			v.opt.Log.ErrorContext(v.r.Context(), "download broke off", "file", name, "err", err)
		}
		panic(http.ErrAbortHandler)
	}
	return nil
}
