package testenv

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// Collector takes spans by OTLP over HTTP, as an OpenTelemetry collector does. Its
// server ends with the test.
type Collector struct {
	URL string

	mu     sync.Mutex // guards what follows
	spans  []Span
	status int // that answers instead of taking spans; 0: none
}

// Span is one that arrived.
type Span struct {
	Service, Name        string
	Trace, Self, Parent  string // hexadecimal; Parent empty for the first
	Start, End           time.Time
	Failed               bool
	Attributes, Resource map[string]string
}

// NewCollector starts one.
func NewCollector(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(c.take))
	tb.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Refuse answers with a status from here on; 0 takes spans again.
func (c *Collector) Refuse(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// Spans are those that have arrived.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Wait gives the spans once there are n, and fails the test if that takes 10 s.
func (c *Collector) Wait(tb testing.TB, n int) []Span {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if spans := c.Spans(); len(spans) >= n {
			return spans
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("of %d spans arrived %+v", n, c.Spans())
		}
	}
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.status != 0:
		http.Error(w, "refused", c.status)
		return
	case err != nil || r.URL.Path != "/v1/traces":
		http.Error(w, fmt.Sprintf("%s: %v", r.URL.Path, err), http.StatusBadRequest)
		return
	}
	for _, of := range request.GetResourceSpans() {
		resource := attributes(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{Service: resource["service.name"], Name: s.GetName(),
					Trace: hex.EncodeToString(s.GetTraceId()), Self: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
					Failed: s.GetStatus().GetCode() == 2, Attributes: attributes(s.GetAttributes()), Resource: resource})
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// attributes are values as text.
func attributes(list []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.GetKey()] = fmt.Sprint(v.IntValue)
		default:
			m[a.GetKey()] = fmt.Sprint(a.GetValue())
		}
	}
	return m
}
