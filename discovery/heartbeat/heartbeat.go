// Package heartbeat tells the control nodes, every ten seconds, that this process
// lives and how busy it is: CPU, memory, and the calls in work.
//
//	var inWork atomic.Int64 // counted by httpcall.Count and grpccall.ServerOptions
//	beat, err := heartbeat.New(heartbeat.Options{Control: urls, Token: token, Instances: reg.Instances(), InWork: inWork.Load})
//	group.Go(func() error { return beat.Run(ctx) })
//
//	meter (this process, its limits) ──► wire.Report of each instance ──► the first control node that takes them
//
// Reports go to control nodes and never to the registry: there each of them would
// wake every caller that follows the service.
//
// Run is the only goroutine. A report that nobody takes is lost, logged when that
// begins and when it ends, and counted; the next one is newer anyway. What cannot be
// measured is left out of a report: unknown is not 0.
package heartbeat

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

const (
	dialTimeout = time.Second
	// sendTimeout is for one control node. Three that are silent fit between two reports.
	sendTimeout = 3 * time.Second
)

// Options say what is reported, and where.
type Options struct {
	Control   []string             // required: URLs of fleet listeners, asked in turn
	Token     string               // of the fleet listener
	TLS       *tls.Config          // nil: the system's
	Instances []discovery.Instance // required: as registered, see Registration.Instances
	InWork    func() int64         // calls or connections in work; nil: unknown

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Reporter reports for one process.
type Reporter struct {
	opt     Options
	client  *http.Client
	meter   *meter
	reports *prometheus.CounterVec
	node    int  // index in Control of the one that took the last report
	failing bool // the last report was lost
}

// New checks the options. It connects to nobody.
func New(opt Options) (*Reporter, error) {
	var p fault.Problems
	if len(opt.Control) == 0 {
		p.Addf("Control", "names no fleet listener")
	}
	opt.Control = wire.CheckControl(&p, opt.Control)
	if len(opt.Instances) == 0 {
		p.Addf("Instances", "there is none to report about")
	}
	for i, in := range opt.Instances {
		if in.ID == "" || in.Service == "" || in.Started.IsZero() {
			p.Addf(fmt.Sprintf("Instances[%d]", i), "has no id, service or start: take it from Registration.Instances")
		}
	}
	if err := p.Err("invalid_heartbeat", "the load of this process cannot be reported"); err != nil {
		return nil, err
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	m, err := newMeter(opt.InWork)
	if err != nil {
		return nil, err
	}
	reports, err := newCounter(opt.Metrics)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2:   true,
	}
	if opt.TLS != nil {
		transport.TLSClientConfig = opt.TLS.Clone()
	}
	return &Reporter{opt: opt, meter: m, reports: reports, client: &http.Client{Transport: transport,
		// Nobody else shall get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

func newCounter(reg prometheus.Registerer) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dispatch_discovery_reports_total",
		Help: "Reports of this process's load by outcome; while they fail, its load is unknown and rules do not see it.",
	}, []string{"outcome"})
	if reg == nil {
		return c, nil
	}
	return c, discovery.Enroll(reg, &c)
}

// Run reports at once and then every ten seconds until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	defer r.client.CloseIdleConnections()
	tick := time.NewTicker(wire.ReportEvery)
	defer tick.Stop()
	for {
		r.report(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// report measures and sends once.
func (r *Reporter) report(ctx context.Context) {
	load := r.meter.load(ctx)
	reports := make([]wire.Report, 0, len(r.opt.Instances))
	for _, in := range r.opt.Instances {
		reports = append(reports, wire.Report{ID: in.ID, Service: in.Service, Address: in.Address, Started: in.Started, Load: load})
	}
	ctx, cancel := context.WithTimeout(ctx, wire.ReportEvery-time.Second)
	defer cancel()
	err := r.send(ctx, reports)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the process ends, and nobody is to blame
	}
	r.note(err)
}

// send asks one control node after the other, beginning with the last that answered.
func (r *Reporter) send(ctx context.Context, reports []wire.Report) error {
	body, err := json.Marshal(reports)
	if err != nil {
		return fmt.Errorf("encode reports: %w", err)
	}
	var errs []error
	for i := range r.opt.Control {
		node := (r.node + i) % len(r.opt.Control)
		err := r.post(ctx, r.opt.Control[node], body)
		if err == nil {
			r.node = node
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (r *Reporter) post(ctx context.Context, node string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, node+wire.ReportsPath, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("report to %s: %w", node, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if r.opt.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.opt.Token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return fmt.Errorf("report to %s: %w", node, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // enough to say why, and the connection is used again
	if err != nil {
		return fmt.Errorf("report to %s: %w", node, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("report to %s: status %d: %s", node, resp.StatusCode, bytes.TrimSpace(text))
	}
	return nil
}

// note counts, and logs a change.
func (r *Reporter) note(err error) {
	switch {
	case err == nil:
		r.reports.WithLabelValues("ok").Inc()
		if r.failing {
			r.opt.Log.Info("the load of this process is reported again")
		}
	default:
		r.reports.WithLabelValues("failed").Inc()
		if !r.failing {
			r.opt.Log.Warn("the load of this process is not reported; control nodes take it for unknown", "err", err)
		}
	}
	r.failing = err != nil
}
