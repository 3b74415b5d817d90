package directory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

// What is read of one request. A name of a service has at most 128 bytes.
const (
	maxAsk     = 512 << 10 // bytes; 2,000 names have half of that
	maxAsked   = 2_000     // services
	maxReport  = 1 << 20   // bytes
	maxReports = 1_000
	maxName    = 200 // bytes of an ID
)

// RulesBoard is where the newest rules of the region are.
type RulesBoard interface {
	// Current is the newest release, zero before the first, and a channel that is
	// closed when there is another.
	Current() (s rules.Signed, changed <-chan struct{})
	// Read says whether it was ever read: before that, no rules are not "none".
	Read() bool
}

// Server answers callers and instances: the paths of package wire. Whoever mounts
// it checks token or certificate.
type Server struct {
	d       *Directory
	board   RulesBoard
	mux     *http.ServeMux
	newest  newestRules
	failing atomic.Bool // records cannot be saved
	heard   atomic.Uint64
	stopped chan struct{}
	stop    sync.Once
}

// NewServer makes one. Without a board there are no rules.
func NewServer(d *Directory, board RulesBoard) (*Server, error) {
	if d == nil {
		return nil, errors.New("serve the directory: there is none")
	}
	if board == nil {
		board = noRules{}
	}
	s := &Server{d: d, board: board, mux: http.NewServeMux(), stopped: make(chan struct{})}
	s.mux.HandleFunc("POST "+wire.TablesPath, s.handle(s.tables))
	s.mux.HandleFunc("POST "+wire.ReportsPath, s.handle(s.reports))
	s.mux.HandleFunc("POST "+wire.RecordsPath, s.handle(s.records))
	s.mux.HandleFunc("GET "+wire.PrometheusPath, s.handle(s.prometheus))
	s.mux.HandleFunc("/", s.handle(func(_ http.ResponseWriter, r *http.Request) error {
		return fault.New(fault.NotFound, "no_route", "there is no %s %s here", r.Method, r.URL.Path)
	}))
	return s, nil
}

// noRules is a board that stays empty.
type noRules struct{}

func (noRules) Current() (rules.Signed, <-chan struct{}) { return rules.Signed{}, nil }

func (noRules) Read() bool { return true }

// ServeHTTP answers under /discovery/.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// maxAhead is how far callers may be ahead of the rules that this node has: more
// releases than anybody loses with a backup, and far less than callers take for a
// jump. What lies above it was made up, and would lock them all out.
const maxAhead = 10_000

// Heard is the highest number of rules that a caller said it follows. Where that is
// above the newest release, the database was restored from a backup: callers take
// only what is numbered higher.
func (s *Server) Heard() uint64 { return s.heard.Load() }

// Stop answers every question that waits, and refuses new ones.
func (s *Server) Stop() { s.stop.Do(func() { close(s.stopped) }) }

// handle turns an error into a problem, and refuses what comes after Stop.
func (s *Server) handle(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := error(nil)
		select {
		case <-s.stopped:
			err = stopping()
		default:
			err = h(w, r)
		}
		if err == nil {
			return
		}
		switch fault.KindOf(err) {
		case fault.Internal:
			if r.Context().Err() == nil {
				s.d.log.ErrorContext(r.Context(), "a request of the inner layer failed", "path", r.URL.Path, "err", err)
			}
		case fault.Unavailable:
			w.Header().Set("Retry-After", "1")
		}
		fault.Write(w, err)
	}
}

func stopping() error {
	return fault.New(fault.Unavailable, "stopping", "this control node is stopping").WithHint("ask another one")
}

// reports takes what instances say of themselves.
func (s *Server) reports(w http.ResponseWriter, r *http.Request) error {
	var all []wire.Report
	if err := read(w, r, maxReport, &all); err != nil {
		return err
	}
	if len(all) > maxReports {
		return fault.New(fault.TooLarge, "too_many_reports", "there are %d reports, at most %d are taken at a time", len(all), maxReports)
	}
	var p fault.Problems
	for i, report := range all {
		at := fmt.Sprintf("[%d]", i)
		if !isPlain(report.ID) || !isPlain(report.Service) {
			p.Addf(at, "needs id and service, of 1 to %d printable bytes", maxName)
		}
		if report.Address.Port == 0 {
			p.Addf(at+".address", "is required as host:port")
		}
		for name, part := range map[string]*float64{"cpu": report.Load.CPU, "memory": report.Load.Memory} {
			if part != nil && (*part < 0 || *part > 100) {
				p.Addf(at+".load."+name, "%g is no percentage; leave out what is unknown", *part)
			}
		}
		if n := report.Load.Connections; n != nil && *n < 0 {
			p.Addf(at+".load.connections", "%d is less than none", *n)
		}
	}
	if err := p.Err("bad_report", "the reports cannot be used"); err != nil {
		return err
	}
	s.d.report(all)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// read decodes a body of at most limit bytes. What newer callers add is not looked at.
func read(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return fault.New(fault.TooLarge, "body_too_large", "the body has more than %d bytes", limit)
	}
	if err != nil {
		return fault.New(fault.Invalid, "bad_body", "the body broke off").Because(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fault.New(fault.Invalid, "bad_json", "the body cannot be read: %s", err)
	}
	return nil
}

// isPlain says whether a name can be shown, sorted and logged.
func isPlain(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}
