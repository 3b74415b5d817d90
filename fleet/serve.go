package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

const (
	// maxReport bounds what of a report is remembered, and with it the Roster: 10,000
	// of them are at most 320 MB. One is about 1 KB.
	maxReport = 32 << 10
	// maxSmall bounds a report without a release: 512 counts have 80 KB if their names
	// are short.
	maxSmall = 256 << 10
	// maxWait is the longest that a question may wait.
	maxWait = 2 * PollEvery
	// largeBodies is how many bodies above maxSmall are read at a time.
	largeBodies = 2

	codeNoBlob = "no_blob"
)

// ServerOptions say what a control node answers replicas with.
type ServerOptions struct {
	Board  *Board  // required
	Roster *Roster // required
	// Token is what replicas must show. Without one they must show a certificate
	// that the listener's TLS has verified.
	Token string
	Blobs release.Blobs // own disk, database, Redis; default: those of the Board's offer
	Disk  Disk          // where blobs go that a replica sends; required with Accept
	// Accept takes a release into use that a replica serves and this node lacks.
	// Default: none is asked for.
	Accept    func(context.Context, release.Signed, release.Blobs) error
	Counting  *Counting            // keeps what replicas count; default: nobody does
	Trials    *Trials              // what they shall try; default: nothing
	Discovery http.Handler         // answers under /discovery/ those who may ask; default: nobody does
	Known     func() uint64        // the highest number that this node has beside the Board's
	Log       *slog.Logger         // default: discard
	Registry  *prometheus.Registry // default: no metrics
}

// Server answers replicas: it is the http.Handler of --fleet-listen. Its caller
// sets the time limits of headers and connections.
type Server struct {
	opt     ServerOptions
	token   [sha256.Size]byte
	mux     *http.ServeMux
	blobs   sharedBlobs
	adopt   adoption
	large   chan struct{} // has a token for each large body that is being read
	stopped chan struct{}
	stop    sync.Once

	requests *prometheus.CounterVec
	waiting  prometheus.Gauge
}

// NewServer checks the options.
func NewServer(opt ServerOptions) (*Server, error) {
	if opt.Board == nil || opt.Roster == nil {
		return nil, errors.New("serve the fleet: no board or no roster")
	}
	if opt.Accept != nil && opt.Disk == nil {
		return nil, errors.New("serve the fleet: Accept needs a Disk")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opt: opt, token: sha256.Sum256([]byte(opt.Token)), mux: http.NewServeMux(),
		large: make(chan struct{}, largeBodies), stopped: make(chan struct{})}
	s.blobs.from = s.read
	s.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dispatch_fleet_requests_total",
		Help: "Requests to the fleet listener by HTTP status. When 401 rises, somebody has a wrong token."}, []string{"code"})
	s.waiting = prometheus.NewGauge(prometheus.GaugeOpts{Name: "dispatch_fleet_waiting_requests",
		Help: "Questions of replicas that wait for a release now: one for each replica."})
	if opt.Registry != nil {
		for _, c := range []prometheus.Collector{s.requests, s.waiting} {
			if err := opt.Registry.Register(c); err != nil {
				return nil, err
			}
		}
	}
	s.mux.HandleFunc("POST "+watchPath, s.handle(s.watch))
	s.mux.HandleFunc("GET "+blobsPath+"{digest}", s.handle(s.getBlob))
	s.mux.HandleFunc("PUT "+blobsPath+"{digest}", s.handle(s.putBlob))
	if opt.Discovery != nil {
		s.mux.Handle("/discovery/", opt.Discovery)
	}
	s.mux.HandleFunc("/", s.handle(func(_ http.ResponseWriter, r *http.Request) error {
		return fault.New(fault.NotFound, "no_route", "there is no %s %s here", r.Method, r.URL.Path)
	}))
	return s, nil
}

// Stop answers every question that waits, and refuses new ones. Register it with
// http.Server.RegisterOnShutdown, or a shutdown waits for a poll to end.
func (s *Server) Stop() { s.stop.Do(func() { close(s.stopped) }) }

// ServeHTTP answers those who may ask.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.admits(r) {
		s.refuse(w, r, fault.New(fault.Unauthenticated, "unauthenticated", "the token is missing or wrong").
			WithHint("give this replica the control node's --fleet-token-file, or a certificate of its --fleet-tls-ca"))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// admits says whether the caller is one of us. The digests make the comparison
// take the same time for every length too.
func (s *Server) admits(r *http.Request) bool {
	if s.opt.Token == "" {
		return r.TLS != nil && len(r.TLS.VerifiedChains) > 0
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	shown := sha256.Sum256([]byte(token))
	return ok && subtle.ConstantTimeCompare(shown[:], s.token[:]) == 1
}

// handle turns an error into a problem.
func (s *Server) handle(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.refuse(w, r, err)
			return
		}
		s.requests.WithLabelValues("200").Inc()
	}
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	body := fault.BodyOf(err)
	s.requests.WithLabelValues(fmt.Sprint(body.Status)).Inc()
	if body.Status == http.StatusInternalServerError && r.Context().Err() == nil {
		s.opt.Log.ErrorContext(r.Context(), "a request of a replica failed", "path", r.URL.Path, "err", err)
	}
	fault.Write(w, err)
}

