package pages

import (
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"sync"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/whitelist"
)

const (
	// maxUpload bounds an upload in bytes: the largest import, and a form around it.
	maxUpload = whitelist.DefaultMaxBytes + 1<<20
	// maxValue bounds a field that stands before the file.
	maxValue = 4 << 10
	// importStep is how often the progress of an import is looked at.
	importStep = 250 * time.Millisecond
)

// imports are the imports that pages of this node run, by who runs them and the key
// of their form.
type imports struct{ of sync.Map }

func (v *visit) importKey(key string) string { return v.Name + "\x00" + key }

// importPage is the form of an import.
type importPage struct {
	actions.ListInfo
	Reason   string
	Column   string
	MaxBad   string
	Empty    bool
	Progress actions.ImportProgress
}

func (v *visit) importForm() error {
	info, err := v.do.List(v.r.PathValue("list"))
	if err != nil {
		return err
	}
	return v.show("list_import", importPage{ListInfo: info, MaxBad: "0"})
}

// uploadList reads an upload as it comes and keeps it, so that it is looked at before
// it is used, and uploaded once.
func (v *visit) uploadList() error {
	info, err := v.do.List(v.r.PathValue("list"))
	if err != nil {
		return err
	}
	form, file, err := v.upload()
	p := importPage{ListInfo: info, Reason: form["reason"], Column: form["column"], MaxBad: form["max_bad"], Empty: form["allow_empty"] != ""}
	if err != nil {
		return v.refuse("list_import", p, err)
	}
	maxBad, err := strconv.Atoi(form["max_bad"])
	if err != nil || maxBad < 0 {
		return v.refuse("list_import", p, fault.New(fault.Invalid, "bad_max", "%q is no number of bad lines", form["max_bad"]))
	}
	key := v.importKey(form["key"])
	defer v.imports.of.Delete(key)
	out, err := v.do.ImportList(v.r.Context(), actions.Write{Actor: v.Actor, Reason: form["reason"], Key: form["key"]},
		actions.Import{List: info.Key, Body: file, Column: form["column"], MaxBad: maxBad, AllowEmpty: p.Empty, Keep: true,
			Progress: func(now actions.ImportProgress) { v.imports.of.Store(key, now) }})
	if err != nil {
		return v.refuse("list_import", p, err)
	}
	return v.done(listPath(info.Key), "lists.said.kept", "Added", out.Report.Added, "Removed", out.Report.Removed, "Bad", out.Report.Bad)
}

// upload is the values of a multipart form and its file, which stands last and is
// read as it comes.
func (v *visit) upload() (map[string]string, io.Reader, error) {
	form := map[string]string{}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxUpload)
	parts, err := v.r.MultipartReader()
	if err != nil {
		return form, nil, badUpload(err)
	}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return form, nil, fault.New(fault.Invalid, "no_file", "no file was chosen").WithHint("choose a file with one id a line, or a CSV")
		}
		if err != nil {
			return form, nil, badUpload(err)
		}
		if part.FormName() == "file" {
			return form, part, nil
		}
		if form[part.FormName()], err = value(part); err != nil {
			return form, nil, err
		}
	}
}

func value(part *multipart.Part) (string, error) {
	text, err := io.ReadAll(io.LimitReader(part, maxValue+1))
	if err != nil {
		return "", badUpload(err)
	}
	if len(text) > maxValue {
		return "", fault.New(fault.TooLarge, "too_large", "a field before the file has more than %d bytes", maxValue)
	}
	return string(text), nil
}

func badUpload(err error) error {
	return fault.New(fault.Invalid, "bad_upload", "the upload could not be read").WithHint("send the form of this page again").Because(err)
}

// importEvents follows an import that the visitor runs from a page of this node.
func (v *visit) importEvents() error {
	key := v.importKey(v.r.PathValue("key"))
	return v.stream(streamTime, func(ctx context.Context, event func(string, view) error) error {
		var last actions.ImportProgress
		for begun := false; ; {
			now, running := v.imports.of.Load(key)
			if !running && begun {
				return nil
			}
			if progress, ok := now.(actions.ImportProgress); ok && progress != last {
				if err := event("importing", view{Page: progress}); err != nil {
					return err
				}
				begun, last = true, progress
			}
			if err := wait(ctx, importStep); err != nil {
				return err
			}
		}
	})
}
