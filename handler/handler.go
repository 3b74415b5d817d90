// Package handler is the public listener and the ops listener.
//
//	GET, POST /route ── address.go   who is the client, is the peer our proxy
//	                    input.go     header, query, body.go
//	                    route.go     believe ─► Table.Decide ─► the pre-rendered answer + ttl + session
//	                    sessionmap.go  the token of a session id, only with a session map
//	                    metrics.go   counters resolved once a snapshot; tally.go, those by the minute
//	                    sample.go    one in so many, for Judge
//	                    decision.go  one record into a bounded buffer
//	                    trace.go     its place in a trace; a span of one in so many
//
// A request takes the current snapshot once and waits for nothing but its own
// bytes: no disk, no network, no other service, and no lock but the one under
// which its record is copied. The one exception is asked for: with a session map,
// a request with a session id and no token waits for it, 5 ms at most, and is
// answered without it after that. A Handler owns no goroutine; Run, which its caller starts, alone writes the decision log. When
// that log is slow or its disk is full, records are dropped and counted, and
// requests do not notice.
//
// What cannot be used in a request is left out and counted, and the request is
// answered. Refused are only: a body that is not JSON, what is too large, an app
// that does not exist, a path or method that does not exist, and everything
// before the first release (503). Refusals are problems (RFC 9457) with a stable
// code. A panic is a 500, counted and logged.
//
// No answer, metric or log line holds a raw id, and no answer says which rule
// decided.
package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// releases gives the release that answers; nil before the first. *release.Keeper has it.
type releases interface {
	Current() *release.Snapshot
}

// Options are what a Handler needs, and what it may have.
type Options struct {
	Releases releases             // required
	Registry *prometheus.Registry // required; served by the ops listener

	Log            *slog.Logger          // default: discard. At debug level one line a request
	TrustedProxies []netip.Prefix        // peers whose forwarded headers, user ids and origin hints count
	CORSOrigins    []string              // scheme://host[:port], or *; default: no page may read answers
	RecordKeys     func() []byte         // JWKS of the record keys; nil: no such page
	Status         func() release.Status // what the keeper counts, for metrics; nil: not shown
	Checks         []Check               // more lines of the ops listener's /readyz
	Now            func() time.Time

	Sessions  sessions                                        // nil: session ids are ignored
	Decisions io.WriteCloser                                  // decision log, see RotatedFile; nil: none. Closed by Run
	HashID    func(of whitelist.Of, id string) whitelist.Hash // required with Decisions and with Sessions
	Replica   policy.Replica                                  // stands in each record
	Databases policy.GeoDigests                               // stands in each record

	Tracer     trace.Tracer // records spans of /route; nil: none. Each request has its IDs all the same
	TraceShare float64      // of the traces that begin here, 0 to 1; others are recorded if their beginning was
}

// Handler answers the public and the ops listener.
type Handler struct {
	releases   releases
	registry   *prometheus.Registry
	log        *slog.Logger
	proxies    proxies
	cors       cors
	recordKeys func() []byte
	checks     []Check
	now        func() time.Time
	metrics    *metrics
	decisions  *decisionLog // nil: none
	sessions   sessions     // nil: none
	sample     sample
	tracing    tracing
	hashID     func(whitelist.Of, string) whitelist.Hash
	scratch    sync.Pool // of *scratch
	public     *echo.Echo
	ops        *echo.Echo
}

// New checks the options, registers the metrics and lays out the routes.
func New(opt Options) (*Handler, error) {
	if opt.Releases == nil || opt.Registry == nil {
		return nil, errors.New("new handler: releases and registry are required")
	}
	if opt.Decisions != nil && opt.HashID == nil {
		return nil, errors.New("new handler: a decision log needs a way to hash ids")
	}
	if opt.Sessions != nil && opt.HashID == nil {
		return nil, errors.New("new handler: a session map needs a way to hash ids")
	}
	h := &Handler{
		releases: opt.Releases, registry: opt.Registry, log: opt.Log, proxies: newProxies(opt.TrustedProxies),
		recordKeys: opt.RecordKeys, checks: opt.Checks, now: opt.Now, sessions: opt.Sessions, hashID: opt.HashID,
		tracing: newTracing(&opt),
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.now == nil {
		h.now = time.Now
	}
	h.scratch.New = func() any { return new(scratch) }
	var err error
	if h.cors, err = newCORS(opt.CORSOrigins); err != nil {
		return nil, err
	}
	if h.metrics, err = newMetrics(opt.Registry, opt.Releases, h.now); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if opt.Status != nil {
		if err := opt.Registry.Register(newStatusCollector(opt.Status)); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	if opt.Decisions != nil {
		r, err := newRenderer(opt.Replica, opt.Databases, opt.HashID)
		if err != nil {
			return nil, err
		}
		h.decisions = &decisionLog{wake: make(chan struct{}, 1), out: opt.Decisions, render: r, dropped: h.metrics.dropped, log: h.log}
	}
	h.public, h.ops = echo.New(), echo.New()
	h.public.HTTPErrorHandler, h.ops.HTTPErrorHandler = h.fail, h.fail
	h.publicRoutes(h.public)
	h.opsRoutes(h.ops)
	return h, nil
}

// Public is the public listener's handler.
func (h *Handler) Public() http.Handler { return h.public }

// Ops is the ops listener's handler.
func (h *Handler) Ops() http.Handler { return h.ops }

// Errors is how many requests were answered with 500 or more since the start.
func (h *Handler) Errors() uint64 { return h.metrics.failed.Load() }

// Counts are the answers since then by the minute, the running one included: the
// last ten minutes in which there were any. A minute is that in which a request was
// answered, by Options.Now.
func (h *Handler) Counts(since time.Time) []fleet.Count {
	return h.metrics.tally.counts(h.now(), since)
}

// Run writes the decision log until ctx ends, then what is left, and closes it.
// End ctx after the public server has shut down, or its last records are lost.
func (h *Handler) Run(ctx context.Context) error {
	if h.decisions == nil {
		<-ctx.Done()
		return nil
	}
	if err := h.decisions.run(ctx); err != nil {
		return fmt.Errorf("close decision log: %w", err)
	}
	return nil
}