// watch notes a report and answers it as soon as there is something newer, or
// when the time to wait is over.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) error {
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if err != nil || wait < 0 {
		return fault.New(fault.Invalid, "bad_wait", "wait is not a duration such as 5s")
	}
	report, err := s.report(w, r)
	if err != nil {
		return err
	}
	own := r.URL.Query().Get("refused") == "true"
	s.opt.Roster.Saw(report)
	counted := s.opt.Counting.offer(report.Replica, report.Counts)
	s.opt.Trials.heard(report.Replica, report.Verdict)
	if report.Release != nil {
		if err := s.take(r.Context(), &report); err != nil {
			return err
		}
	}
	s.waiting.Inc()
	defer s.waiting.Dec()
	timer := time.NewTimer(min(wait, maxWait))
	defer timer.Stop()
	for {
		on, changed := s.opt.Board.posted(report.ID)
		switch {
		case on.suits(&report, own):
			return write(w, on.reply)
		case s.lacks(&report):
			return answer(w, Reply{Head: s.opt.Board.Head(), Send: true, Counted: counted.isKept()})
		}
		trial, opened := s.opt.Trials.next(&report)
		if trial != nil {
			reply := on.nothing(counted)
			reply.Trial = trial
			return answer(w, reply)
		}
		select {
		case <-changed:
		case <-opened:
		case <-timer.C:
			return answer(w, on.nothing(counted))
		case <-r.Context().Done():
			return nil // nobody listens any more
		case <-s.stopped:
			return fault.New(fault.Unavailable, "stopping", "this control node is stopping").WithHint("ask another one")
		}
	}
}

// suits says whether a replica shall get the release: it is above what the replica
// serves, or another one of the same number, which it will refuse as a fork for
// everybody to see. What it has just refused does not go to it again, if own says
// that it had that from here.
func (p *posted) suits(r *Report, own bool) bool {
	if p == nil || own && r.Refusal != nil && r.Refusal.Number == p.Number && r.Refusal.Seq == p.Records.Seq {
		return false
	}
	return p.Number > r.Number || p.Number == r.Number && (p.Records.Seq > r.Seq || p.digest != r.Digest)
}

// nothing is the answer that brings no release.
func (p *posted) nothing(counted *batch) Reply {
	r := Reply{Counted: counted.isKept()}
	if p != nil {
		r.Head = p.Number
	}
	return r
}

// report reads the body of a question.
func (s *Server) report(w http.ResponseWriter, r *http.Request) (report Report, err error) {
	limit := int64(maxSmall)
	if r.ContentLength < 0 || r.ContentLength > limit { // it carries a release, and few do
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		default:
			return report, fault.New(fault.Unavailable, "busy", "other releases are being received")
		}
		limit = MaxMessage
	}
	data, err := readBody(w, r, limit)
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return report, fault.New(fault.Invalid, "bad_report", "the report cannot be read").Because(err)
	}
	if !plain(report.ID) || !plain(report.Boot) {
		return report, fault.New(fault.Invalid, "bad_report", "the report names no replica: id and boot are 1 to 128 printable characters")
	}
	if len(report.Counts) > maxCounts {
		return report, fault.New(fault.TooLarge, "report_too_large", "the report has more than %d counts", maxCounts)
	}
	rest := report
	if rest.Release, rest.Counts, rest.Verdict = nil, nil, nil; len(data) > maxReport {
		if small, err := json.Marshal(rest); err != nil || len(small) > maxReport {
			return report, fault.New(fault.TooLarge, "report_too_large", "the report has more than %d bytes beside its release, counts and verdict", maxReport)
		}
	}
	return report, nil
}

// plain says whether a name can be shown, sorted and logged.
func plain(name string) bool {
	return name != "" && len(name) <= 128 && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// readBody reads at most limit bytes.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, fault.New(fault.TooLarge, "body_too_large", "the body has more than %d bytes", limit)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_body", "the body broke off").Because(err)
	}
	return data, nil
}

func answer(w http.ResponseWriter, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return write(w, data)
}

func write(w http.ResponseWriter, data []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.Copy(w, bytes.NewReader(data)) // whoever has gone asks again
	return nil
}

// getBlob answers a blob of a release on offer.
func (s *Server) getBlob(w http.ResponseWriter, r *http.Request) error {
	d, err := digestOf(r)
	if err != nil {
		return err
	}
	data, done, err := s.blobs.get(r.Context(), d)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, codeNoBlob, "there is no blob %s here", d)
	}
	if err != nil {
		return fmt.Errorf("read blob %s: %w", d, err)
	}
	defer done()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	_, _ = w.Write(data) // whoever has gone asks again
	return nil
}

func digestOf(r *http.Request) (d release.Digest, err error) {
	if err := d.UnmarshalText([]byte(r.PathValue("digest"))); err != nil {
		return d, fault.New(fault.Invalid, "bad_digest", "%v", err)
	}
	return d, nil
}

// read looks for a blob where this node may have it.
func (s *Server) read(ctx context.Context, d release.Digest) ([]byte, error) {
	if tried := s.opt.Trials.blobs(); tried != nil {
		if data, err := tried.Blob(ctx, d); err == nil {
			return data, nil
		}
	}
	if s.opt.Blobs != nil {
		data, err := s.opt.Blobs.Blob(ctx, d)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return data, err
		}
	}
	return s.opt.Board.Blob(ctx, d)
}
