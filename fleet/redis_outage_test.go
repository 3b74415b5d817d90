package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/release"
)

// 100,000 forged messages change nothing and cause ten looks and one a second;
// what is true arrives in the midst of them.
func TestSEC05ForgedNudgesChangeNothing(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	control, source, r := newRedisAt(t, server.URL()), newRedisAt(t, server.URL()), b.replica(t, "r1", nil)
	offerAll(t, control, b, b.now())
	r.Use([]Source{source})
	run(t, r.Run)
	r.serves(t, 1)

	attacker := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer func() { _ = attacker.Close() }()
	looks, began := counted(source.looks), time.Now()
	forge := func() {
		pipe := attacker.Pipeline()
		for range 1000 {
			pipe.Publish(t.Context(), source.keys.nudges, `{"number":999,"manifest":"e30="}`)
		}
		must(pipe.Exec(t.Context()))
	}
	for range 100 {
		forge()
	}
	looked := func() float64 { return counted(source.looks) - looks }
	bound := func() float64 { // of looks: the nudges' and the polls'
		seconds := math.Ceil(time.Since(began).Seconds())
		return lookBurst + looksPerSecond*seconds + seconds/(0.7*PollEvery.Seconds()) + 1
	}
	eventually(t, 20*time.Second, func() bool { return counted(source.nudges) >= 100_000 || looked() > bound() })
	if looked() > bound() {
		t.Errorf("100,000 messages in %v caused %.0f looks, want %.0f at most", time.Since(began), looked(), bound())
	}
	if s := r.keeper.Status(); s.Number != 1 || len(s.Refused) != 0 {
		t.Errorf("status = %+v", s)
	}
	forge()
	offerAll(t, control, b, b.next(nil))
	forge()
	r.serves(t, 2)
}

// A subscription that answers pings and hears nothing is found within 15 s.
// Until then releases come by polling, afterwards by nudges again.
func TestP12SilentSubscriberIsFound(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	proxy := newProxy(t, server.Addr)
	control, source, r := newRedisAt(t, server.URL()), newRedisAt(t, proxy.url()), b.replica(t, "r1", nil)
	offerAll(t, control, b, b.now())
	if age := source.heartbeatAge(); !math.IsNaN(age) {
		t.Errorf("age = %v before anybody listens", age)
	}
	r.Use([]Source{source})
	run(t, r.Run)
	r.serves(t, 1)
	heard := func() time.Time {
		source.mu.Lock()
		defer source.mu.Unlock()
		return source.heard
	}
	first := heard()
	eventually(t, 2*beatEvery, func() bool { return heard().After(first) })

	proxy.deafen()
	silent := time.Now()
	offerAll(t, control, b, b.next(nil))
	r.serves(t, 2)
	if took := time.Since(silent); took > 7*time.Second {
		t.Errorf("by polling alone a release took %v", took)
	}
	eventually(t, 20*time.Second, func() bool { return counted(source.resubscribed) > 0 })
	if took := time.Since(silent); took > 15*time.Second {
		t.Errorf("the silence was found after %v, want 15 s at most", took)
	}
	if proxy.pongs.Load() == 0 {
		t.Error("no ping was answered: a broken connection was found, not a silent one")
	}
	eventually(t, 5*time.Second, func() bool { return heard().After(silent) })
	for n := uint64(3); n < 6; n++ {
		s, began := b.next(nil), time.Now()
		offerAll(t, control, b, s)
		r.serves(t, n)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("after subscribing anew a release took %v: nobody was nudged", took)
		}
	}
	if age := source.heartbeatAge(); age > 15 {
		t.Errorf("age = %v", age)
	}
}

// A frozen Redis holds up nobody but the goroutine that asks it, and that not for long.
func TestP11FrozenRedisBlocksNothing(t *testing.T) {
	t.Parallel()
	server, b, c := testenv.StartRedis(t), newBank(t, 10_000), newControl(t, nil)
	control, source, r := newRedisAt(t, server.URL()), newRedisAt(t, server.URL()), b.replica(t, "r1", nil)
	offerAll(t, control, b, b.now())
	r.Use([]Source{source, c.source("control a")})
	stop := start(t, r.Run)
	r.serves(t, 1)
	redisState := func() SourceState { return r.States()[1] } // by name: control a, redis
	if s := redisState(); s.Name != "redis" || !s.OK {
		t.Fatalf("state = %+v", s)
	}

	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	s := b.next(func(change *release.Change) {
		change.Lists = map[string]release.Digest{"staff-devices": b.list(20_000)}
	})
	began := time.Now()
	c.offer(t, b, s)
	r.serves(t, 2)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("another source's release took %v", took)
	}
	began = time.Now()
	if err := control.Offer(t.Context(), Offer{All: s}, b.blobs); err == nil {
		t.Error("a frozen Redis took an offer")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the offer failed after %v", took)
	}
	eventually(t, 20*time.Second, func() bool { return !redisState().OK })

	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() bool { return redisState().OK })
	offerAll(t, control, b, s)
	offerAll(t, control, b, b.next(nil))
	r.serves(t, 3)

	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	stop()
	if err := source.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("ending took %v while Redis was frozen", took)
	}
}

// counted is the value of a counter.
func counted(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}
