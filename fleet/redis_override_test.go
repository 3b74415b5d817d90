package fleet

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/release"
)

// finds is what a source's Override was told last.
type finds struct {
	mu   sync.Mutex
	over uint64
	text string
}

func (f *finds) tell(_ context.Context, over uint64, jws []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over, f.text = over, string(jws)
}

func (f *finds) last() (uint64, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over, f.text
}

// finding is a replica's source in Redis that tells f.
func finding(t *testing.T, url string, f *finds) *Redis {
	t.Helper()
	r := must(NewRedis(RedisOptions{URL: url, Deployment: "bank", Replica: "r1", Override: f.tell}))
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// An override for all reaches a replica that only Redis feeds, at once, with the
// release that it was published over, and is gone from Redis when it is over.
func TestRedisBringsOverrides(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	control, found, r := newRedisAt(t, server.URL()), new(finds), b.replica(t, "r1", nil)
	offerAll(t, control, b, b.now())
	r.Use([]Source{finding(t, server.URL(), found)})
	run(t, r.Run)
	r.serves(t, 1)
	began := time.Now()
	if err := control.PublishOverride(t.Context(), []byte("a.b.c\n"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() bool { over, text := found.last(); return over == 1 && text == "a.b.c" })
	if took := time.Since(began); took > 2*time.Second { // a poll takes 3.5 s at least
		t.Errorf("it took %v: nobody was nudged", took)
	}
	if ttl := must(strconv.Atoi(redisDo(t, server, "TTL", control.keys.override))); ttl < 3590 || ttl > 3600 {
		t.Errorf("it stays for %d s, want an hour", ttl)
	}
}

// Whatever lies there costs a bounded read, is handed on as it is, and keeps no
// release away.
func TestRedisGarbageForAnOverride(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	found := new(finds)
	r := finding(t, server.URL(), found)
	s := b.now()
	offerAll(t, r, b, s)
	long := strings.Repeat("x", 1<<20)
	for _, tc := range []struct {
		put  []any
		over uint64
		text string
	}{
		{[]any{"DEL", r.keys.override}, 0, ""},
		{[]any{"SET", r.keys.override, "a.b.c"}, 0, "a.b.c"},
		{[]any{"SET", r.keys.override, "-1 a.b.c"}, 0, "-1 a.b.c"},
		{[]any{"SET", r.keys.override, "7 a.b.c"}, 7, "a.b.c"},
		{[]any{"SET", r.keys.override, long}, 0, long[:maxOverride+1]},
		{[]any{"HSET", r.keys.override, "a", "b"}, 0, ""},
	} {
		redisDo(t, server, "DEL", r.keys.override)
		redisDo(t, server, tc.put...)
		found.tell(t.Context(), 0, nil)
		if got := must(r.look(t.Context(), &Report{})); got == nil || got.Number != s.Number {
			t.Errorf("%.60v: the release did not come", tc.put)
		}
		if over, text := found.last(); over != tc.over || text != tc.text {
			t.Errorf("%.60v: found %d %.40q, want %d %.40q", tc.put, over, text, tc.over, tc.text)
		}
	}
}

// SEC32: on a replica that takes what Redis brings, only what the publisher signed
// for this deployment has an effect.
func TestSEC32RedisCannotOverride(t *testing.T) {
	t.Parallel()
	server, b, stranger := testenv.StartRedis(t), newBank(t, 10), newBank(t, 10)
	control, r := newRedisAt(t, server.URL()), b.replica(t, "r1", nil)
	var mu sync.Mutex
	refused, taken := map[string]bool{}, 0
	source := must(NewRedis(RedisOptions{URL: server.URL(), Deployment: "bank", Replica: "r1", Override: func(ctx context.Context, over uint64, jws []byte) {
		o, err := release.OpenOverride(jws, b.keys.Trust())
		ok := false
		if err == nil {
			ok, err = r.keeper.OverrideAll(ctx, o, over)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			refused[string(jws)] = true
		}
		if ok {
			taken++
		}
	}}))
	t.Cleanup(func() { _ = source.Close() })
	offerAll(t, control, b, b.now())
	r.Use([]Source{source})
	run(t, r.Run)
	r.serves(t, 1)
	sign := func(by *bank, deployment, region string) string {
		now := time.Now().UTC()
		o := &release.Override{ID: "o-1", Deployment: deployment, Reason: "test", Created: now, Until: now.Add(time.Hour),
			Actions: []release.OverrideAction{{Region: &release.SetRegion{App: "mobile", Region: region, State: "draining"}}}}
		return string(must(release.SignOverride(o, by.keys.Publisher)))
	}
	seen := func(jws string) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return refused[jws] }
	}
	ours := sign(b, "bank", "sh")
	for name, jws := range map[string]string{
		"a stranger's": sign(stranger, "bank", "sh"), "another deployment's": sign(b, "elsewhere", "sh"),
		"another region": sign(b, "bank", "evil"), "cut": ours[:len(ours)-9], "plain": `{"actions":[{"region_state":{"app":"mobile","region":"sh","state":"off"}}]}`,
	} {
		redisDo(t, server, "SET", control.keys.override, "1 "+jws)
		redisDo(t, server, "PUBLISH", control.keys.nudges, "")
		eventually(t, 10*time.Second, seen(jws))
		if o := r.keeper.Status().Override; o != nil {
			t.Fatalf("%s is in force: %+v", name, o)
		}
	}
	if err := control.PublishOverride(t.Context(), []byte(ours), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() bool { mu.Lock(); defer mu.Unlock(); return taken == 1 })
	if o := r.keeper.Status().Override; o == nil || o.By != b.keys.Publisher.Current().ID() {
		t.Errorf("in force is %+v", o)
	}
}
