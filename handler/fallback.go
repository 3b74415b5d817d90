package handler

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// fallbackHeader is how an app reports, when it next succeeds, that it went on
// without us and why: a structured field such as timeout;count=2, status;count=1.
const fallbackHeader = "X-Fallback-Reason"

// fallbackReasons is the closed set of docs/client.md. Other words are not counted.
var fallbackReasons = []string{"unreachable", "timeout", "status", "content_type", "too_large", "bad_answer",
	"expired", "rollback", "bad_domain", "bad_record", "mismatch"}

// maxFallbacks bounds what one request may add to a counter: anybody can send a report.
const maxFallbacks = 100

func newFallbacks() (vec *prometheus.CounterVec, byReason map[string]prometheus.Counter) {
	vec = counters("dispatch_client_fallbacks_total", "Times that apps went on without an answer, as they report it; anybody can send a report.", "reason")
	byReason = make(map[string]prometheus.Counter, len(fallbackReasons))
	for _, reason := range fallbackReasons {
		byReason[reason] = vec.WithLabelValues(reason)
	}
	return vec, byReason
}

// fellBack counts what a client reports of its earlier attempts.
func (m *metrics) fellBack(h http.Header) {
	v := h[fallbackHeader]
	if len(v) == 0 {
		return
	}
	for part := range strings.SplitSeq(v[0], ",") {
		reason, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		counter, known := m.fallbacks[reason]
		if !known {
			continue
		}
		n := 1
		if text, ok := strings.CutPrefix(strings.TrimSpace(params), "count="); ok {
			n, _ = strconv.Atoi(text) // unreadable: 0
		}
		counter.Add(float64(min(max(n, 1), maxFallbacks)))
	}
}
