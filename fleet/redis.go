package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

const (
	// lookTimeout bounds the question for what Redis holds, and a PUBLISH.
	lookTimeout = 2 * time.Second
	// fetchTimeout bounds one blob, one release or one batch of blobs.
	fetchTimeout = 30 * time.Second
	// maxBlob is more than any blob has: the largest is an address table of 96 MiB.
	maxBlob = 128 << 20
	// beatEvery is the time between two heartbeats of a source to itself.
	beatEvery = 5 * time.Second
	// deafAfter is how long a subscription may be silent: two heartbeats, and 2 s
	// for slow ones, so that a silent one is found within 15 s.
	deafAfter = 12 * time.Second
	// lookBurst and looksPerSecond bound the looks that nudges cause, whoever sends them.
	lookBurst      = 10
	looksPerSecond = 1
	// againAfter is when a release that was refused is brought again.
	againAfter = time.Minute
)

// RedisOptions are what a Redis needs.
type RedisOptions struct {
	URL        string // required, see docs/adr/0026
	Password   string // used where URL has none
	Deployment string // required
	Stream     string // default release.StreamEdge
	Replica    string // who is listening; stands in the name of its heartbeat channel

	// Override is told, at every look, what lies where an override for all
	// replicas would: the number of the release that was newest when it was put
	// there, and its text. Neither is believed yet. Nil: nobody looks.
	Override func(ctx context.Context, over uint64, jws []byte)

	Log      *slog.Logger          // default: discard
	Registry prometheus.Registerer // nil: no metrics
}

// Redis is where control nodes leave what is fleet-wide, and where replicas find
// it when every control node is down. It is an Outlet and a Source; see
// docs/adr/0026 for its keys. What it brings is believed by nobody.
//
// Next has one caller at a time. Between its calls a subscription stays open,
// whose two goroutines belong to go-redis and end with Close.
type Redis struct {
	client redis.UniversalClient // commands
	ears   redis.UniversalClient // the subscription; waits less, since go-redis holds a lock while it connects anew
	keys   redisKeys
	stream string
	log    *slog.Logger

	override func(ctx context.Context, over uint64, jws []byte) // nil: none

	beat time.Duration // beatEvery, but in tests
	deaf time.Duration // deafAfter, but in tests

	// Of Next's caller.
	limit    *rate.Limiter
	nextBeat time.Time
	brought  brought // the release that Next returned last

	offers  chan struct{} // holds one token: whoever has it may offer
	offered offered       // of whoever has the token

	mu     sync.Mutex // guards what follows
	sub    *redis.PubSub
	opened time.Time // when sub was
	heard  time.Time // the last own heartbeat; the first subscription before that
	silent bool      // sub was replaced since then
	closed bool

	nudges, looks, resubscribed prometheus.Counter
}

// NewRedis checks the options. It connects when it is first used.
func NewRedis(opt RedisOptions) (*Redis, error) {
	var p fault.Problems
	if opt.Deployment == "" {
		p.Addf("--deployment", "is missing")
	}
	if strings.ContainsAny(opt.Deployment, "{}") {
		p.Addf("--deployment", "%q: braces would decide where Redis Cluster puts its keys", opt.Deployment)
	}
	if err := p.Err("bad_redis", "Redis cannot be used"); err != nil {
		return nil, err
	}
	if opt.Stream == "" {
		opt.Stream = release.StreamEdge
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	r := &Redis{stream: opt.Stream, log: opt.Log, override: opt.Override, beat: beatEvery, deaf: deafAfter, offers: make(chan struct{}, 1),
		keys: newRedisKeys(opt), limit: rate.NewLimiter(looksPerSecond, lookBurst)}
	r.offers <- struct{}{}
	if err := r.register(opt.Registry); err != nil {
		return nil, fmt.Errorf("redis: register metrics: %w", err)
	}
	var err error
	if r.client, err = openRedis(opt.URL, opt.Password, tuning{timeout: fetchTimeout, pool: 8, retries: 1}); err != nil {
		return nil, err
	}
	if r.ears, err = openRedis(opt.URL, opt.Password, tuning{timeout: lookTimeout, pool: 1, retries: -1}); err != nil {
		return nil, errors.Join(err, r.client.Close())
	}
	return r, nil
}

// redisKeys are the names of everything in Redis. The braces are a hash tag, so
// that in a cluster all of a deployment's releases and blobs lie on one node.
type redisKeys struct {
	release  string // hash: number, seq, digest, manifest, signature, records, records_signature
	override string // string: the newest release's number, a space, a signed override
	blobs    string // prefix of strings, by digest
	nudges   string // channel: look now
	beats    string // channel of one source alone
}

func newRedisKeys(opt RedisOptions) redisKeys {
	prefix := "dispatch:{" + opt.Deployment + "}:"
	return redisKeys{
		release:  prefix + "release:" + opt.Stream,
		override: prefix + "override",
		blobs:    prefix + "blob:",
		nudges:   prefix + "nudge:" + opt.Stream,
		beats:    prefix + "beat:" + opt.Stream + ":" + opt.Replica + ":" + rand.Text(),
	}
}

func (k redisKeys) blob(d release.Digest) string { return k.blobs + d.String() }

func (r *Redis) register(reg prometheus.Registerer) error {
	r.nudges = prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_redis_nudges_total",
		Help: "Messages of Redis that say: look now. A flood of them causes one look a second."})
	r.looks = prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_redis_looks_total",
		Help: "Questions for the release in Redis, by polling and by nudges."})
	r.resubscribed = prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_redis_resubscribed_total",
		Help: "Subscriptions that were replaced because they were silent; until a heartbeat arrives, only polling brings releases."})
	if reg == nil {
		return nil
	}
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatch_pubsub_heartbeat_age_seconds",
		Help: "Time since this replica heard its own heartbeat through Redis; NaN where nothing listens. Above 15 nudges do not arrive."}, r.heartbeatAge)
	for _, c := range []prometheus.Collector{r.nudges, r.looks, r.resubscribed, age} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (r *Redis) heartbeatAge() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heard.IsZero() {
		return math.NaN()
	}
	return time.Since(r.heard).Seconds()
}

// Name is redis.
func (r *Redis) Name() string { return "redis" }

// Blob is a blob, or fs.ErrNotExist. What Redis holds under a wrong name is an error.
func (r *Redis) Blob(ctx context.Context, d release.Digest) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	data, err := r.client.GetRange(ctx, r.keys.blob(d), 0, maxBlob).Bytes()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read redis %s: %w", r.keys.blob(d), err)
	case len(data) == 0: // no blob is empty
		return nil, &fs.PathError{Op: "read redis", Path: r.keys.blob(d), Err: fs.ErrNotExist}
	case release.DigestOf(data) != d:
		return nil, fmt.Errorf("read redis %s: it is another blob", r.keys.blob(d))
	}
	return data, nil
}

// Close ends the subscription and all connections. End the context of Next first.
func (r *Redis) Close() error {
	r.mu.Lock()
	r.closed = true
	sub := r.sub
	r.sub = nil
	r.mu.Unlock()
	var err error
	if sub != nil {
		err = sub.Close()
	}
	if err = errors.Join(err, r.ears.Close(), r.client.Close()); err != nil {
		return fmt.Errorf("close redis: %w", err)
	}
	return nil
}
