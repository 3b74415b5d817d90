package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/release"
)

// newRedisAt is a Redis of the bank that ends with the test.
func newRedisAt(tb testing.TB, url string) *Redis {
	tb.Helper()
	r := must(NewRedis(RedisOptions{URL: url, Deployment: "bank", Replica: "r1"}))
	tb.Cleanup(func() {
		if err := r.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			tb.Error(err)
		}
	})
	return r
}

// offerAll offers a release of the bank to all.
func offerAll(tb testing.TB, r *Redis, b *bank, s release.Signed) {
	tb.Helper()
	if err := r.Offer(tb.Context(), Offer{All: s}, b.blobs); err != nil {
		tb.Fatal(err)
	}
}

// calls is how often a server was asked to do something.
func calls(tb testing.TB, server *testenv.Redis, command string) (n int) {
	tb.Helper()
	for line := range strings.Lines(redisDo(tb, server, "INFO", "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			must(fmt.Sscan(strings.Split(rest, ",")[0], &n))
		}
	}
	return n
}

func redisDo(tb testing.TB, server *testenv.Redis, args ...any) string {
	tb.Helper()
	return fmt.Sprint(must(server.Do(tb.Context(), args...)))
}

// A replica that only Redis feeds gets a release at once, and the next by a nudge.
func TestRedisBringsReleases(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10_000)
	control, r := newRedisAt(t, server.URL()), b.replica(t, "r1", nil)
	offerAll(t, control, b, b.now())
	r.Use([]Source{newRedisAt(t, server.URL())})
	run(t, r.Run)
	r.serves(t, 1)
	var slowest time.Duration
	for n := uint64(2); n < 12; n++ {
		s := b.next(nil)
		began := time.Now()
		offerAll(t, control, b, s)
		r.serves(t, n)
		slowest = max(slowest, time.Since(began))
	}
	if slowest > 2*time.Second { // a poll takes 3.5 s at least
		t.Errorf("a release took %v: nobody was nudged", slowest)
	}
	if s := r.keeper.Status(); s.Source != "redis" || len(s.Refused) != 0 {
		t.Errorf("status = %+v", s)
	}
}

// Only what changed goes to Redis and comes from it; an unchanged offer costs one question.
func TestRedisOnlyWhatChangedTravels(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 40_000)
	control, r := newRedisAt(t, server.URL()), b.replica(t, "r1", nil)
	r.Use([]Source{newRedisAt(t, server.URL())})
	run(t, r.Run)
	travelled := func() [2]int { return [2]int{calls(t, server, "set"), calls(t, server, "getrange")} }

	offerAll(t, control, b, b.now())
	r.serves(t, 1)
	first := travelled()
	if want := [2]int{len(b.blobs), len(b.blobs)}; first != want || len(b.blobs) < 10 {
		t.Fatalf("first release: sent and fetched %v blobs, want %v", first, want)
	}
	before := len(b.blobs)
	s := b.next(func(c *release.Change) {
		c.Lists = map[string]release.Digest{"staff-devices": b.list(40_001)}
	})
	offerAll(t, control, b, s)
	r.serves(t, 2)
	second, added := travelled(), len(b.blobs)-before
	if want := [2]int{first[0] + added, first[1] + added}; second != want || added != 2 {
		t.Errorf("one more device: sent and fetched %v blobs in all, want %v, %d of them new", second, want, added)
	}

	// A control node beside it, or the same after a restart, sends nothing.
	offerAll(t, newRedisAt(t, server.URL()), b, s)
	questions := func() int {
		return calls(t, server, "hmget") + calls(t, server, "expire") + calls(t, server, "evalsha")
	}
	asked := questions()
	for range 10 {
		offerAll(t, control, b, s)
	}
	if got := questions() - asked; got > 10+4 { // the replica polls meanwhile
		t.Errorf("ten unchanged offers cost %d questions", got)
	}
	if got := travelled(); got != second {
		t.Errorf("sent and fetched %v, want still %v", got, second)
	}
}

