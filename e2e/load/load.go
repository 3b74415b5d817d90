// Package load asks /route at a fixed rate, whatever the server makes of it: an
// open loop, so that a slow server is not spared. What comes late is sent at
// once, and every latency counts from when its request was due.
//
//	Load ── Run ──► Result   answers by status, failures, latencies
//
// Each connection has one goroutine and keeps its connection, unless the load is
// Fresh; Run ends them all.
// A request that fails, by an answer that cannot be read or by none within
// Timeout, is counted with its first reasons and its connection is made anew;
// nothing ends the run but its time and its context.
package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Load is one run.
type Load struct {
	Addrs []string      // connections are spread over them
	Rate  int           // requests a second, over all addresses
	For   time.Duration // how long requests leave
	Conns int           // default 32
	// Timeout of one request; default 2 s, which is what an app waits.
	Timeout time.Duration
	// Fresh gives every request a connection of its own, as an app's first one has.
	Fresh bool
	// See is called with every answer's body, from the connection's goroutine.
	See func(addr string, body []byte)
	// Closed makes a closed loop: each connection asks again as soon as it has its
	// answer, which measures capacity. Rate is not used.
	Closed bool
}

// Result is what came back.
type Result struct {
	Sent     int
	Served   int // answers of 200
	Shed     int // answers of 503 with Retry-After
	Failed   int // everything else, also no answer
	Failures []string
	Took     []time.Duration // of what was served, from when it was due; sorted
	Lasted   time.Duration
}

// Quantile is the latency that the part q of what was served did not pass.
func (r Result) Quantile(q float64) time.Duration {
	if len(r.Took) == 0 {
		return 0
	}
	return r.Took[min(len(r.Took)-1, int(q*float64(len(r.Took))))]
}

// PerSecond is the rate of answers of 200.
func (r Result) PerSecond() float64 { return float64(r.Served) / r.Lasted.Seconds() }

// String is one line.
func (r Result) String() string {
	return fmt.Sprintf("%d sent, %d served (%.0f/s), %d shed, %d failed, p50 %s, p99 %s", r.Sent, r.Served, r.PerSecond(), r.Shed, r.Failed,
		r.Quantile(0.5).Round(10*time.Microsecond), r.Quantile(0.99).Round(10*time.Microsecond))
}

// keptFailures are shown in a result.
const keptFailures = 5

// Run sends the load and waits for the last answer.
func (l Load) Run(ctx context.Context) Result {
	if l.Conns == 0 {
		l.Conns = 32
	}
	if l.Timeout == 0 {
		l.Timeout = 2 * time.Second
	}
	var (
		next  atomic.Int64
		start = time.Now()
		parts = make([]Result, l.Conns)
		group sync.WaitGroup
	)
	for i := range parts {
		w := worker{load: l, addr: l.Addrs[i%len(l.Addrs)], start: start, next: &next, result: &parts[i]}
		group.Go(func() { w.run(ctx) })
	}
	group.Wait()
	all := Result{Lasted: time.Since(start)}
	for _, p := range parts {
		all.Sent, all.Served, all.Shed, all.Failed = all.Sent+p.Sent, all.Served+p.Served, all.Shed+p.Shed, all.Failed+p.Failed
		all.Took = append(all.Took, p.Took...)
		all.Failures = append(all.Failures, p.Failures...)
	}
	all.Failures = all.Failures[:min(len(all.Failures), keptFailures)]
	slices.Sort(all.Took)
	return all
}

// worker is one connection. Requests go to whichever is free, so one that waits
// for a slow answer holds up no other.
type worker struct {
	load    Load
	addr    string
	start   time.Time
	next    *atomic.Int64
	result  *Result
	conn    net.Conn
	answers *bufio.Reader
	request []byte
}

func (w *worker) run(ctx context.Context) {
	defer w.drop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	total := int64(float64(w.load.Rate) * w.load.For.Seconds())
	for {
		n := w.next.Add(1) - 1
		due := time.Now()
		if !w.load.Closed {
			due = w.start.Add(time.Duration(float64(n) / float64(w.load.Rate) * float64(time.Second)))
		}
		if w.load.Closed && time.Since(w.start) > w.load.For || !w.load.Closed && n >= total {
			return
		}
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		w.result.Sent++
		w.count(w.exchange(ctx, n), due)
	}
}

// count files the outcome: nil is an answer of 200.
func (w *worker) count(err error, due time.Time) {
	switch {
	case err == nil:
		w.result.Served++
		w.result.Took = append(w.result.Took, time.Since(due))
	case err == errShed:
		w.result.Shed++
	default:
		w.result.Failed++
		if len(w.result.Failures) < keptFailures {
			w.result.Failures = append(w.result.Failures, fmt.Sprintf("%s after %s: %v", w.addr, time.Since(w.start).Round(time.Millisecond), err))
		}
		w.drop()
	}
}

var errShed = errors.New("shed")

// exchange sends one request as an app would and reads its answer to the end.
func (w *worker) exchange(ctx context.Context, n int64) error {
	deadline := time.Now().Add(w.load.Timeout)
	if w.conn == nil {
		conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "tcp", w.addr)
		if err != nil {
			return err
		}
		w.conn, w.answers = conn, bufio.NewReader(conn)
	}
	if err := w.conn.SetDeadline(deadline); err != nil {
		return err
	}
	w.request = append(w.request[:0], "GET /route?app=mobile HTTP/1.1\r\nHost: mobile.bank.example\r\nX-Platform: ios\r\n"+
		"X-App-Version: 10.1.4\r\nUser-Agent: MobileBank/10.1.4\r\nX-Device-Id: d-"...)
	w.request = append(strconv.AppendInt(w.request, n, 10), "\r\n"...)
	if w.load.Fresh {
		w.request = append(w.request, "Connection: close\r\n"...)
	}
	w.request = append(w.request, "\r\n"...)
	if _, err := w.conn.Write(w.request); err != nil {
		return err
	}
	a, err := readAnswer(w.answers)
	if err != nil {
		return err
	}
	if a.closes {
		w.drop()
	}
	switch {
	case a.status == http.StatusServiceUnavailable && a.retryAfter:
		return errShed
	case a.status != http.StatusOK:
		return fmt.Errorf("status %d: %.200s", a.status, a.body)
	}
	if w.load.See != nil {
		w.load.See(w.addr, a.body)
	}
	return nil
}

// answer is as much of an HTTP answer as is counted here.
type answer struct {
	status             int
	retryAfter, closes bool
	body               []byte
}

// readAnswer reads one answer of known length. net/http would do; this costs a
// tenth of it, and the generator must outrun the server.
func readAnswer(r *bufio.Reader) (a answer, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return a, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return a, fmt.Errorf("no answer: %.50q", line)
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, err
	}
	length := -1
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return a, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return a, err
			}
		case bytes.EqualFold(name, []byte("Retry-After")):
			a.retryAfter = len(value) > 0
		case bytes.EqualFold(name, []byte("Connection")):
			a.closes = bytes.EqualFold(value, []byte("close"))
		}
	}
	if length < 0 {
		return a, errors.New("an answer without a length")
	}
	a.body = make([]byte, length)
	_, err = io.ReadFull(r, a.body)
	return a, err
}

func (w *worker) drop() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}
