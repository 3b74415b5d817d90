package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// moving is a clock that a test sets, as an operator or a broken time server would.
type moving struct{ ahead atomic.Int64 }

func (m *moving) now() time.Time      { return time.Now().Add(time.Duration(m.ahead.Load())) }
func (m *moving) set(d time.Duration) { m.ahead.Store(int64(d)) }

// scheduled sends everybody to hf in the hour after tomorrow's same time, and to sh else.
func scheduled(at time.Time) string {
	return fmt.Sprintf(`apps:
  - key: mobile
    default: true
    fallback: wap.bank.example
    session_ttl: 30m
    regions:
      - {key: sh, failover: [hf], endpoints: [{key: sh-main, domain: sh.bank.example}, {key: sh-spare, domain: sh2.bank.example, state: standby}]}
      - {key: hf, failover: [sh], endpoints: [{key: hf-main, domain: hf.bank.example}]}
    policies:
      - {key: night, when: {between: [%q, %q]}, then: {region: hf}}
    otherwise: {region: sh}
`, at.Add(23*time.Hour+30*time.Minute).UTC().Format(time.RFC3339), at.Add(24*time.Hour+30*time.Minute).UTC().Format(time.RFC3339))
}

// While requests come, the clock of a node goes an hour and a day forwards and
// back. No request fails, no lifetime is odd, a rule with a time holds exactly
// while the clock is in its hour, and changes go on.
func TestP16TheClockJumps(t *testing.T) {
	clock := new(moving)
	document := filepath.Join(t.TempDir(), "bank.yaml")
	if err := os.WriteFile(document, []byte(scheduled(time.Now())), 0o600); err != nil {
		t.Fatal(err)
	}
	cli := new(commands)
	cli.Serve.now = clock.now
	r := launch(t, &running{t: t, log: new(printed), cli: cli}, []string{"--data", t.TempDir(), "--four-eyes", "off", "--allowed-suffixes", "bank.example", "--bootstrap", document})

	load, end := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	var asked atomic.Int64
	for worker := range 4 {
		asking.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			session := "" // of an answer that may be from another time
			for load.Err() == nil {
				a, err := askUnderJumps(client, r.public, fmt.Sprint("d-", worker), session)
				if err != nil && load.Err() == nil {
					t.Error(err)
					return
				}
				session = a.Session
				asked.Add(1)
			}
		})
	}
	from, to := "sh-main", "sh-spare"
	for _, ahead := range []time.Duration{time.Hour, 0, -time.Hour, 24 * time.Hour, 0, -24 * time.Hour, 24*time.Hour - time.Minute, 0, -time.Hour} {
		clock.set(ahead)
		region := "sh"
		if ahead > 23*time.Hour+30*time.Minute && ahead < 24*time.Hour+30*time.Minute {
			region = "hf" // which proves that the clock has moved
		}
		before := asked.Load()
		if a := r.route("app=mobile", "X-Device-Id", "d-1"); a.Region != region {
			t.Errorf("%s ahead the region is %s, want %s", ahead, a.Region, region)
		}
		status, body := r.post("/emergency", fmt.Sprintf(`{"action":"swap","reason":"drill","confirm":"sh","override":["flap_wait","rate"],"targets":[{"app":"mobile","region":"sh","expect":%q,"from":%q,"to":%q}]}`, from, from, to))
		if status != http.StatusOK {
			t.Errorf("%s ahead a swap answers %d %s", ahead, status, body)
		}
		from, to = to, from
		for limit := time.Now().Add(10 * time.Second); asked.Load() < before+50 && time.Now().Before(limit) && !t.Failed(); {
			r.route("app=mobile", "X-Device-Id", "d-1")
		}
	}
	r.log.await(t, `"msg":"the clock was set"`, nil)
	end()
	asking.Wait()
	if asked.Load() < 400 {
		t.Errorf("only %d requests came while the clock jumped", asked.Load())
	}
	for metric, want := range map[string]string{`dispatch_panics_total`: "0", `dispatch_requests_total\{code="500"\}`: ""} {
		if got := r.metric(metric); got != want {
			t.Errorf("%s is %q, want %q", metric, got, want)
		}
	}
}

// askUnderJumps asks with the session of the last answer, which the clock may have
// left an hour or a day away, on either side.
func askUnderJumps(client *http.Client, base, device, session string) (a answer, err error) {
	req, err := http.NewRequest(http.MethodGet, base+"/route?app=mobile", nil)
	if err != nil {
		return a, err
	}
	req.Header.Set("X-Device-Id", device)
	req.Header.Set("X-Session-Token", session)
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(body, &a); err != nil || resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("GET /route: %d %s", resp.StatusCode, body)
	}
	if a.TTL <= 0 || a.TTL > 1440 { // 80 % of 30 minutes
		return a, fmt.Errorf("a lifetime of %d s: %s", a.TTL, body)
	}
	return a, nil
}
