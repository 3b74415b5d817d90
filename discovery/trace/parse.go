package trace

import (
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

const (
	length   = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	maxState = 512 // bytes of a tracestate that every hop must pass on
	flags    = trace.FlagsSampled | trace.FlagsRandom
)

// Parse reads a traceparent. What is wrong in any way is no span at all: a caller
// begins a new trace then. It does not allocate.
//
// Later versions than 00 may have more behind the flags, as the specification says.
func Parse(header string) trace.SpanContext {
	if len(header) < length || header[2] != '-' || header[35] != '-' || header[52] != '-' {
		return trace.SpanContext{}
	}
	var version, bits [1]byte
	var id trace.TraceID
	var span trace.SpanID
	if !(read(version[:], header[0:2]) && read(id[:], header[3:35]) && read(span[:], header[36:52]) && read(bits[:], header[53:55])) {
		return trace.SpanContext{}
	}
	switch more := header[length:]; {
	case version[0] == 0xff, version[0] == 0 && more != "", more != "" && more[0] != '-', !id.IsValid(), !span.IsValid():
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(bits[0]) & flags, Remote: true})
}

// Append appends a span as a traceparent.
func Append(b []byte, span trace.SpanContext) []byte {
	id, self := span.TraceID(), span.SpanID()
	b = hex.AppendEncode(append(b, "00-"...), id[:])
	b = hex.AppendEncode(append(b, '-'), self[:])
	return hex.AppendEncode(append(b, '-'), []byte{byte(span.TraceFlags() & flags)})
}

// read reads lower-case hexadecimal digits, two for each byte of into.
func read(into []byte, text string) bool {
	for i := range into {
		high, low := digit(text[2*i]), digit(text[2*i+1])
		if high > 15 || low > 15 {
			return false
		}
		into[i] = high<<4 | low
	}
	return true
}

// digit is the value of a lower-case hexadecimal digit, 16 of anything else.
func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 16
}

// State reads a tracestate: the members that fit into 512 bytes, none if one of them
// is wrong. It belongs to a traceparent and means nothing without one.
func State(header string) trace.TraceState {
	if len(header) > maxState {
		header = header[:max(strings.LastIndexByte(header[:maxState+1], ','), 0)]
	}
	state, err := trace.ParseTraceState(header)
	if err != nil {
		return trace.TraceState{} // a wrong tracestate does not spoil the traceparent
	}
	return state
}
