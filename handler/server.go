package handler

import (
	"log/slog"
	"net/http"
	"time"
)

// Server is an http.Server for h with the limits that keep slow and oversized
// requests from holding it: 2 s for the header, 5 s for the whole request, 10 s
// for the answer, 60 s between requests, 16 KiB of request line and headers
// (more is 431). Log takes what net/http has to say about connections.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           unchained(h),
		ReadHeaderTimeout: 2 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    maxHeader - 4096, // net/http reads 4096 bytes more than it is told
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// unchained lets no request follow one with a chunked body on its connection. A
// proxy in front that goes by another length would take the next request for a
// part of this one, or the other way round (RFC 9112, section 6.1); net/http drops
// the second length before anybody could refuse it. Apps send a length.
func unchained(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// OpsServer is Server with time to write a profile: pprof refuses one that would
// outlast the time-out.
func OpsServer(h http.Handler, log *slog.Logger) *http.Server {
	s := Server(h, log)
	s.WriteTimeout = 5 * time.Minute
	return s
}
