// Package fault is the one error type of the project and the one table from
// its kinds to HTTP. The rest of the code never names a status code.
//
// An error has three readers. Detail and Problems are for the caller, Hint is
// the operator's next step, Err is for our log. Anything that is not a *Error
// is Internal, and its text never leaves the process.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says what a caller can do about a failure.
type Kind uint8

// The kinds. The zero value is Internal, so an error that was never classified
// is treated as ours.
const (
	Internal        Kind = iota
	Invalid              // the input is wrong; Problems say where
	Unauthenticated      // no credential, or one we do not know
	Denied               // a known caller who may not
	NotFound             // no such thing
	Conflict             // the thing changed since the caller looked
	Precondition         // a required If-Match is missing
	TooLarge             // a body over its limit
	Misdirected          // sent to a host that this listener is not
	Throttled            // too often; Hint says how long to wait
	Unavailable          // not now; try again
)

// Problem is one thing wrong with an input. Path is where it stands in the
// document (apps[0].regions[1].key), File and Line where it stands in the text.
type Problem struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Path   string `json:"path,omitempty"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
	Said   *Said  `json:"-"` // of what other languages can say, see ProblemOf
}

// String is file:line: path: detail (hint), without the parts that are absent.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:", p.Line)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Detail)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Error is a failure that its caller can act on.
type Error struct {
	Kind     Kind
	Code     string    // stable and machine-readable, e.g. "unknown_app"
	Detail   string    // one sentence for the caller
	Hint     string    // the operator's next step
	Problems []Problem // every mistake in the input, not only the first
	Data     any       // more for the caller, e.g. the difference behind a conflict
	Said     Said      // Detail and Hint, for who says them in another language
	Err      error     // the cause, for our log only
}

// New returns an Error of the given kind; code is stable, the rest is text.
func New(kind Kind, code, format string, args ...any) *Error {
	detail := Textf(format, args...)
	return &Error{Kind: kind, Code: code, Detail: detail.String(), Said: Said{Detail: detail}}
}

// WithHint sets the operator's next step and returns e.
func (e *Error) WithHint(hint string) *Error {
	e.Hint, e.Said.Hint = hint, Word(hint)
	return e
}

// Hintf sets a next step with values in it and returns e.
func (e *Error) Hintf(format string, args ...any) *Error {
	e.Said.Hint = Textf(format, args...)
	e.Hint = e.Said.Hint.String()
	return e
}

// Because sets the cause and returns e.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// Error is the detail, every problem on its own line, the cause and the hint.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Detail)
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString("\ntry: " + e.Hint)
	}
	return b.String()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf is Internal for every error that is not ours.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// CodeOf is the stable code of err, "internal" for every error that is not ours.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok && e.Code != "" {
		return e.Code
	}
	return "internal"
}

// Problems collects what is wrong with an input.
type Problems []Problem

// Addf adds a problem at path.
func (p *Problems) Addf(path, format string, args ...any) {
	*p = append(*p, ProblemOf(path, Textf(format, args...), Text{}))
}

// Err is nil when nothing was added, else an Invalid error that carries all.
func (p Problems) Err(code, detail string) error {
	if len(p) == 0 {
		return nil
	}
	return &Error{Kind: Invalid, Code: code, Detail: detail, Problems: p}
}
