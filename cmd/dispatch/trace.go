package main

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/discovery/trace"
	"dispatch.example/dispatch/discovery/trace/otlp"
	"dispatch.example/dispatch/handler"
	"dispatch.example/dispatch/internal/fault"
)

// traceFlags say where spans of /route go.
type traceFlags struct {
	OTLP       string  `name:"otlp" env:"DISPATCH_OTLP" placeholder:"URL" help:"Collector that takes spans of /route by OTLP over HTTP, such as http://127.0.0.1:4318; headers that it wants come from $OTEL_EXPORTER_OTLP_HEADERS. None: no spans; log lines name traces all the same."`
	OTLPSample float64 `name:"otlp-sample" env:"DISPATCH_OTLP_SAMPLE" default:"0.01" placeholder:"SHARE" help:"Of the traces that begin at /route, how many are recorded, 0 to 1; others are if their beginning was, at most 100 a second."`
}

func (f *traceFlags) validate(p *fault.Problems, r role) {
	if f.OTLP != "" && !r.serves() {
		p.Addf("--otlp", "is for what answers apps: a control node has no /route")
	}
	if !(f.OTLPSample >= 0 && f.OTLPSample <= 1) {
		p.Addf("--otlp-sample", "%v is not a share from 0 to 1", f.OTLPSample)
	}
	if f.OTLP != "" {
		if _, err := otlp.Endpoint(f.OTLP); err != nil {
			p.Addf("--otlp", "%s", strings.TrimSpace(err.Error()))
		}
	}
}

// newSpans is the way of spans out of this process, nil if nobody wants them.
func newSpans(p *process) (*otlp.Exporter, error) {
	c := p.cfg
	if c.Trace.OTLP == "" {
		return nil, nil
	}
	about := []attribute.KeyValue{attribute.String("dispatch.deployment", c.Deployment)}
	for _, a := range []struct{ key, value string }{
		{"dispatch.cluster", c.Cluster}, {"dispatch.replica_region", c.Region}, {"deployment.environment.name", c.Env}, {"service.version", c.VersionLabel},
	} {
		if a.value != "" {
			about = append(about, attribute.String(a.key, a.value))
		}
	}
	// The handler chooses: all that it hands over is kept.
	return otlp.New(otlp.Options{URL: c.Trace.OTLP, Service: "dispatch", About: about, Share: 1, Log: p.log, Registry: p.registry})
}

// traceRoutes lets the handler record spans.
func (p *process) traceRoutes(opt *handler.Options) {
	if p.spans != nil {
		opt.Tracer, opt.TraceShare = p.spans.Provider().Tracer("dispatch.example/dispatch/handler"), p.cfg.Trace.OTLPSample
	}
}

// runLogs writes what requests leave behind, until ctx ends and all is written: the
// decision log and spans.
func (p *process) runLogs(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return p.handler.Run(ctx) })
	if p.spans != nil {
		g.Go(func() error { return p.spans.Run(ctx) })
	}
	return g.Wait()
}

// traced puts the trace of a request into its context, for the lines that are logged
// about it. Requests of apps are not among them: package handler looks after those.
func traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := trace.In(r.Context(), r.Header.Get(trace.Header), r.Header.Get(trace.StateHeader))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
