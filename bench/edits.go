package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	editedIDs    = 1_500_000
	editsFor     = 60 * time.Second
	editBatch    = 100 // ids a patch: with one every 100 ms, 1,000 edits a second
	editEvery    = 100 * time.Millisecond
	latencyRate  = 1_000 // requests a second that are timed meanwhile
	idleBaseline = 20 * time.Second
)

// edits changes a list of 1,500,000 ids a thousand times a second for a minute,
// and compares the p99 of /route meanwhile with that of a quiet process.
func edits(ctx context.Context, dir, binary string) ([]row, error) {
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	c, err := launch(ctx, "dispatch", addrs[0], "http://"+addrs[2]+"/readyz", binary, "serve", "--demo", "--demo-traffic", "off", "--data", filepath.Join(dir, "edits"),
		"--listen", addrs[0], "--admin-listen", addrs[1], "--ops-listen", addrs[2], "--fleet-listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer c.stop()
	if err := importIDs(ctx, addrs[1], c, editedIDs); err != nil {
		return nil, err
	}
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	quiet, err := latencies(ctx, c.addr, idleBaseline)
	if err != nil {
		return nil, err
	}
	var busy []float64
	var patched int
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		busy, err = latencies(gctx, c.addr, editsFor)
		return err
	})
	g.Go(func() (err error) {
		patched, err = patchAway(gctx, "http://"+addrs[1]+"/api/v1/lists/staff-devices", token)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	before, during := quantile(quiet, 0.99), quantile(busy, 0.99)
	return []row{
		{Name: "edits a second of a list of 1,500,000, for a minute", Value: float64(patched) / editsFor.Seconds(), Unit: "ids/s", Raw: []float64{float64(patched)}},
		{Name: "p99 of /route before the edits", Value: before, Unit: "ms", Raw: []float64{before}},
		{Name: "p99 of /route during the edits", Value: during, Unit: "ms", Raw: []float64{during}},
		row{Name: "p99 during / before", Value: during / before, Unit: "×", Raw: []float64{during / before}}.atMost(2),
	}, nil
}

// latencies asks at a fixed rate for d and gives each answer's time in ms, from
// when it was due.
func latencies(ctx context.Context, addr string, d time.Duration) ([]float64, error) {
	l := load{addr: addr, conns: openConns, rate: latencyRate, requests: int(d.Seconds() * latencyRate), keepAlive: true}
	l.took = make([]time.Duration, l.requests)
	if err := l.run(ctx); err != nil {
		return nil, err
	}
	all := make([]float64, len(l.took))
	for i, took := range l.took {
		all[i] = ms(took)
	}
	return all, nil
}

func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1))]
}

// patchAway sends a patch every editEvery for a minute: half add, half remove.
func patchAway(ctx context.Context, url, token string) (ids int, err error) {
	tick := time.NewTicker(editEvery)
	defer tick.Stop()
	end := time.After(editsFor)
	for n := 0; ; n++ {
		select {
		case <-end:
			return ids, nil
		case <-ctx.Done():
			return ids, ctx.Err()
		case <-tick.C:
		}
		var names []string
		for i := range editBatch {
			names = append(names, fmt.Sprintf("edit-%d-%d", n/2, i))
		}
		change := map[string]any{"reason": "benchmark", "add": names}
		if n%2 == 1 {
			change = map[string]any{"reason": "benchmark", "remove": names}
		}
		body, err := json.Marshal(change)
		if err != nil {
			return ids, err
		}
		if err := patch(ctx, url, token, body); err != nil {
			return ids, err
		}
		ids += editBatch
	}
}

func patch(ctx context.Context, url, token string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("patch: " + resp.Status)
	}
	return nil
}
