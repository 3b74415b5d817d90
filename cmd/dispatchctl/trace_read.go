package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	maxLine = 1 << 20 // bytes of a line; longer ones are left out and counted
	maxHops = 10_000  // of one trace that are kept
	maxText = 300     // bytes of what a line says, kept of each hop
)

// logHop is one hop of a trace, put together from its lines.
type logHop struct {
	Span    string        `json:"spanId"`
	Parent  string        `json:"parentSpanId,omitempty"`
	Service string        `json:"service,omitempty"`
	At      string        `json:"hop,omitempty"` // address of the instance, as it says
	Start   time.Time     `json:"start"`
	Took    time.Duration `json:"took"` // 0: no line says so
	Status  int           `json:"status,omitempty"`
	Said    string        `json:"said,omitempty"` // the error, else what was decided
	Failed  bool          `json:"failed"`
	Lines   int           `json:"lines"`
	last    time.Time

	decision bool // of an edge: what stands below it are calls of the app, each for itself
}

// logLine is what is read of a line: of a service, as docs/inner-layer.md has it, or
// of the decision log.
type logLine struct {
	Time    time.Time       `json:"time"`
	Level   string          `json:"level"`
	Msg     string          `json:"msg"`
	Trace   string          `json:"traceId"`
	Span    string          `json:"spanId"`
	Parent  string          `json:"parentSpanId"`
	Service string          `json:"service"`
	Hop     string          `json:"hop"`
	Status  int             `json:"status"`
	Took    json.RawMessage `json:"took"`
	Err     string          `json:"err"`

	Digest   string `json:"digest"` // only a decision has one
	App      string `json:"app"`
	Reason   string `json:"reason"`
	Policy   string `json:"policy"`
	Region   string `json:"region"`
	Endpoint string `json:"endpoint"`
}

// traceReader finds the hops of one trace in log files. It holds one line and the
// hops, whatever the files' size.
type traceReader struct {
	id      string
	hops    map[string]*logHop
	seen    map[string]bool // files that were read, by the name that no link is in
	lines   int             // that name the trace
	tooLong int             // lines that were left out
	tooMany int             // lines of hops that were left out
	broken  []string        // files that could not be read to their end
	skipped []string        // what is no file
}

// readLogs reads all files of a folder and below, and what links there lead to files.
func readLogs(dir, id string) (*traceReader, error) {
	r := &traceReader{id: id, hops: map[string]*logHop{}, seen: map[string]bool{}}
	root, err := filepath.EvalSymlinks(dir) // WalkDir does not follow
	if err != nil {
		return nil, fmt.Errorf("read logs: %w", err)
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && path == root:
			return err
		case err != nil:
			r.broken = append(r.broken, err.Error())
		case !entry.IsDir():
			r.entry(path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read logs: %w", err)
	}
	return r, nil
}

// entry reads what is a file, or leads to one, once by however many names it has.
func (r *traceReader) entry(path string) {
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		r.skipped = append(r.skipped, fmt.Sprintf("%s: %v", path, err)) // a link to what is not there, most likely
		return
	}
	switch info, err := os.Stat(at); {
	case err != nil:
		r.broken = append(r.broken, err.Error())
	case info.IsDir():
		r.skipped = append(r.skipped, fmt.Sprintf("%s: a link to a folder; give %s as --logs to read that", path, at))
	case !info.Mode().IsRegular():
		r.skipped = append(r.skipped, fmt.Sprintf("%s: no file but %s", path, info.Mode().Type()))
	case !r.seen[at]:
		r.seen[at] = true
		if err := r.file(at); err != nil {
			r.broken = append(r.broken, fmt.Sprintf("%s: %v", path, err))
		}
	}
}

func (r *traceReader) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if !strings.HasSuffix(path, ".gz") {
		return r.read(f)
	}
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	return r.read(unpacked)
}

func (r *traceReader) read(from io.Reader) error {
	lines := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			r.tooLong++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
		} else if bytes.Contains(line, []byte(r.id)) {
			r.line(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// line takes what a line says of a hop. A field of another type than ours is one of
// somebody else's and says nothing; without a time there is no place for the line.
func (r *traceReader) line(text []byte) {
	var l logLine
	if err := json.Unmarshal(text, &l); err != nil {
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); !other {
			return // nor is it a time
		}
	}
	if l.Trace != r.id || l.Span == "" || l.Time.IsZero() {
		return
	}
	r.lines++
	h := r.hops[l.Span]
	if h == nil {
		if len(r.hops) == maxHops {
			r.tooMany++
			return
		}
		h = &logHop{Span: cutText(l.Span), Start: l.Time, last: l.Time}
		r.hops[l.Span] = h
	}
	h.take(&l)
}

// take adds a line to a hop. The line with a status is the one about the whole
// request; what failed and was made good does not make the hop fail.
func (h *logHop) take(l *logLine) {
	h.Lines++
	h.Parent = cmp.Or(h.Parent, cutText(l.Parent))
	h.Service = cmp.Or(h.Service, cutText(l.Service))
	h.At = cmp.Or(h.At, cutText(l.Hop))
	if l.Time.After(h.last) {
		h.last = l.Time
	}
	start, failed := l.Time, strings.EqualFold(l.Level, "error")
	if took := duration(l.Took); took > 0 && l.Status != 0 {
		h.Took, start = took, l.Time.Add(-took)
	}
	if start.Before(h.Start) {
		h.Start = start
	}
	if l.Digest != "" && l.Reason != "" {
		h.decision = true
		h.Service, h.Said = "dispatch /route", cutText(l.decided())
	}
	switch {
	case l.Status != 0:
		h.Status, h.Failed = l.Status, l.Status >= 500
		h.Said = cutText(cmp.Or(l.Err, h.Said))
	case failed:
		h.Failed = h.Failed || h.Status == 0
		h.Said = cutText(cmp.Or(h.Said, l.Err, l.Msg))
	}
}

// decided is what a record of the decision log says.
func (l *logLine) decided() string {
	said := l.App + ": " + l.Reason
	if l.Policy != "" {
		said += " by " + l.Policy
	}
	if l.Region == "" {
		return said + ", no region"
	}
	return said + ", " + l.Region + "/" + l.Endpoint
}

// took is how long the hop was, as far as its lines say.
func (h *logHop) took() time.Duration { return cmp.Or(h.Took, h.last.Sub(h.Start)) }

// duration reads nanoseconds, as slog writes them in JSON, or text such as 12ms.
func duration(raw json.RawMessage) time.Duration {
	text := strings.Trim(string(raw), `"`)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(n)
	}
	d, _ := time.ParseDuration(text) // none: 0
	return d
}

func cutText(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}
