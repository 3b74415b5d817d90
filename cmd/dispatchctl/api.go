package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// tokenVariable holds the token where --token-file names no file.
const tokenVariable = "DISPATCH_TOKEN"

// maxAnswer bounds an answer in bytes. The largest is a release, whose manifest
// has at most 16 MiB.
const maxAnswer = 32 << 20

// serverFlags say whom a command asks, and as whom.
type serverFlags struct {
	Server    string        `default:"http://localhost:8081" env:"DISPATCH_SERVER" placeholder:"URL" help:"Admin API of a control node (default http://localhost:8081)."`
	TokenFile string        `env:"DISPATCH_TOKEN_FILE" placeholder:"FILE" help:"File that holds the token (default: the token is $$DISPATCH_TOKEN)."`
	Timeout   time.Duration `default:"30s" help:"How long to wait for the answer."`
}

// open checks the flags. It asks nobody yet.
func (f serverFlags) open(log io.Writer) (*api, error) {
	base, err := url.Parse(strings.TrimSuffix(strings.TrimSuffix(f.Server, "/"), "/api/v1"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil || base.RawQuery != "" {
		return nil, usageError{fault.New(fault.Invalid, "bad_server", "--server is not http://HOST:PORT or https://HOST")}
	}
	if f.Timeout <= 0 {
		return nil, usageError{fault.New(fault.Invalid, "bad_timeout", "--timeout %s leaves no time", f.Timeout)}
	}
	token := os.Getenv(tokenVariable)
	if f.TokenFile != "" {
		text, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return nil, usageError{fmt.Errorf("read token: %w", err)}
		}
		token = string(text)
	}
	token = strings.TrimSpace(token)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, usageError{fault.New(fault.Invalid, "no_token", "there is no token, or it is more than one word").
			WithHint("set $" + tokenVariable + ", or name a file with --token-file; dispatch admin init makes the first token")}
	}
	if base.Scheme == "http" && !isLoopback(base.Hostname()) {
		fmt.Fprintf(log, "warning: the token goes to %s in plain text; use https or a tunnel\n", base.Host)
	}
	return &api{base: base.String(), token: token, timeout: f.Timeout, client: &http.Client{
		// A redirect would turn a write into a read, or take the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// api is the admin API of one control node.
type api struct {
	base, token string
	timeout     time.Duration
	client      *http.Client
}

// get reads a path into v and also gives the answer as it came.
func (a *api) get(ctx context.Context, path string, v any) ([]byte, error) {
	return a.ask(ctx, request{method: http.MethodGet, path: path}, v)
}

// request is one call. key makes a write safe to repeat. A stream is sent as it
// comes, and neither it nor what a download brings has a limit of time.
type request struct {
	method, path, key, ifMatch string
	body                       any
	stream                     io.Reader
	streamType                 string
}

// ask sends a request, reads its answer into v and also gives it as it came.
func (a *api) ask(ctx context.Context, r request, v any) ([]byte, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt) // who interrupts a write wants to know its key
	defer stop()
	if r.stream == nil {
		limited, cancel := context.WithTimeout(ctx, a.timeout)
		defer cancel()
		ctx = limited
	}
	resp, err := a.send(ctx, r)
	if err != nil {
		return nil, a.unanswered(r, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, a.unanswered(r, err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		return nil, a.refusal(r, resp, answer)
	}
	if v == nil {
		return answer, nil
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return nil, a.stranger(r.path, err)
	}
	return answer, nil
}

// stranger is the error about an answer that dispatch does not give.
func (a *api) stranger(path string, cause error) error {
	return fault.New(fault.Unavailable, "bad_answer", "the answer of %s%s is not that of dispatch", a.base, path).
		Because(cause).WithHint("is --server the admin API?")
}

// download copies an answer to w as it comes.
func (a *api) download(ctx context.Context, path string, w io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	r := request{method: http.MethodGet, path: path}
	resp, err := a.send(ctx, r)
	if err != nil {
		return a.unanswered(r, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // what is cut off is no problem document
		return a.refusal(r, resp, answer)
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func (a *api) send(ctx context.Context, r request) (*http.Response, error) {
	var buffer bytes.Buffer
	body := r.stream
	if body == nil {
		body = &buffer
	}
	if r.body != nil {
		if err := json.NewEncoder(&buffer).Encode(r.body); err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, a.base+"/api/v1"+r.path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.stream != nil {
		req.Header.Set("Content-Type", r.streamType)
	}
	if r.ifMatch != "" {
		req.Header.Set("If-Match", r.ifMatch)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	return a.client.Do(req)
}

// unanswered is what is known when no answer came.
func (a *api) unanswered(r request, cause error) error {
	op, ok := errors.AsType[*net.OpError](cause)
	if r.key == "" || ok && op.Op == "dial" {
		return fault.New(fault.Unavailable, "no_answer", "no answer from %s", a.base).Because(cause).
			WithHint("another control node answers as well: --server")
	}
	return fault.New(fault.Unavailable, "no_answer", "no answer from %s; the change may have been made", a.base).Because(cause).WithHint(again(r.key))
}

// again is how to learn whether a write was done.
func again(key string) string {
	return "the same command with --key " + key + ", which changes nothing twice; dispatchctl releases shows what was made"
}

// refusal is the problem that the server answered, as the error that it was.
func (a *api) refusal(r request, resp *http.Response, answer []byte) error {
	var b fault.Body
	if err := json.Unmarshal(answer, &b); err != nil || b.Code == "" {
		b = fault.Body{Code: "bad_answer", Detail: a.base + r.path + " answers " + resp.Status, Hint: "is --server the admin API?"}
	}
	// Anything but a 503 of dispatch's own may have come after the change.
	if r.key != "" && resp.StatusCode >= http.StatusInternalServerError && (resp.StatusCode != http.StatusServiceUnavailable || b.Code == "bad_answer") {
		b.Detail, b.Hint = b.Detail+"; the change may have been made", again(r.key)
	}
	return &fault.Error{Kind: fault.Denied, Code: b.Code, Detail: b.Detail + " (" + b.Code + ")", Hint: b.Hint, Problems: b.Problems, Data: b.Data}
}
