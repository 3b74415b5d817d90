package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

const (
	watchPath = "/fleet/v1/watch"
	blobsPath = "/fleet/v1/blobs/"

	// answerWithin is how long the first byte of an answer may take, beside the
	// time that the server was asked to wait.
	answerWithin = 3 * time.Second
	// bodyWithin is how long a body may take: 64 MiB at 9 Mbit/s.
	bodyWithin = time.Minute
	// sendWithin is how long a release with all its blobs may take on its way to
	// a control node, which compiles it too.
	sendWithin = 5 * time.Minute

	// MaxMessage bounds a report or reply with a release: a manifest of 16 MiB
	// and records that are smaller, both in base64.
	MaxMessage = 64 << 20
	// MaxBlob bounds a blob, of which an address table is the largest.
	MaxBlob = 96 << 20
)

// HTTPOptions say where a control node listens and how it knows us.
type HTTPOptions struct {
	URL   string      // required: http://127.0.0.1:8083 or https://HOST:PORT of its fleet listener
	Name  string      // default "control HOST:PORT"
	Token string      // of --fleet-token-file
	TLS   *tls.Config // of https: whom to believe, and our certificate; default: the machine's roots
}

// HTTP is the Source that asks one control node. Only one Next runs at a time.
type HTTP struct {
	base   string
	name   string
	token  string
	client *http.Client
}

// NewHTTP checks the options.
func NewHTTP(opt HTTPOptions) (*HTTP, error) {
	u, err := url.Parse(opt.URL)
	var p fault.Problems
	switch {
	case err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https":
		p.Addf("--control", "is not http://HOST:PORT or https://HOST:PORT of a fleet listener")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		p.Addf("--control", "%s is beyond this machine and would send releases and the token in plain text: use https", u.Host)
	}
	if err := p.Err("bad_control", "a control node cannot be asked"); err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: answerWithin,
		ForceAttemptHTTP2:   true, // a question that is cut short then costs no connection
		DisableCompression:  true,
		MaxIdleConnsPerHost: fetchWorkers,
		IdleConnTimeout:     30 * time.Second,
	}
	if opt.TLS != nil {
		transport.TLSClientConfig = opt.TLS.Clone()
	}
	return &HTTP{
		base:  u.Scheme + "://" + u.Host,
		name:  cmp.Or(opt.Name, "control "+u.Host),
		token: opt.Token,
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // nobody else shall get the token
		}},
	}, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Name is control HOST:PORT unless the options say another one.
func (h *HTTP) Name() string { return h.name }

// CloseIdleConnections ends connections that no question uses.
func (h *HTTP) CloseIdleConnections() { h.client.CloseIdleConnections() }

// Next asks the control node, which waits with its answer for PollEvery ± 30 %
// if it has nothing newer.
func (h *HTTP) Next(ctx context.Context, r Report) (*release.Signed, error) {
	reply, err := h.tell(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case reply.Release == nil && reply.Send:
		return nil, errSend
	}
	return reply.Release, nil
}

// tell is Next with all of the answer.
func (h *HTTP) tell(ctx context.Context, r Report) (*Reply, error) {
	wait := jitter(PollEvery)
	return h.watch(ctx, r, wait, wait+answerWithin)
}

// watch asks once. The answer must begin within the given time.
func (h *HTTP) watch(ctx context.Context, r Report, wait, within time.Duration) (*Reply, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode report: %w", err)
	}
	path := watchPath + "?wait=" + wait.Round(time.Millisecond).String()
	if r.Refusal != nil && r.Refusal.Source == h.name {
		path += "&refused=true" // what another source brought may be another release of that number
	}
	data, err := h.do(ctx, call{http.MethodPost, path, body, within, MaxMessage})
	if err != nil {
		return nil, err
	}
	var reply Reply
	if err := json.Unmarshal(data, &reply); err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", h.name, err)
	}
	return &reply, nil
}

