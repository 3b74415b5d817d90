package whitelist

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// Format is how the ids of an import are written.
type Format string

// The formats. Detect takes a first line that has the id column among its
// comma-separated fields for a CSV header, a first line of one field for the
// first id, and refuses any other table.
const (
	Detect Format = ""
	Lines  Format = "lines" // one id a line, optionally in double quotes
	CSV    Format = "csv"   // a header, then one record a line
)

// The limits of an import that names none: ten million ids, twice the size that
// everything is measured at, need about 500 MB while they are read.
const (
	DefaultMaxIDs   = 10_000_000
	DefaultMaxBytes = 1 << 30
)

// maxLine is the longest line in bytes. A longer one is a bad line; it is
// skipped, not kept.
const maxLine = 64 << 10

// ImportOptions say what to make of an import and when to give up.
type ImportOptions struct {
	Key      Key
	Of       Of
	IDs      *Normalizer
	Format   Format
	Column   string  // of a CSV; default "id". Letter case does not matter
	MaxBad   int     // more bad lines refuse the import; the zero value allows none
	MaxIDs   int     // default DefaultMaxIDs; duplicates count
	MaxBytes int64   // default DefaultMaxBytes
	Old      *Stored // the list before, to compare with; nil: there is none

	// AllowEmpty takes an import without any id, which empties the list. A file
	// that was cut off or exported from the wrong place must not do so by itself.
	AllowEmpty bool

	Progress func(Report) // what was read so far, every ProgressEvery lines; nil: nobody asks
}

// ProgressEvery is how many lines are read between two calls of Progress: some
// milliseconds.
const ProgressEvery = 10_000

// Report says what an import read and what it would change.
type Report struct {
	Format     Format          `json:"format"`
	Lines      int             `json:"lines"`
	IDs        int             `json:"ids"` // distinct
	Duplicates int             `json:"duplicates"`
	Blank      int             `json:"blank"` // lines, ignored
	Bad        int             `json:"bad"`   // lines, ignored up to MaxBad
	Problems   []fault.Problem `json:"problems,omitempty"`
	Added      int             `json:"added"`
	Removed    int             `json:"removed"`
	Unchanged  int             `json:"unchanged"`
}

// Import reads the whole new content of a list from r. It applies nothing: the
// caller stores the Content, or, in a dry run, only shows the Report. Problems
// are the first 100 bad lines; they never repeat an id. With an error there is
// no Content, but the Report still says what was read.
func Import(r io.Reader, opt ImportOptions) (Report, *Content, error) {
	in, err := newImporter(r, opt)
	if err != nil {
		return Report{}, nil, err
	}
	if err := in.read(); err != nil {
		return in.report, nil, err
	}
	if in.report.Bad > in.opt.MaxBad {
		problems := fault.Problems(in.report.Problems)
		return in.report, nil, problems.Err("bad_lines", fmt.Sprintf("%d of %d lines are bad and %d may be; nothing was applied",
			in.report.Bad, in.report.Lines, in.opt.MaxBad))
	}
	if len(in.ids.records) == 0 && !opt.AllowEmpty {
		return in.report, nil, fault.New(fault.Invalid, "empty_import", "the import holds no ids").
			WithHint("allow_empty=true if the list shall hold nobody")
	}
	bits := -1
	if opt.Old != nil {
		bits = opt.Old.Index.Bits
	}
	read := len(in.ids.records)
	c := in.ids.content(bits)
	in.report.IDs, in.report.Duplicates, in.report.Added = c.Len(), read-c.Len(), c.Len()
	if opt.Old != nil {
		if in.report.Unchanged, err = opt.Old.shared(c); err != nil {
			return in.report, nil, fmt.Errorf("compare with the list before: %w", err)
		}
		in.report.Added -= in.report.Unchanged
		in.report.Removed = opt.Old.Index.Count - in.report.Unchanged
	}
	return in.report, c, nil
}

type importer struct {
	opt    ImportOptions
	lines  *lineReader
	report Report
	ids    gather
	column int // of the id
	width  int // fields of the header
	fields []string
}