// Writers that come late change nothing, whatever the order.
func TestRedisNeverGoesBack(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	all := []release.Signed{b.now()}
	for range 20 {
		all = append(all, b.next(nil))
	}
	watch, done := newRedisAt(t, server.URL()), make(chan struct{})
	var fell atomic.Bool
	go func() {
		defer close(done)
		for last := uint64(0); last < 21; {
			m, err := watch.held(context.Background())
			fell.Store(fell.Load() || err != nil || m.number < last)
			last = max(last, m.number)
		}
	}()
	var writers sync.WaitGroup
	for i := range all {
		control := newRedisAt(t, server.URL())
		writers.Go(func() {
			err := control.Offer(context.Background(), Offer{All: all[(i*8)%21]}, b.blobs)
			if err != nil && fault.CodeOf(err) != "redis_ahead" {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	<-done
	if fell.Load() {
		t.Error("the number in Redis fell")
	}
	if err := watch.Offer(t.Context(), Offer{All: all[3]}, b.blobs); fault.CodeOf(err) != "redis_ahead" {
		t.Errorf("a lower release: %v, want redis_ahead", err)
	}
	if m := must(watch.held(t.Context())); m.number != 21 {
		t.Errorf("Redis holds %d, want 21", m.number)
	}
}

func TestRedisTakesRenewalsAndRefusesForks(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	r := newRedisAt(t, server.URL())
	s := b.now()
	offerAll(t, r, b, s)
	renewed := s
	renewed.Records = must(release.Renew(s, b.keys.Trust(), b.keys.Record, b.last.Created.Add(time.Hour)))
	offerAll(t, r, b, renewed)
	got, err := r.look(t.Context(), &Report{Number: 1, Seq: 1})
	if err != nil || got == nil || got.Records.Seq != 2 || !slices.Equal(got.Records.Bytes, renewed.Records.Bytes) {
		t.Errorf("renewal = %+v, %v", got, err)
	}
	if err := r.Offer(t.Context(), Offer{All: s}, b.blobs); fault.CodeOf(err) != "redis_ahead" {
		t.Errorf("the older records: %v, want redis_ahead", err)
	}
	other := *b.last
	other.Cause.Reason = "signed twice"
	if err := r.Offer(t.Context(), Offer{All: must(release.Sign(&other, b.keys, other.Created))}, b.blobs); fault.CodeOf(err) != "fork" {
		t.Errorf("another release 1: %v, want fork", err)
	}
}

// A canary is for one replica, and Redis does not know who asks.
func TestRedisHoldsNoCanary(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	r := newRedisAt(t, server.URL())
	all, canary := b.now(), b.next(nil)
	if err := r.Offer(t.Context(), Offer{All: all, Canary: canary, Replica: "r1"}, b.blobs); err != nil {
		t.Fatal(err)
	}
	if m := must(r.held(t.Context())); m.number != 1 {
		t.Errorf("Redis holds %d", m.number)
	}
	if err := r.Offer(t.Context(), Offer{Canary: canary, Replica: "r1"}, b.blobs); err != nil {
		t.Errorf("nothing is for everybody yet: %v", err)
	}
}

// Whatever byte a control node dies at, replicas see the old release or the new
// one with all its blobs.
func TestRedisNeverShowsHalfARelease(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 3000)
	old := b.now()
	replica := newRedisAt(t, server.URL())
	offerAll(t, replica, b, old)
	s := b.next(func(c *release.Change) {
		c.Lists = map[string]release.Digest{"staff-devices": b.list(6000)}
		c.Tables = map[string]release.Digest{"cn-prefixes": b.blobs.Add([]byte("198.51.100.0/24,hf\n"))}
	})
	proxy := newProxy(t, server.Addr)
	seen := map[uint64]int{}
	for after := 0; seen[2] < 3; after += 1777 {
		redisDo(t, server, "FLUSHALL")
		offerAll(t, newRedisAt(t, server.URL()), b, old)
		proxy.cutAfter.Store(int64(after))
		dying := must(NewRedis(RedisOptions{URL: proxy.url(), Deployment: "bank"}))
		_ = dying.Offer(t.Context(), Offer{All: s}, b.blobs) // it was cut, or it was not
		_ = dying.Close()
		got := must(replica.look(t.Context(), &Report{}))
		if got == nil {
			t.Fatalf("cut after %d bytes: there is no release", after)
		}
		seen[got.Number]++
		if err := b.keeper(nil).Accept(t.Context(), *got, replica, "redis"); err != nil {
			t.Fatalf("cut after %d bytes: release %d is not whole: %v", after, got.Number, err)
		}
	}
	if seen[1] < 10 {
		t.Errorf("seen %v: the cuts came too late to test anything", seen)
	}
}

// Emptying Redis takes nothing from a replica, and the next offer fills it again.
func TestWipedRedisHurtsNoReplica(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10_000)
	control, r := newRedisAt(t, server.URL()), b.replica(t, "r1", nil)
	b.next(nil)
	s := b.next(nil)
	offerAll(t, control, b, s)
	r.Use([]Source{newRedisAt(t, server.URL())})
	run(t, r.Run)
	r.serves(t, 3)

	redisDo(t, server, "FLUSHALL")
	late := newRedisAt(t, server.URL())
	if got, err := late.look(t.Context(), &Report{}); got != nil || err != nil {
		t.Errorf("an empty Redis holds %+v, %v", got, err)
	}
	if _, err := late.Blob(t.Context(), slices.Collect(maps.Keys(b.blobs))[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("blob = %v, want not exist", err)
	}
	redisDo(t, server, "PUBLISH", late.keys.nudges, "")
	eventually(t, 10*time.Second, func() bool { return r.States()[0].OK })
	if n := r.keeper.Status().Number; n != 3 {
		t.Errorf("the replica serves %d", n)
	}

	offerAll(t, control, b, s) // as its control node does every few seconds
	if got := must(late.look(t.Context(), &Report{})); got == nil || b.keeper(nil).Accept(t.Context(), *got, late, "redis") != nil {
		t.Errorf("after the next offer: %+v cannot be loaded", got)
	}
	if ttl := redisDo(t, server, "TTL", late.keys.blob(b.last.Tables["cn-prefixes"])); ttl < "2591990" || ttl > "2592000" {
		t.Errorf("a blob lives for %s s, want 30 days", ttl)
	}
	if ttl := redisDo(t, server, "TTL", late.keys.release); ttl != "-1" {
		t.Errorf("the release lives for %s s, want for ever", ttl)
	}
}

// A blob that Redis lost, or never had right, is sent again within the hour.
func TestRedisLooksAfterBlobs(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	r := newRedisAt(t, server.URL())
	s, table := b.now(), b.last.Tables["cn-prefixes"]
	offerAll(t, r, b, s)
	redisDo(t, server, "SET", r.keys.blob(table), "something else")
	if _, err := r.Blob(t.Context(), table); err == nil || !strings.Contains(err.Error(), "another blob") {
		t.Errorf("a wrong blob: %v", err)
	}
	redisDo(t, server, "DEL", r.keys.blob(table))
	r.offered.touched = r.offered.touched.Add(-touchEvery) // an hour later
	offerAll(t, r, b, s)
	if data, err := r.Blob(t.Context(), table); err != nil || len(data) == 0 {
		t.Errorf("after an hour: %v", err)
	}
}

// What is no release is an error of the source, and an offer replaces it.
func TestRedisGarbage(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	r := newRedisAt(t, server.URL())
	for name, fields := range map[string][]any{
		"no number":    {"number", "x", "seq", "1"},
		"no sequence":  {"number", "9"},
		"a negative":   {"number", "-3", "seq", "1"},
		"too large":    {"number", "9", "seq", "1", "manifest", strings.Repeat("x", 2*release.MaxManifest+1)},
		"its own type": nil,
	} {
		redisDo(t, server, "DEL", r.keys.release)
		if fields == nil {
			redisDo(t, server, "SET", r.keys.release, "x")
		} else {
			redisDo(t, server, append([]any{"HSET", r.keys.release}, fields...)...)
		}
		if s, err := r.look(t.Context(), &Report{}); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	redisDo(t, server, "DEL", r.keys.release)
	redisDo(t, server, "HSET", r.keys.release, "number", "x", "seq", "y")
	offerAll(t, r, b, b.now())
	if s := must(r.look(t.Context(), &Report{})); s == nil || s.Number != 1 {
		t.Errorf("after an offer: %+v", s)
	}
}

// A refused release is not read again at every poll, but when another one is there.
func TestRedisBringsRefusedReleasesOnce(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	r := newRedisAt(t, server.URL())
	offerAll(t, r, b, b.now())
	report := &Report{}
	if must(r.look(t.Context(), report)) == nil {
		t.Fatal("nothing came")
	}
	report.Refusal = &release.Refusal{Number: 1, Seq: 1}
	if s := must(r.look(t.Context(), report)); s != nil {
		t.Error("it came again")
	}
	r.brought.at = r.brought.at.Add(-againAfter)
	if must(r.look(t.Context(), report)) == nil {
		t.Error("after a minute it did not come again")
	}
	offerAll(t, r, b, b.next(nil))
	if s := must(r.look(t.Context(), report)); s == nil || s.Number != 2 {
		t.Errorf("the next one: %+v", s)
	}
}
