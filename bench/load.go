package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// load is one window: requests at a fixed rate over conns connections, whatever
// the server makes of it, so that a slow one is not spared (an open loop; what
// comes late is sent at once).
type load struct {
	addr      string
	conns     int
	requests  int
	rate      int             // requests a second
	keepAlive bool            // false: a connection per request
	took      []time.Duration // if set: of request n, from when it was due to the end of its answer
}

// run sends the window and fails on the first answer that is not a 200. Each
// request carries another device id, as a bank's mornings do.
func (l load) run(ctx context.Context) error {
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for n := range l.conns {
		g.Go(func() error { return l.worker(ctx, start, n) })
	}
	return g.Wait()
}

// due is when request n leaves.
func (l load) due(start time.Time, n int) time.Time {
	return start.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
}

func (l load) worker(ctx context.Context, start time.Time, first int) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var conn net.Conn
	var answers *bufio.Reader
	closeConn := func() {
		if conn != nil {
			_ = conn.Close()
			conn = nil
		}
	}
	defer closeConn()
	for n := first; n < l.requests; n += l.conns {
		timer.Reset(time.Until(l.due(start, n)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if conn == nil {
			var err error
			if conn, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", l.addr); err != nil {
				return fmt.Errorf("connect %s: %w", l.addr, err)
			}
			answers = bufio.NewReader(conn)
		}
		if err := exchange(conn, answers, n, l.keepAlive); err != nil {
			return fmt.Errorf("request %d to %s: %w", n, l.addr, err)
		}
		if l.took != nil {
			l.took[n] = time.Since(l.due(start, n))
		}
		if !l.keepAlive {
			closeConn()
		}
	}
	return nil
}

// exchange sends one request as an app would and reads its answer to the end.
func exchange(conn net.Conn, answers *bufio.Reader, n int, keepAlive bool) error {
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	connection := "keep-alive"
	if !keepAlive {
		connection = "close"
	}
	_, err := fmt.Fprintf(conn, "GET /route?app=mobile&platform=ios&app_version=10.1.4 HTTP/1.1\r\nHost: mobile.bank.example\r\n"+
		"X-Device-Id: d-%012d\r\nUser-Agent: MobileBank/10.1.4 (iOS 19.1)\r\nAccept: application/json\r\nConnection: %s\r\n\r\n", n, connection)
	if err != nil {
		return err
	}
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
