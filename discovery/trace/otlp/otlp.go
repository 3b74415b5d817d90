// Package otlp records spans and sends them to a collector, by OTLP over HTTP. It is
// apart from package trace so that only those who want it pay for it.
//
//	e, err := otlp.New(otlp.Options{URL: "http://127.0.0.1:4318", Service: "order-core", Share: 0.01})
//	otelhttp.NewHandler(httpcall.Middleware(mux), "api", otelhttp.WithTracerProvider(e.Provider()), otelhttp.WithPropagators(propagation.TraceContext{}))
//	err = e.Run(ctx)
//
//	span ends ──► queue (2,048) ──► Run: batches of 512, or each second ──► collector
//
// A share of the traces that begin here is recorded; of others, what their first hop
// decided. At the door to the outside that would be anybody: there StripBaggage of
// httpcall, around all of it, or of grpccall, before all other options, lets few flags in. Nothing that ends a span waits: when the queue is full, and when the
// collector is away for longer than it is tried again, spans are dropped and counted,
// and one line says when that begins and when it ends. Run is the only goroutine; when
// its context ends it sends what is left, for three seconds at most.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	maxQueue    = 2048
	maxBatch    = 512
	sendEvery   = time.Second
	sendTimeout = 5 * time.Second // of one attempt
	retryFor    = 10 * time.Second
	flushFor    = 3 * time.Second
	maxAnswer   = 4 << 10 // bytes that a collector may have to say; its words get into the log
)

// Options are where spans go and what stands on them.
type Options struct {
	// URL is that of the collector; without a path spans go to /v1/traces. Headers that
	// it wants, such as a token, are read from $OTEL_EXPORTER_OTLP_HEADERS.
	URL      string
	Service  string                // service.name of each span
	About    []attribute.KeyValue  // more about this process
	Share    float64               // of the traces that begin here, 0 to 1
	Log      *slog.Logger          // default: discard
	Registry prometheus.Registerer // nil: nothing is counted
}

// Exporter records spans.
type Exporter struct {
	provider *sdk.TracerProvider
	queue    queue
	send     sdk.SpanExporter
	http     *http.Client
	log      *slog.Logger
	sent     prometheus.Counter
	failing  bool // of Run: the last batch was lost, which was said once
}

// New checks the options. Nothing is sent before Run.
//
// Its provider believes the flag of callers elsewhere. Where those are not ours, strip
// first, or one of them has every exporter inside record everything:
//
//	httpcall.StripBaggage(otelhttp.NewHandler(httpcall.Middleware(mux), …))
//	grpc.NewServer(append(grpccall.StripBaggage(), grpc.StatsHandler(otelgrpc.NewServerHandler(…)), …)...)
func New(opt Options) (*Exporter, error) {
	endpoint, err := Endpoint(opt.URL)
	if err != nil {
		return nil, err
	}
	if opt.Service == "" || !(opt.Share >= 0 && opt.Share <= 1) {
		return nil, fmt.Errorf("new exporter: service %q and share %v are not a name and 0 to 1", opt.Service, opt.Share)
	}
	e := &Exporter{log: opt.Log, http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}, Timeout: sendTimeout}}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if err := e.count(opt.Registry); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	e.send = otlptrace.NewUnstarted(otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(endpoint), otlptracehttp.WithHTTPClient(e.http),
		otlptracehttp.WithMaxResponseSize(maxAnswer), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true,
			InitialInterval: time.Second, MaxInterval: retryFor / 2, MaxElapsedTime: retryFor})))
	e.provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(&e.queue),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(opt.Share))),
		sdk.WithResource(resource.NewSchemaless(append(opt.About, attribute.String("service.name", opt.Service))...)))
	return e, nil
}

// Endpoint is the URL that spans are posted to, for the URL of a collector.
func Endpoint(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the collector's URL is not http://HOST:PORT or https://HOST:PORT")
	case u.User != nil:
		return "", errors.New("the collector's URL holds a password, which others can read; put it into $OTEL_EXPORTER_OTLP_HEADERS")
	case u.Path == "" || u.Path == "/":
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

func (e *Exporter) count(reg prometheus.Registerer) error {
	e.sent = prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_trace_spans_sent_total",
		Help: "Spans that the collector took."})
	e.queue = queue{spans: make(chan sdk.ReadOnlySpan, maxQueue), dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_trace_spans_dropped_total",
		Help: "Spans that were lost because the collector was away or too many waited; nothing else suffers. Look at the collector, or record a smaller share."})}
	if reg == nil {
		return nil
	}
	return errors.Join(reg.Register(e.sent), reg.Register(e.queue.dropped))
}

// Provider makes tracers whose spans are sent. Give it to OpenTelemetry's libraries.
func (e *Exporter) Provider() trace.TracerProvider { return e.provider }

// Run sends spans until ctx ends, and then what is left.
func (e *Exporter) Run(ctx context.Context) error {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer e.http.CloseIdleConnections()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(flushFor, cancel) })
	defer stop()
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	batch := make([]sdk.ReadOnlySpan, 0, maxBatch)
	for {
		select {
		case span := <-e.queue.spans:
			if batch = append(batch, span); len(batch) < maxBatch {
				continue
			}
		case <-tick.C:
		case <-ctx.Done():
			return e.flush(sending, batch)
		}
		batch = e.export(sending, batch)
	}
}

// flush sends what is left. Spans that end from here on are not recorded.
func (e *Exporter) flush(ctx context.Context, batch []sdk.ReadOnlySpan) error {
	if err := e.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("end recording of spans: %w", err)
	}
	for {
		select {
		case span := <-e.queue.spans:
			if batch = append(batch, span); len(batch) == maxBatch {
				batch = e.export(ctx, batch)
			}
		default:
			e.export(ctx, batch)
			return nil
		}
	}
}

// export sends a batch, or counts it as lost, and returns the room for the next one.
func (e *Exporter) export(ctx context.Context, batch []sdk.ReadOnlySpan) []sdk.ReadOnlySpan {
	if len(batch) == 0 {
		return batch
	}
	err := e.send.ExportSpans(ctx, batch)
	switch {
	case err == nil:
		e.sent.Add(float64(len(batch)))
	default:
		e.queue.dropped.Add(float64(len(batch)))
	}
	switch failed := err != nil; {
	case failed && !e.failing:
		e.log.WarnContext(ctx, "the collector takes no spans, they are dropped", "err", err, "hint", "look at the collector; nothing else waits for it")
	case !failed && e.failing:
		e.log.InfoContext(ctx, "the collector takes spans again")
	}
	e.failing = err != nil
	clear(batch)
	return batch[:0]
}

// queue is where spans wait for Run. It implements sdk.SpanProcessor.
type queue struct {
	spans   chan sdk.ReadOnlySpan
	dropped prometheus.Counter
}

// OnStart does nothing.
func (q *queue) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd keeps a span unless too many wait.
func (q *queue) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	select {
	case q.spans <- span:
	default:
		q.dropped.Inc()
	}
}

// Shutdown does nothing: Run sends what is left.
func (q *queue) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing: Run sends each second.
func (q *queue) ForceFlush(context.Context) error { return nil }
