package whitelist

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

var errLongLine = errors.New("line too long")

// blockSize is how much is read at a time. Lines are parts of one string for
// each block, not allocated one by one.
const blockSize = 64 << 10

// lineReader gives one line after the other in constant memory.
type lineReader struct {
	r    io.Reader
	max  int64
	left int64
	buf  []byte
	rest string // read and not given yet
	end  bool   // nothing more to read
	long bool   // the line that rest continues is too long
}

func newLineReader(r io.Reader, maxBytes int64) *lineReader {
	return &lineReader{r: r, max: maxBytes, left: maxBytes, buf: make([]byte, blockSize)}
}

// start skips a byte order mark. It refuses what its first bytes say is no text
// that we read.
func (l *lineReader) start() error {
	if err := l.fill(); err != nil {
		return err
	}
	for _, known := range []struct{ magic, what, hint string }{
		{"\xff\xfe", "UTF-16", "save it as UTF-8"},
		{"\xfe\xff", "UTF-16", "save it as UTF-8"},
		{"PK\x03\x04", "a zip archive or a workbook", "export it as CSV"},
		{"\x1f\x8b", "compressed with gzip", "unpack it first"},
	} {
		if strings.HasPrefix(l.rest, known.magic) {
			return fault.New(fault.Invalid, "bad_encoding", "the import is %s", known.what).WithHint(known.hint)
		}
	}
	l.rest = strings.TrimPrefix(l.rest, "\ufeff")
	return nil
}

func (l *lineReader) fill() error {
	n, err := io.ReadFull(l.r, l.buf)
	l.left -= int64(n)
	l.rest += string(l.buf[:n])
	l.end = err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case l.left < 0:
		return fault.New(fault.TooLarge, "too_large", "the import has more than %d bytes", l.max)
	case err != nil && !l.end:
		return fmt.Errorf("read the import: %w", err)
	}
	return nil
}

// next is the next line without its end, errLongLine in place of one that is too
// long, io.EOF after the last.
func (l *lineReader) next() (string, error) {
	line, rest, whole := strings.Cut(l.rest, "\n")
	for !whole && !l.end {
		if len(l.rest) > maxLine {
			l.rest, l.long = "", true
		}
		if err := l.fill(); err != nil {
			return "", err
		}
		line, rest, whole = strings.Cut(l.rest, "\n")
	}
	long := l.long || len(line) > maxLine
	l.rest, l.long = rest, false
	switch {
	case long:
		return "", errLongLine
	case line == "" && !whole:
		return "", io.EOF
	}
	return strings.TrimSuffix(line, "\r"), nil
}

// splitFields appends the comma-separated fields of one line to dst (RFC 4180,
// but a quoted field ends on its line, so that a forgotten quote costs one line
// and not the rest of the file). It says what is wrong with the line, if anything.
func splitFields(line string, dst []string) (fields []string, problem string) {
	for {
		if !strings.HasPrefix(line, `"`) {
			field, rest, more := strings.Cut(line, ",")
			if strings.Contains(field, `"`) {
				return dst, "a quote stands inside a field that does not begin with one"
			}
			dst = append(dst, field)
			if !more {
				return dst, ""
			}
			line = rest
			continue
		}
		end := closingQuote(line)
		if end < 0 {
			return dst, "a quoted field does not end on its line"
		}
		dst = append(dst, strings.ReplaceAll(line[1:end], `""`, `"`))
		line = line[end+1:]
		if line == "" {
			return dst, ""
		}
		if line[0] != ',' {
			return dst, "a quoted field is followed by something else than a comma"
		}
		line = line[1:]
	}
}

// closingQuote is where the quoted field at the start of line ends, -1 for nowhere.
func closingQuote(line string) int {
	for i := 1; i < len(line); i++ {
		if line[i] != '"' {
			continue
		}
		if i+1 == len(line) || line[i+1] != '"' {
			return i
		}
		i++
	}
	return -1
}

// unquote is the text of a line that begins with a quote and is one field.
func unquote(line string) (text, problem string) {
	end := closingQuote(line)
	if end != len(line)-1 {
		return "", "a quoted id does not end with its line"
	}
	return strings.ReplaceAll(line[1:end], `""`, `"`), ""
}
