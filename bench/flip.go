package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	flipReaders = 8
	flips       = 10
)

// flip swaps an endpoint under load and measures, from the moment the request is
// sent, when the first answer had the new domain and when the last had the old.
func flip(ctx context.Context, dir, binary string) ([]row, error) {
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	c, err := launch(ctx, "dispatch", addrs[0], "http://"+addrs[2]+"/readyz", binary, "serve", "--demo", "--demo-traffic", "off", "--data", filepath.Join(dir, "flip"),
		"--listen", addrs[0], "--admin-listen", addrs[1], "--ops-listen", addrs[2], "--fleet-listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer c.stop()
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	emergency := post{"http://" + addrs[1] + "/api/v1/emergency", token, "application/json"}
	var firsts, lasts, answered []float64
	serving, standing := "sh-main", "sh-spare"
	domains := map[string]string{"sh-main": "wapabst.a.com.cn", "sh-spare": "wapabst2.a.com.cn"}
	for range flips {
		watch := &flipWatch{newDomain: []byte(`"domain":"` + domains[standing] + `"`)}
		loadCtx, endLoad := context.WithCancel(ctx)
		var g errgroup.Group
		for range flipReaders {
			g.Go(func() error { return watch.read(loadCtx, c.addr) })
		}
		start := time.Now()
		err := emergencySwap(ctx, emergency, serving, standing)
		answered = append(answered, ms(time.Since(start)))
		if err == nil {
			err = watch.settle(ctx)
		}
		endLoad()
		if waited := g.Wait(); err == nil {
			err = waited
		}
		if err != nil {
			return nil, err
		}
		firsts, lasts = append(firsts, ms(watch.first.Sub(start))), append(lasts, ms(watch.last.Sub(start)))
		serving, standing = standing, serving
	}
	return []row{
		{Name: "swap under load: answer to the operator", Value: median(answered), Unit: "ms", Raw: answered},
		row{Name: "swap under load: first new answer", Value: median(firsts), Unit: "ms", Raw: firsts}.atMost(50),
		row{Name: "swap under load: last old answer", Value: median(lasts), Unit: "ms", Raw: lasts}.atMost(1000),
	}, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// flipWatch notes when answers change.
type flipWatch struct {
	newDomain []byte

	mu    sync.Mutex // guards what follows
	first time.Time  // of the new domain
	last  time.Time  // of the old one
	fresh int        // new answers since the last old one
}

// settledAfter new answers in a row the old domain counts as gone.
const settledAfter = 2000

func (w *flipWatch) note(body []byte) {
	isNew, now := bytes.Contains(body, w.newDomain), time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !isNew:
		w.last, w.fresh = now, 0
	case w.first.IsZero():
		w.first = now
		fallthrough
	default:
		w.fresh++
	}
}

func (w *flipWatch) settle(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for {
		w.mu.Lock()
		done := w.fresh >= settledAfter
		w.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-tick.C:
		case <-limit:
			return fmt.Errorf("the new domain did not settle within 10 s")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read asks for a staff device, which stands in Shanghai, until ctx ends.
func (w *flipWatch) read(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for ctx.Err() == nil {
		if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, "GET /route?app=mobile HTTP/1.1\r\nHost: h\r\nX-Device-Id: d-1001\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // read to its end
		if err != nil {
			return err
		}
		w.note(body)
	}
	return nil
}

func emergencySwap(ctx context.Context, to post, from, standby string) error {
	body, err := json.Marshal(map[string]any{"action": "swap", "reason": "benchmark", "confirm": "sh", "override": []string{"flap_wait", "rate"}, "targets": []map[string]string{
		{"app": "mobile", "region": "sh", "expect": from, "from": from, "to": standby}}})
	if err != nil {
		return err
	}
	return to.send(ctx, bytes.NewReader(body))
}

// post is where an authorised change to the admin API goes.
type post struct{ url, token, contentType string }

func (p post) send(ctx context.Context, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", p.contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("post %s: status %d: %s", p.url, resp.StatusCode, answer)
	}
	return nil
}

func freeAddrs(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		var err error
		if addrs[i], err = freeAddr(); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}
