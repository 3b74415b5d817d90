package httpcall

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"sync/atomic"
)

// upload is the body of an attempt. What keeps it from being sent may be on this side:
// who writes to it is slow, or breaks off.
type upload struct {
	io.ReadCloser
	of   *feed
	want int64 // bytes; 0 or less: not known
	read int64
}

// feed is what is known of the bodies of an attempt; net/http may begin anew with a
// second one.
type feed struct {
	reading atomic.Bool // now
	spoiled atomic.Bool // it broke, or is not as long as was said
}

// starved says whether an attempt lacks what it should send.
func (f *feed) starved() bool { return f.spoiled.Load() || f.reading.Load() }

// Read reads, and notes what an attempt that ends meanwhile is to know.
func (u *upload) Read(p []byte) (int, error) {
	u.of.reading.Store(true)
	defer u.of.reading.Store(false)
	n, err := u.ReadCloser.Read(p)
	u.read += int64(n)
	switch {
	case err != nil && err != io.EOF, u.want > 0 && u.read > u.want, u.want > 0 && err == io.EOF && u.read < u.want:
		u.of.spoiled.Store(true)
	}
	return n, err
}

// hasBody says whether a request has one.
func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// mayWait says whether reading a request's body may take long, or fail. What
// http.NewRequest makes of bytes in memory does neither.
func mayWait(req *http.Request) bool {
	return hasBody(req) && (req.GetBody == nil || reflect.TypeOf(req.Body) != reflect.TypeOf(io.NopCloser((*bytes.Reader)(nil))))
}

// watch lets an attempt know how its body is read.
func (a *attempt) watch() {
	want := a.req.ContentLength
	a.req.Body = &upload{ReadCloser: a.req.Body, of: &a.feed, want: want}
	if anew := a.req.GetBody; anew != nil {
		a.req.GetBody = func() (io.ReadCloser, error) {
			body, err := anew()
			if err != nil {
				a.feed.spoiled.Store(true)
				return nil, err
			}
			return &upload{ReadCloser: body, of: &a.feed, want: want}, nil
		}
	}
	a.req.Header = a.req.Header.Clone() // it may be written still when the call has ended
}

// inTime sends an attempt whose body may block. net/http waits for a Read that is under
// way, also when the deadline has passed; the goroutine does that here, and the server's
// ReadTimeout, or whoever feeds the body, ends it.
func (a *attempt) inTime(ctx context.Context, by http.RoundTripper) (*http.Response, error) {
	type end struct {
		resp *http.Response
		err  error
	}
	ended, left := make(chan end), make(chan struct{})
	go func() {
		resp, err := by.RoundTrip(&a.req)
		select {
		case ended <- end{resp, err}:
		case <-left:
			if err == nil {
				_ = resp.Body.Close() // it came too late
			}
			a.letGo()
		}
	}()
	select {
	case e := <-ended:
		return e.resp, e.err
	case <-ctx.Done():
		close(left)
		return nil, ctx.Err()
	}
}
