// Package httpcall sends HTTP requests to services by their names:
// http://order-core/path. It is an http.RoundTripper over a caller.Caller.
package httpcall
