package handler

import "testing"

func TestReportedFallbacksAreCounted(t *testing.T) {
	f := newFixture(t)
	for _, report := range []string{
		"timeout;count=2, bad_record;count=1",
		"timeout",                       // without a count: one
		"timeout;count=-5",              // at least one
		"status;count=999999999",        // bounded
		"made_up;count=3, d-1001, , ;;", // not in the set
	} {
		f.ask(t, "/route", fallbackHeader, report)
	}
	f.wantMetric(t, `dispatch_client_fallbacks_total{reason="timeout"} 4`)
	f.wantMetric(t, `dispatch_client_fallbacks_total{reason="bad_record"} 1`)
	f.wantMetric(t, `dispatch_client_fallbacks_total{reason="status"} 100`)
	f.wantMetric(t, `dispatch_client_fallbacks_total{reason="mismatch"} 0`)
}
