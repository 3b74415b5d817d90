package caller

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

const (
	dialTimeout = 2 * time.Second
	// answerWithin is how long the first byte of an answer may take, beside the time
	// that the node may hold the question.
	answerWithin = 3 * time.Second
	// bodyWithin is how long a body may take: 32 MiB at 9 Mbit/s.
	bodyWithin = 30 * time.Second
	maxTables  = 64 << 20 // bytes: about 100,000 instances
	maxProblem = 64 << 10
)

func newTransport(config *tls.Config) *http.Transport {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2:   true, // records then travel beside the question that waits
		IdleConnTimeout:     30 * time.Second,
	}
	if config != nil {
		t.TLSClientConfig = config.Clone()
	}
	return t
}

// errTooSlow is the cause of a question that took too long.
var errTooSlow = errors.New("it does not answer in time")

// errEpoch is an answer that says what changed since another time.
var errEpoch = errors.New("it answers what changed in another epoch")

// ask asks a node for what changed since.
func (c *Caller) ask(ctx context.Context, node string, q wire.Ask) (*wire.Tables, error) {
	data, err := c.post(ctx, node+wire.TablesPath, q, wire.HoldFor+answerWithin)
	if err != nil {
		return nil, err
	}
	var t wire.Tables
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("ask %s: read its answer: %w", node, err)
	}
	if t.Epoch == "" || !t.Full && t.Epoch != q.Epoch {
		return nil, fmt.Errorf("ask %s: epoch %q, asked was %q: %w", node, t.Epoch, q.Epoch, errEpoch)
	}
	return &t, nil
}

// post makes one request; the answer must begin within the given time.
func (c *Caller) post(caller context.Context, address string, body any, within time.Duration) (data []byte, err error) {
	ctx, stop := context.WithCancelCause(caller)
	defer stop(nil)
	late := time.AfterFunc(within, func() { stop(errTooSlow) })
	defer late.Stop()
	defer func() {
		if err != nil {
			err = fmt.Errorf("ask %s: %w", address, err)
		}
	}()
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.opt.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.opt.Token)
	}
	client := http.Client{Transport: c.transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // nobody else shall get the token
	}}
	res, err := client.Do(req)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	defer res.Body.Close()
	late.Reset(bodyWithin)
	if res.StatusCode >= http.StatusMultipleChoices {
		return nil, problemOf(res)
	}
	data, err = io.ReadAll(io.LimitReader(res.Body, maxTables+1))
	switch {
	case err != nil:
		return nil, causeOf(ctx, err)
	case len(data) > maxTables:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxTables)
	}
	return data, nil
}

// causeOf is why ctx ended, if that is why a call did.
func causeOf(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errTooSlow) {
		return errTooSlow
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err // without the URL, which the caller of post adds
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
	if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
		text += " (is Token one of --fleet-token-file of the control nodes, or the certificate from their authority?)"
	}
	if refusedFor(res.StatusCode) {
		return fmt.Errorf("%s: %w", text, errUnfit)
	}
	return errors.New(text)
}

// errUnfit is the answer to a body that will never be taken as it is.
var errUnfit = errors.New("the node does not take it")

func refusedFor(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}
