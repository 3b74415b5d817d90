package release

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"dispatch.example/dispatch/internal/fault"
)

// Bounds of a document's text. Lists of more ids than fit are imported by stream.
const (
	MaxDocument = 4 << 20 // bytes
	maxDepth    = 32      // levels of nesting; the schema itself needs 13
	maxProblems = 100     // shown at once; a person corrects in steps anyway
)

// Parse reads a document in YAML or JSON. Its error is a *fault.Error that lists
// every mistake with file, line, path and hint. A document without apps is
// refused: it would leave nobody served. What the parts mean together is
// Check's business.
func Parse(file string, data []byte) (*Document, error) {
	doc, _, err := ParseSource(file, data)
	return doc, err
}

// ParseSource is Parse and also says where each part stands in the text, so
// that later problems can name their lines.
func ParseSource(file string, data []byte) (*Document, *Source, error) {
	d := &decoder{file: file}
	root, ok := d.read(data)
	if !ok {
		return nil, nil, d.err()
	}
	var doc Document
	d.value(root, reflect.ValueOf(&doc).Elem(), place{})
	if apps := root.child("apps"); apps.kind == isSequence && len(apps.items) == 0 {
		d.add(root.line, "apps", "a release without apps would leave nobody served", "the document names no app")
	}
	if err := d.err(); err != nil {
		return nil, nil, err
	}
	return &doc, &Source{file: file, root: root}, nil
}

// decoder collects the mistakes of one document.
type decoder struct {
	file     string
	kind     fault.Kind // of the error; Invalid unless set
	problems fault.Problems
	unshown  int
}

func (d *decoder) add(line int, path, hint, format string, args ...any) {
	if len(d.problems) == maxProblems {
		d.unshown++
		return
	}
	d.problems = append(d.problems, fault.Problem{File: d.file, Line: line, Path: path, Hint: hint,
		Detail: fmt.Sprintf(format, args...)})
}

func (d *decoder) err() error {
	slices.SortStableFunc(d.problems, func(a, b fault.Problem) int { return a.Line - b.Line })
	if d.unshown > 0 {
		d.problems = append(d.problems, fault.Problem{File: d.file, Detail: fmt.Sprintf("%d more problems are not shown", d.unshown)})
	}
	err := d.problems.Err("bad_document", "the document cannot be read")
	if e, ok := err.(*fault.Error); ok && d.kind != 0 {
		e.Kind, e.Code = d.kind, "document_too_large"
	}
	return err
}

// read turns text into a tree; false after a mistake that hides all others.
func (d *decoder) read(data []byte) (*node, bool) {
	if len(data) > MaxDocument {
		d.kind = fault.TooLarge
		d.add(0, "", "import long lists with POST /api/v1/lists/LIST/import", "%d bytes are more than a document may have, %d", len(data), MaxDocument)
		return nil, false
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !d.isText(data) {
		return nil, false
	}
	var root *node
	if json.Valid(data) || strings.HasSuffix(d.file, ".json") {
		root = d.readJSON(data)
	} else {
		root = d.readYAML(data)
	}
	if len(d.problems) > 0 && root == nil {
		return nil, false
	}
	if root == nil || root.kind == isNull {
		d.add(1, "", "write at least one app", "the document is empty")
		return nil, false
	}
	return root, true
}

// isText refuses what is no text, and characters that hide in review: controls,
// and line breaks that YAML sees and editors do not.
func (d *decoder) isText(data []byte) bool {
	line := 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			d.add(line, "", "save the file as UTF-8", "byte 0x%02x at offset %d is not UTF-8", data[i], i)
			return false
		case r == '\n':
			line++
		case r == '\r' && bytes.HasPrefix(data[i:], []byte("\r\n")), r == '\t':
		case unicode.IsControl(r), r == '\u2028', r == '\u2029':
			d.add(line, "", "remove it", "control character %U at offset %d", r, i)
			return false
		}
		i += size
	}
	return true
}

// quote shows a value of the document in a message, cut to a bearable length.
func quote(s string) string {
	const most = 40 // runes
	if runes := []rune(s); len(runes) > most {
		return fmt.Sprintf("%q…", string(runes[:most]))
	}
	return fmt.Sprintf("%q", s)
}
