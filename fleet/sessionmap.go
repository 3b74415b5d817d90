package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/whitelist"
)

const (
	// sessionWait is how long a request waits for its session: Redis in the same
	// building answers in less than one.
	sessionWait = 5 * time.Millisecond
	// sessionQueue is how many sessions may wait to be written, of about 200 bytes
	// each. More are dropped: their next request is decided as if it were the first.
	sessionQueue = 8192
	// sessionBatch is how many are written at once, sessionWrite how long that may take.
	sessionBatch, sessionWrite = 256, time.Second
	// maxToken is more than a token has.
	maxToken = 1024
	// The breaker opens when breakerFailures of the last breakerOf calls failed,
	// and lets one through after breakerPause. It closes after breakerGood good ones.
	breakerFailures, breakerOf, breakerGood = 10, 20, 3
	breakerPause                            = time.Second
)

// SessionMapOptions are what a SessionMap needs.
type SessionMapOptions struct {
	URL        string // required, see docs/adr/0026
	Password   string // used where URL has none
	Deployment string // required

	Wait     time.Duration         // of a request for its session. Default 5 ms
	Log      *slog.Logger          // default: discard
	Registry prometheus.Registerer // nil: no metrics
}

// SessionMap keeps session tokens in Redis for apps that send only a session id.
// It holds nothing of a session in memory but what waits to be written. While
// Redis is slow or away Get gives up after 5 ms, soon without waiting, and Put
// drops. What it finds is a token like any other: sealed, and checked by
// whoever opens it.
type SessionMap struct {
	client  redis.UniversalClient
	prefix  string
	wait    time.Duration
	puts    chan put
	breaker circuitbreaker.CircuitBreaker[any]

	hits, misses, timeouts, failures, refused prometheus.Counter // of Get
	written, dropped                          prometheus.Counter // of Put
}

type put struct {
	key   whitelist.Hash
	token string
	life  time.Duration
}

// NewSessionMap checks the options. Run must run for anything to be written.
func NewSessionMap(opt SessionMapOptions) (*SessionMap, error) {
	if opt.Deployment == "" {
		return nil, fault.New(fault.Invalid, "bad_session_map", "the session map has no deployment").WithHint("set --deployment")
	}
	log := opt.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m := &SessionMap{prefix: "dispatch:" + opt.Deployment + ":session:", wait: cmp.Or(opt.Wait, sessionWait),
		puts: make(chan put, sessionQueue)}
	m.breaker = circuitbreaker.NewBuilder[any]().
		WithFailureThresholdRatio(breakerFailures, breakerOf).
		WithSuccessThreshold(breakerGood).
		WithDelay(breakerPause).
		OnOpen(func(e circuitbreaker.StateChangedEvent) {
			if e.OldState == circuitbreaker.ClosedState { // and not after each failed trial
				log.Warn("redis is slow or away; requests with a session id alone are decided without their session")
			}
		}).
		OnClose(func(circuitbreaker.StateChangedEvent) { log.Info("sessions are found in redis again") }).
		Build()
	if err := m.register(opt.Registry); err != nil {
		return nil, fmt.Errorf("session map: register metrics: %w", err)
	}
	var err error
	if m.client, err = openRedis(opt.URL, opt.Password, tuning{timeout: sessionWrite, idle: 4, retries: -1}); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *SessionMap) register(reg prometheus.Registerer) error {
	gets := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dispatch_session_map_requests_total",
		Help: "Sessions asked for by id: hit, miss, timeout (5 ms), error, or open (not asked, because the last ones failed)."}, []string{"result"})
	puts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dispatch_session_map_puts_total",
		Help: "Sessions to be written: written, or dropped because too many waited or Redis was away."}, []string{"result"})
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatch_session_map_waiting",
		Help: "Sessions that wait to be written."}, func() float64 { return float64(len(m.puts)) })
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatch_session_map_open",
		Help: "1 while the breaker keeps requests from asking Redis."}, func() float64 {
		if m.breaker.IsClosed() {
			return 0
		}
		return 1
	})
	m.hits, m.misses, m.timeouts = gets.WithLabelValues("hit"), gets.WithLabelValues("miss"), gets.WithLabelValues("timeout")
	m.failures, m.refused = gets.WithLabelValues("error"), gets.WithLabelValues("open")
	m.written, m.dropped = puts.WithLabelValues("written"), puts.WithLabelValues("dropped")
	if reg == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{gets, puts, waiting, open} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Get is the token of a session, empty if there is none; not ok: Redis did not
// say in time.
func (m *SessionMap) Get(ctx context.Context, key whitelist.Hash) (token string, ok bool) {
	if !m.breaker.TryAcquirePermit() {
		m.refused.Inc()
		return "", false
	}
	// A client that leaves says nothing about Redis.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.wait)
	defer cancel()
	token, err := m.client.GetRange(ctx, m.prefix+key.String(), 0, maxToken-1).Result() // empty if there is none
	if err != nil {
		m.breaker.RecordFailure()
		if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() || ctx.Err() != nil {
			m.timeouts.Inc()
		} else {
			m.failures.Inc()
		}
		return "", false
	}
	m.breaker.RecordSuccess()
	if token == "" {
		m.misses.Inc()
	} else {
		m.hits.Inc()
	}
	return token, true
}

// Put writes the token of a session soon, to be forgotten after life. It does not wait.
func (m *SessionMap) Put(key whitelist.Hash, token string, life time.Duration) {
	select {
	case m.puts <- put{key, token, life}:
	default:
		m.dropped.Inc()
	}
}

// Run writes what was put, until ctx ends. It owns no other goroutine.
func (m *SessionMap) Run(ctx context.Context) error {
	batch := make([]put, 0, sessionBatch)
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-m.puts:
			batch = append(batch[:0], p)
		}
		for len(batch) < sessionBatch && len(m.puts) > 0 { // nobody else takes
			batch = append(batch, <-m.puts)
		}
		if m.write(ctx, batch) {
			m.written.Add(float64(len(batch)))
		} else {
			m.dropped.Add(float64(len(batch)))
		}
	}
}

// write writes one batch and says whether it arrived.
func (m *SessionMap) write(ctx context.Context, batch []put) bool {
	if !m.breaker.TryAcquirePermit() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, sessionWrite)
	defer cancel()
	pipe := m.client.Pipeline()
	for _, p := range batch {
		pipe.Set(ctx, m.prefix+p.key.String(), p.token, p.life)
	}
	_, err := pipe.Exec(ctx)
	m.breaker.RecordError(err)
	return err == nil
}

// Close ends the connections. End the context of Run first.
func (m *SessionMap) Close() error {
	if err := m.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("close session map: %w", err)
	}
	return nil
}
