package fleet

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscribe opens the subscription if there is none. Failing is no error: polls go on.
func (r *Redis) subscribe(ctx context.Context) {
	r.mu.Lock()
	have := r.sub != nil || r.closed || time.Since(r.opened) < r.beat
	r.mu.Unlock()
	if have {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	sub := r.ears.Subscribe(ctx, r.keys.nudges, r.keys.beats)
	var err error
	for range 2 { // both channels are confirmed, so that nothing is missed from here on
		if _, err = sub.ReceiveTimeout(ctx, lookTimeout); err != nil {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = time.Now()
	if r.heard.IsZero() {
		r.heard = r.opened
	}
	if err != nil || r.closed {
		_ = sub.Close() // it never worked
		r.log.WarnContext(ctx, "no subscription to redis, releases come by polling", "err", err)
		return
	}
	sub.Channel(redis.WithChannelPingTimeout(lookTimeout), redis.WithChannelReconnectTimeout(lookTimeout))
	r.sub = sub
	r.nextBeat = r.opened // of Next's caller, which is here
}

// listening is where messages arrive, and when their absence means that the
// subscription is deaf. Without a subscription the channel is nil.
func (r *Redis) listening(now time.Time) (<-chan *redis.Message, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sub == nil {
		return nil, now.Add(r.deaf)
	}
	since := r.opened
	if r.heard.After(since) {
		since = r.heard
	}
	return r.sub.Channel(), since.Add(r.deaf)
}

func (r *Redis) hear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent {
		r.log.Info("redis is heard again")
	}
	r.heard, r.silent = time.Now(), false
}

// resubscribe replaces a subscription that answers pings, or does not notice
// that nobody answers, but hears nothing.
func (r *Redis) resubscribe(ctx context.Context) {
	r.mu.Lock()
	sub := r.sub
	if r.sub = nil; !r.silent {
		r.log.WarnContext(ctx, "redis is silent, subscribing anew; releases come by polling", "silent_for", time.Since(r.heard).String())
	}
	r.silent, r.opened = true, time.Time{}
	r.mu.Unlock()
	if sub != nil {
		_ = sub.Close() // it is broken, and its connection with it
	}
	r.resubscribed.Inc()
	r.subscribe(ctx)
}

// sendBeat publishes to this source alone. When that fails nothing comes back,
// which is what the caller watches for.
func (r *Redis) sendBeat(ctx context.Context) {
	r.nextBeat = time.Now().Add(r.beat)
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := r.client.Publish(ctx, r.keys.beats, "").Err(); err != nil {
		r.log.DebugContext(ctx, "heartbeat not sent", "err", err)
	}
}