// Blob fetches a blob; one that the control node lacks is fs.ErrNotExist.
func (h *HTTP) Blob(ctx context.Context, d release.Digest) ([]byte, error) {
	return h.do(ctx, call{http.MethodGet, blobsPath + d.String(), nil, answerWithin, MaxBlob})
}

// send gives the control node the release in the report and meanwhile the blobs
// that it asks for. A load takes as long as it takes, so both have sendWithin.
func (h *HTTP) send(ctx context.Context, r Report, parts []release.Digest, blobs release.Blobs) error {
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	var g errgroup.Group
	g.Go(func() error {
		defer cancel() // it has all it wants
		_, err := h.watch(ctx, r, 0, sendWithin)
		return err
	})
	g.Go(func() error {
		err := h.sendBlobs(ctx, parts, blobs)
		if ctx.Err() != nil {
			return nil // the answer to the report says how it went
		}
		if err != nil {
			cancel()
		}
		return err
	})
	return g.Wait()
}

// sendBlobs sends a first part, and then whatever the answer says is wanted.
func (h *HTTP) sendBlobs(ctx context.Context, parts []release.Digest, blobs release.Blobs) error {
	for len(parts) > 0 {
		data, err := blobs.Blob(ctx, parts[0])
		if err != nil {
			return err
		}
		answer, err := h.do(ctx, call{http.MethodPut, blobsPath + parts[0].String(), data, bodyWithin, maxProblem})
		if err != nil {
			return err
		}
		var next wants
		if err := json.Unmarshal(answer, &next); err != nil {
			return fmt.Errorf("read answer of %s: %w", h.name, err)
		}
		if next.Done {
			return nil
		}
		if len(next.Wanted) > 0 {
			parts = next.Wanted
		}
	}
	return nil
}

// call is one HTTP request: what is asked, how soon the answer must begin, and
// how large it may be.
type call struct {
	method, path string
	body         []byte
	within       time.Duration
	limit        int64
}

// maxProblem bounds the body of an error.
const maxProblem = 64 << 10

// errTooSlow is the cause of a question that took too long.
var errTooSlow = errors.New("it does not answer in time")

// do makes a call and returns the body of its answer.
func (h *HTTP) do(caller context.Context, c call) (data []byte, err error) {
	ctx, stop := context.WithCancelCause(caller)
	defer stop(nil)
	late := time.AfterFunc(c.within, func() { stop(errTooSlow) })
	defer late.Stop()
	defer func() {
		if err == nil {
			return
		}
		if err = fmt.Errorf("ask %s: %w", h.name, err); caller.Err() == nil {
			// A connection that is broken without knowing it must not get the next question.
			h.client.CloseIdleConnections()
		}
	}()
	req, err := http.NewRequestWithContext(ctx, c.method, h.base+c.path, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	res, err := h.client.Do(req)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	defer res.Body.Close()
	late.Reset(bodyWithin)
	if res.StatusCode >= http.StatusMultipleChoices {
		return nil, problemOf(res)
	}
	data, err = io.ReadAll(io.LimitReader(res.Body, c.limit+1))
	switch {
	case err != nil:
		return nil, causeOf(ctx, err)
	case int64(len(data)) > c.limit:
		return nil, fmt.Errorf("the answer has more than %d bytes", c.limit)
	}
	return data, nil
}

// causeOf is why ctx ended, if that is why a call did.
func causeOf(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errTooSlow) {
		return errTooSlow
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err // without the URL, which Name says shorter
	}
	return err
}

// problemOf is the error that a control node answered.
func problemOf(res *http.Response) error {
	var body fault.Body
	data, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err == nil {
		_ = json.Unmarshal(data, &body) // something else than ours may answer; its status says enough
	}
	text := fmt.Sprintf("it answers %d %s", res.StatusCode, cmp.Or(body.Code, http.StatusText(res.StatusCode)))
	if body.Detail != "" {
		text += ": " + body.Detail
	}
	if res.StatusCode == http.StatusNotFound && body.Code == codeNoBlob {
		return fmt.Errorf("%s: %w", text, fs.ErrNotExist)
	}
	return errors.New(text)
}
