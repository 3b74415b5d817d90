package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// budget bounds one question with its retry: what a person waits for at the start of an app.
	budget = 2 * time.Second
	// attempts is the first host and one other.
	attempts = 2
	// maxBody is above three times the 1,200 bytes that the server promises to stay under.
	maxBody = 4 << 10
	// maxHeaderValue is the server's limit for an id, in bytes; it ignores longer ones.
	maxHeaderValue = 256

	// After a question without an answer the next one waits, so that an app that calls Route
	// for every page is not slowed by 2 s each time and an outage does not end in a herd.
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// call is one question that any number of callers wait for.
type call struct {
	done  chan struct{} // closed when route and why are set
	route Route
	why   Reason // empty: answered
}

// ask joins the question under way or starts one, unless the Client is closed or pauses;
// then it returns the reason. The caller holds mu.
func (c *Client) ask(force bool) (*call, Reason) {
	switch {
	case c.closed:
		return nil, Closed
	case c.call != nil:
		return c.call, ""
	case !force && time.Until(c.resume) > 0:
		return nil, c.why
	}
	c.call = &call{done: make(chan struct{})}
	c.asking.Go(c.question())
	return c.call, ""
}

// question takes what it needs while the caller holds mu.
func (c *Client) question() func() {
	asked, first, header := c.call, c.first, c.headers.Clone()
	put(header, "X-User-Id", c.user)
	if r := report(c.fallbacks); r != "" {
		header.Set("X-Fallback-Reason", r)
	}
	if c.good != nil && c.good.Session != "" {
		header.Set("X-Session-Token", c.good.Session)
	}
	return func() {
		ctx, cancel := context.WithTimeout(c.ctx, budget)
		defer cancel()
		var why Reason
		for i := range attempts {
			host := (first + i) % len(c.hosts)
			err := c.attempt(ctx, host, header, i == attempts-1)
			if err == nil {
				why = ""
				break
			}
			c.log.Warn("no usable answer", "host", c.hosts[host].Host, "err", err)
			why = graver(why, reasonOf(err))
		}
		c.settle(asked, why)
		c.save()
	}
}

// attempt asks one host and accepts what it says. All but the last one leave half of the
// budget to the next.
func (c *Client) attempt(ctx context.Context, host int, header http.Header, last bool) error {
	if !last {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, budget/attempts)
		defer cancel()
	}
	began := time.Now()
	body, err := c.fetch(ctx, c.hosts[host], header)
	if err != nil {
		return err
	}
	a, err := c.trust.parse(body)
	if err != nil {
		return err
	}
	return c.accept(a, body, began, host)
}

func (c *Client) fetch(ctx context.Context, to *url.URL, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, refuse(Unreachable, "build request: %w", err)
	}
	req.Header = header.Clone()
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, noAnswer(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, refuse(BadStatus, "status %d", resp.StatusCode)
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, refuse(BadContentType, "content type %q", resp.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, noAnswer(err)
	}
	if len(body) > maxBody {
		return nil, refuse(TooLarge, "more than %d bytes", maxBody)
	}
	return body, nil
}

func noAnswer(err error) error {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return refuse(Timeout, "%w", err)
	}
	return refuse(Unreachable, "%w", err)
}

// accept admits a parsed answer and makes it the last good one. The ttl counts from when
// the request left, so that it never lasts longer than the server meant.
func (c *Client) accept(a answer, body []byte, began time.Time, host int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := []string{c.trust.builtIn}
	if c.good != nil {
		known = append(known, c.good.Domain)
	}
	next, err := c.marks.admit(&a, c.wall(), known)
	if err != nil {
		return err
	}
	c.marks = next
	c.good = &held{answer: a, body: body, received: c.wall(), until: began.Add(a.ttl()), confirmed: true}
	c.first = host
	return nil
}

// settle ends a question for everyone who waits for it.
func (c *Client) settle(asked *call, why Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(asked.done)
	c.call = nil
	switch {
	case why == "":
		asked.route = c.good.route(c.trust.builtIn, Fresh, "")
		c.failures, c.resume = 0, time.Time{}
		clear(c.fallbacks) // the request that was answered carried them
		return
	case c.ctx.Err() != nil:
		asked.why = Closed
		return
	}
	asked.why, c.why = why, why
	c.first = (c.first + attempts) % len(c.hosts) // with more than two hosts, two others
	pause := min(firstPause<<min(c.failures, 10), maxPause)
	c.failures++
	c.resume = time.Now().Add(time.Duration(float64(pause) * (0.7 + 0.6*rand.Float64()))) // ± 30 %
	if !c.good.hasTTL() && c.fallbacks[why] < maxCount {
		c.fallbacks[why]++
	}
}

// put sets a header whose value can be sent. What cannot is left out, because the server
// would count it as absent, and a request that cannot be built helps nobody.
func put(h http.Header, name, value string) {
	if value = strings.TrimSpace(value); sendable(value) {
		h.Set(name, value)
	}
}

func sendable(value string) bool {
	control := strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f })
	return value != "" && len(value) <= maxHeaderValue && !control
}

// refusal is why an answer is none.
type refusal struct {
	why Reason
	err error
}

func (r *refusal) Error() string { return string(r.why) + ": " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(why Reason, format string, args ...any) error {
	return &refusal{why, fmt.Errorf(format, args...)}
}

func reasonOf(err error) Reason {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.why
	}
	return Unreachable
}
