package fleet

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// ask makes one request with the token.
func ask(tb testing.TB, c *control, method, path, body string) (int, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, c.http.URL+path, strings.NewReader(body))
	if err != nil {
		tb.Error(err)
		return 0, ""
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	res, err := c.http.Client().Do(req)
	if err != nil {
		tb.Error(err)
		return 0, ""
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Error(err)
	}
	return res.StatusCode, string(data)
}

// serveAt serves at an address that a test knows.
func serveAt(tb testing.TB, address string, h http.Handler) {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	server := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	tb.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}
