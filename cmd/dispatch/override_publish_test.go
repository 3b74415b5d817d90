package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

// SEC32, for all: an override in Redis reaches every replica that nobody visits,
// is shown, ends on every one of them, and is believed only as far as the
// publisher signed it. What is forged, over, for others or names a domain that
// nobody signed changes nothing, is counted, and said once.
func TestSEC32OverrideForAllIsSigned(t *testing.T) {
	redis, data := testenv.StartRedis(t), t.TempDir()
	control := start(t, "--demo", "--data", data, "--redis", redis.URL())
	_, flags := edgeFiles(t, data)
	edge := start(t, append(flags, "--redis", redis.URL())...)
	edge.log.await(t, `"msg":"release in use","release":1,.*"from":"redis"`, nil)
	domainOf := func() string { return edge.route("app=mobile", "X-Device-Id", "d-1001").Domain }
	before := domainOf()

	own, other := filepath.Join(data, "keys"), filepath.Join(t.TempDir(), "keys")
	if exit, _, stderr := command(t, "keys", "new", other); exit != 0 {
		t.Fatal(stderr)
	}
	sign := func(keys, deployment, swap string) string {
		exit, stdout, stderr := command(t, "override", "sign", "--publisher-key-file", filepath.Join(keys, "publisher.jwks"), "--deployment", deployment,
			"--reason", "sh-main burns", "--swap", swap)
		if exit != 0 {
			t.Fatal(stderr)
		}
		return strings.TrimSpace(stdout)
	}
	publish := func(jws string) {
		file := filepath.Join(t.TempDir(), "signed")
		if err := os.WriteFile(file, []byte(jws), 0o600); err != nil {
			t.Fatal(err)
		}
		if exit, stdout, stderr := command(t, "override", "publish", file, "--redis", redis.URL()); exit != 0 || !strings.Contains(stdout, "GET /api/v1/fleet") {
			t.Fatalf("publish: %d %s %s", exit, stdout, stderr)
		}
	}
	put := func(text string) { // as somebody who has only the password of Redis
		for _, args := range [][]any{{"SET", "dispatch:{dispatch}:override", text}, {"PUBLISH", "dispatch:{dispatch}:nudge:edge", ""}} {
			if _, err := redis.Do(context.Background(), args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	const swap = "mobile/sh/sh-main/sh-spare"
	ours := sign(own, "dispatch", swap)
	for count, tc := range []struct{ name, jws, code string }{
		{"signed by a stranger", sign(other, "dispatch", swap), "unknown_key"},
		{"cut", ours[:len(ours)-8], "bad_signature"},
		{"not signed", `{"actions":[{"region_state":{"app":"mobile","region":"sh","state":"off"}}],"reason":"test"}`, "bad_signature"},
		{"for another deployment", sign(own, "elsewhere", swap), "other_deployment"},
		{"a domain that nobody signed", sign(own, "dispatch", "mobile/sh/sh-main/evil.example"), "override_unfit"},
	} {
		put("1 " + tc.jws)
		edge.log.await(t, `"msg":"an override in redis changes nothing","code":"`+tc.code+`"`, nil)
		// Two of them have one code: that of this one is counted when its turn has come.
		edge.awaitText("^"+string(rune('1'+count))+"$", func() string { return edge.metric(`dispatch_override_refused_total`) })
		if now := domainOf(); now != before {
			t.Errorf("%s: the domain is %s", tc.name, now)
		}
	}
	if n := strings.Count(edge.log.String(), "an override in redis changes nothing"); n != 5 {
		t.Errorf("said %d times, want once each", n)
	}

	publish(ours)
	edge.log.await(t, `"msg":"an override is in force".*"reason":"sh-main burns"`, nil)
	control.log.await(t, `"msg":"an override is in force".*"reason":"sh-main burns"`, nil)
	if now := domainOf(); now != "wapabst2.a.com.cn" {
		t.Errorf("under the override the domain is %s", now)
	}
	exit, _, stderr := command(t, "override", "publish", "--clear", "--redis", redis.URL(), "--publisher-key-file", filepath.Join(own, "publisher.jwks"))
	if exit != 0 {
		t.Fatal(stderr)
	}
	edge.log.await(t, `"msg":"an override is over"`, nil)
	control.log.await(t, `"msg":"an override is over"`, nil)
	put("1 " + ours) // which is still signed
	edge.awaitLooks(2)
	if now := domainOf(); now != before || strings.Count(edge.log.String(), "an override is in force") != 1 {
		t.Errorf("what was ended came back: the domain is %s", now)
	}
}

// A release that clears overrides clears what Redis still holds, also for a
// replica that starts afterwards.
func TestAReleaseClearsTheOverrideInRedis(t *testing.T) {
	redis, data := testenv.StartRedis(t), t.TempDir()
	control := start(t, "--demo", "--data", data, "--redis", redis.URL(), "--replica-id", "control-1")
	// The override is put over the release that Redis has; over none, no release could
	// be told to clear it.
	_, first := edgeFiles(t, data)
	start(t, append(first, "--redis", redis.URL())...).log.await(t, `"msg":"release in use","release":1,.*"from":"redis"`, nil)
	exit, jws, stderr := command(t, "override", "sign", "--publisher-key-file", filepath.Join(data, "keys/publisher.jwks"), "--reason", "sh-main burns", "--swap", "mobile/sh/sh-main/sh-spare")
	if exit != 0 {
		t.Fatal(stderr)
	}
	file := filepath.Join(t.TempDir(), "signed")
	if err := os.WriteFile(file, []byte(jws), 0o600); err != nil {
		t.Fatal(err)
	}
	if exit, _, stderr := command(t, "override", "publish", file, "--redis", redis.URL()); exit != 0 {
		t.Fatal(stderr)
	}
	control.log.await(t, `"msg":"an override is in force"`, nil)
	if status, body := control.post("/overrides/reconcile", `{"replica":"control-1","reason":"sh-main burns"}`); status != http.StatusOK {
		t.Fatalf("reconcile: %d %s", status, body)
	}
	control.log.await(t, `"msg":"an override is over"`, nil)
	_, flags := edgeFiles(t, data)
	edge := start(t, append(flags, "--redis", redis.URL())...)
	edge.log.await(t, `"msg":"release in use","release":2,`, nil)
	edge.awaitLooks(2)
	if log := edge.log.String(); strings.Contains(log, "an override is in force") || edge.metric("dispatch_override_active") != "0" {
		t.Errorf("a replica that came later took it:\n%s", log)
	}
}

func TestPublishNeedsAFileOrAnEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "override.json")
	if err := os.WriteFile(file, []byte(`{"actions":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "name a file, or --clear"},
		{[]string{file, "--clear"}, "name a file, or --clear"},
		{[]string{"--clear"}, "--publisher-key-file"},
		{[]string{file}, "no signed override"},
	} {
		args := append([]string{"override", "publish", "--redis", "redis://127.0.0.1:1"}, tc.args...)
		if exit, _, stderr := command(t, args...); exit != 1 || !strings.Contains(stderr, tc.want) {
			t.Errorf("%v: %d %s", tc.args, exit, stderr)
		}
	}
}

// awaitLooks waits until a replica has looked into Redis so many times more.
func (r *running) awaitLooks(more int) {
	r.t.Helper()
	looks := func() (n int) {
		for _, c := range r.metric("dispatch_redis_looks_total") {
			n = 10*n + int(c-'0')
		}
		return n
	}
	target, limit, tick := looks()+more, time.After(30*time.Second), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for looks() < target {
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatalf("it looked %d times", looks())
		}
	}
}