func newImporter(r io.Reader, opt ImportOptions) (*importer, error) {
	if !opt.Of.Valid() || opt.IDs == nil || opt.Key.ID == "" {
		return nil, errors.New("import: the kind of id, the normalizer or the key is missing")
	}
	if opt.Column != "" && opt.Format == Detect {
		opt.Format = CSV
	}
	if opt.Column == "" {
		opt.Column = "id"
	}
	if opt.MaxIDs == 0 {
		opt.MaxIDs = DefaultMaxIDs
	}
	if opt.MaxBytes == 0 {
		opt.MaxBytes = DefaultMaxBytes
	}
	switch opt.Format {
	case Detect, Lines, CSV:
	default:
		return nil, fault.New(fault.Invalid, "bad_format", "an import is lines or csv, not %q", opt.Format)
	}
	return &importer{opt: opt, lines: newLineReader(r, opt.MaxBytes), ids: gather{key: opt.Key, of: opt.Of},
		report: Report{Format: opt.Format}}, nil
}

// read takes every line. It goes on after too many bad ones, so that the report
// has them all, but keeps no more ids.
func (in *importer) read() error {
	if err := in.lines.start(); err != nil {
		return err
	}
	headed := false
	for {
		line, err := in.lines.next()
		if err == io.EOF {
			return nil
		}
		in.report.Lines++
		if in.report.Lines%ProgressEvery == 0 && in.opt.Progress != nil {
			in.opt.Progress(Report{Format: in.report.Format, Lines: in.report.Lines, IDs: len(in.ids.records), Blank: in.report.Blank, Bad: in.report.Bad})
		}
		switch {
		case errors.Is(err, errLongLine):
			in.bad(fmt.Sprintf("the line has more than %d bytes", maxLine))
			continue
		case err != nil:
			return err
		case strings.TrimSpace(line) == "":
			in.report.Blank++
			continue
		}
		if !headed {
			headed = true
			isHeader, err := in.header(line)
			if err != nil {
				return err
			}
			if isHeader {
				continue
			}
		}
		if err := in.take(line); err != nil {
			return err
		}
	}
}

// header reads the first line that is not blank. It says whether it was a header.
func (in *importer) header(line string) (bool, error) {
	if in.report.Format == Lines {
		return false, nil
	}
	names, problem := splitFields(line, nil)
	in.width, in.column = len(names), -1
	seen := map[string]bool{}
	for i, name := range names {
		name = strings.ToLower(strings.TrimSpace(name))
		if seen[name] && name != "" {
			return false, fault.New(fault.Invalid, "bad_header", "the header has the column %q twice", name)
		}
		seen[name] = true
		if name == strings.ToLower(in.opt.Column) {
			in.column = i
		}
	}
	switch {
	case problem == "" && in.column >= 0:
		in.report.Format = CSV
		return true, nil
	case in.report.Format == CSV:
		return false, fault.New(fault.Invalid, "bad_header", "the first line is not a CSV header with the column %q", in.opt.Column).
			WithHint("column=NAME says which holds the ids; columns are separated by commas")
	case strings.ContainsAny(line, ",;\t"):
		return false, fault.New(fault.Invalid, "bad_header", "the first line looks like a table, but none of its columns is %q", in.opt.Column).
			WithHint("column=NAME says which holds the ids; format=lines, if these characters belong to ids")
	}
	in.report.Format = Lines
	return false, nil
}

// take reads the id of one line.
func (in *importer) take(line string) error {
	raw, problem := line, ""
	if in.report.Format == CSV {
		in.fields, problem = splitFields(line, in.fields[:0])
		switch {
		case problem != "":
		case len(in.fields) != in.width:
			problem = fmt.Sprintf("the line has %d fields, the header %d", len(in.fields), in.width)
		default:
			raw = in.fields[in.column]
		}
	} else if trimmed := strings.TrimSpace(line); trimmed[0] == '"' {
		raw, problem = unquote(trimmed)
	}
	if problem != "" {
		in.bad(problem)
		return nil
	}
	id, why := in.opt.IDs.Normalize(raw)
	if why != Present {
		in.bad(refusal(why))
		return nil
	}
	if in.report.Bad > in.opt.MaxBad {
		return nil
	}
	if len(in.ids.records) == in.opt.MaxIDs {
		return fault.New(fault.TooLarge, "too_many_ids", "line %d: there are more than %d ids", in.report.Lines, in.opt.MaxIDs)
	}
	in.ids.add(id)
	return nil
}

func (in *importer) bad(problem string) {
	if in.report.Bad++; in.report.Bad <= maxProblems {
		in.report.Problems = append(in.report.Problems, fault.Problem{Line: in.report.Lines, Detail: problem})
	}
}
