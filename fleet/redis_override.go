package fleet

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxOverride is more than a signed override and the number before it have, in bytes.
const maxOverride = 64<<10 + 32

// PublishOverride puts a signed override where the sources of its deployment look
// for one, until it is over, and nudges them. Beside it stands the release that is
// newest now, so that a replica can tell whether one has cleared it.
func (r *Redis) PublishOverride(ctx context.Context, jws []byte, until time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	newest, err := r.held(ctx)
	if err != nil {
		return fmt.Errorf("publish override: read the newest release: %w", err)
	}
	text := fmt.Appendf(nil, "%d %s", newest.number, bytes.TrimSpace(jws))
	if err := r.client.SetArgs(ctx, r.keys.override, text, redis.SetArgs{ExpireAt: until}).Err(); err != nil {
		return fmt.Errorf("publish override: %w", err)
	}
	if err := r.client.Publish(ctx, r.keys.nudges, "").Err(); err != nil {
		return fmt.Errorf("publish override: it is there, replicas find it within %s: nudge them: %w", PollEvery*13/10, err)
	}
	return nil
}

// lookOverride hands what lies there to whoever judges it. That it cannot be read
// must not keep releases away.
func (r *Redis) lookOverride(ctx context.Context) {
	if r.override == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	text, err := r.client.GetRange(ctx, r.keys.override, 0, maxOverride).Bytes()
	if err != nil {
		r.log.DebugContext(ctx, "override not read", "key", r.keys.override, "err", err)
		return
	}
	if len(text) == 0 {
		return
	}
	number, jws, _ := bytes.Cut(text, []byte(" "))
	over, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		jws = text // whose signature will not hold
	}
	r.override(ctx, over, jws)
}
