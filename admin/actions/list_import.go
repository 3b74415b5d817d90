package actions

import (
	"context"
	"errors"
	"io"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// Import is the new content of a list.
type Import struct {
	List       string
	Body       io.Reader `json:"-"`
	Format     whitelist.Format
	Column     string
	MaxBad     int
	AllowEmpty bool // an import without ids empties the list instead of being refused
	DryRun     bool // report only
	Keep       bool // keep the content for ApplyImport instead of using it

	Progress func(ImportProgress) `json:"-"` // nil: nobody asks
}

// The stages of an import.
const (
	ImportReading   = "reading"
	ImportStoring   = "storing"
	ImportReleasing = "releasing"
)

// ImportProgress is how far an import is.
type ImportProgress struct {
	Stage  string
	Lines  int // read so far
	IDs    int // of those lines
	Bad    int // of those lines
	Stored int // chunks of ids that the database has
	Chunks int // of ids; 0 while they are read
}

// ImportOutcome is what an import read and did.
type ImportOutcome struct {
	Outcome
	Report  whitelist.Report `json:"report"`
	Needs   []Need           `json:"needs" doc:"why a second person must agree; empty: one is enough"`
	Confirm string           `json:"confirm,omitempty" doc:"what must be typed before so many ids are removed"`
	Kept    *ListImport      `json:"kept,omitempty" doc:"the import that waits to be applied"`
}

// ImportList replaces the ids of a list by those of a stream. More bad lines than
// MaxBad, or any other failure, changes nothing. One that removes more than one
// person may waits for a second one and is the refusal needs_approval.
func (a *Actions) ImportList(ctx context.Context, w Write, in Import) (out ImportOutcome, err error) {
	if in.Progress == nil {
		in.Progress = func(ImportProgress) {}
	}
	// Reading and storing may take minutes. Both happen outside the turn: an
	// emergency must not wait for them.
	h, err := a.editable(ctx)
	if err != nil {
		return ImportOutcome{}, err
	}
	report, content, err := a.read(ctx, h.from, in)
	if err != nil {
		return ImportOutcome{Report: report}, withReport(err, report)
	}
	old, err := a.stored(ctx, h.from, in.List)
	if err != nil {
		return ImportOutcome{}, err
	}
	out.Report = report
	if out.Needs, err = a.removal(ctx, in.List, old.Index.Count, report.Removed); err != nil {
		return ImportOutcome{}, err
	}
	if len(out.Needs) > 0 {
		out.Confirm = a.ConfirmList(in.List)
	}
	if in.DryRun {
		return out, nil
	}
	e := listEdit{action: "import", list: in.List, of: old.Of, seen: h.from.Lists[in.List], had: old.Index.Count, index: content.Index(),
		added: report.Added, removed: report.Removed, bad: report.Bad}
	ask := asked{"import", []any{in, release.DigestOf(e.index.Bytes())}}
	out, err = remembered(ctx, a, w, ask, func(w Write) (ImportOutcome, error) {
		if len(out.Needs) > 0 && !in.Keep {
			if err := w.confirmed(out.Confirm); err != nil {
				return out, err
			}
		}
		progress := ImportProgress{Stage: ImportStoring, Lines: report.Lines, IDs: report.IDs, Bad: report.Bad, Chunks: len(e.index.Digests)}
		var err error
		e.blobs, err = a.keepBlobs(ctx, e, old.Index, content.Blobs(), func(n int) {
			progress.Stored = n
			in.Progress(progress)
		})
		if err != nil {
			return out, err
		}
		content = nil // the ids take more memory than all that follows
		if in.Keep {
			return a.keepImport(ctx, w, e, out)
		}
		progress.Stage = ImportReleasing
		in.Progress(progress)
		return a.useEdit(ctx, w, e, out)
	})
	if err == nil {
		a.acknowledge(ctx, &out.Outcome, normalWait)
	}
	return out, err
}

// useEdit makes a release of the edit, unless it takes a second person.
func (a *Actions) useEdit(ctx context.Context, w Write, e listEdit, out ImportOutcome) (ImportOutcome, error) {
	if len(out.Needs) > 0 && a.FourEyes {
		return out, a.submitEdit(ctx, w, e)
	}
	answer := func(o Outcome) any {
		o.Warnings = append(o.Warnings, byOne(out.Needs)...)
		done := out
		done.Outcome, done.Confirm = o, ""
		return done
	}
	outcome, err := a.changeLists(ctx, w, e.change(answer))
	done, _ := answer(outcome).(ImportOutcome)
	return done, err
}

// read reads the new content of a list and compares it with what m has.
func (a *Actions) read(ctx context.Context, m *release.Manifest, in Import) (whitelist.Report, *whitelist.Content, error) {
	l, err := listOf(m, in.List)
	if err != nil {
		return whitelist.Report{}, nil, err
	}
	old, err := a.stored(ctx, m, in.List)
	if err != nil {
		return whitelist.Report{}, nil, err
	}
	ids, err := normalizer(&m.Document, in.List)
	if err != nil {
		return whitelist.Report{}, nil, err
	}
	key, err := a.listKey()
	if err != nil {
		return whitelist.Report{}, nil, err
	}
	return whitelist.Import(in.Body, whitelist.ImportOptions{Key: key, Of: l.Of, IDs: ids, Format: in.Format,
		Column: in.Column, MaxBad: in.MaxBad, Old: old, AllowEmpty: in.AllowEmpty, Progress: func(r whitelist.Report) {
			in.Progress(ImportProgress{Stage: ImportReading, Lines: r.Lines, IDs: r.IDs, Bad: r.Bad})
		}})
}

// withReport lets the caller of a refused import see what was read.
func withReport(err error, report whitelist.Report) error {
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Data == nil {
		e.Data = report
	}
	return err
}
