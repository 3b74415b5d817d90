package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"dispatch.example/dispatch/release"
)

// mark is which release Redis holds.
type mark struct {
	number, seq uint64
	digest      string // of the manifest
}

func (m mark) above(r *Report) bool {
	return m.number > r.Number || m.number == r.Number && m.seq > r.Seq
}

// brought is a release that Next has returned.
type brought struct {
	mark
	at time.Time
}

// Next looks at once, at every nudge (ten, then one a second) and returns nil
// after PollEvery ± 30 %. The report goes nowhere: Redis asks nobody. A release
// that the report says was refused is brought again after a minute, or when
// Redis holds another one.
//
// A subscription that cannot be had, or is silent, costs nothing but time: the
// look at the start of every Next is the poll.
func (r *Redis) Next(ctx context.Context, report Report) (*release.Signed, error) {
	until := time.Now().Add(jitter(PollEvery))
	r.subscribe(ctx) // before looking, or a change between the two would wait for the next poll
	for {
		s, err := r.look(ctx, &report)
		if err != nil {
			return nil, fmt.Errorf("look into redis: %w", err)
		}
		if s != nil {
			return s, nil
		}
		if again, err := r.wait(ctx, until); err != nil || !again {
			return nil, err
		}
	}
}

// jitter is d ± 30 %, so that replicas do not ask together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.7 + 0.6*rand.Float64()))
}

// look is the release in Redis if it is above what the report says.
func (r *Redis) look(ctx context.Context, report *Report) (*release.Signed, error) {
	r.looks.Inc()
	r.lookOverride(ctx)
	m, err := r.held(ctx)
	if err != nil || !m.above(report) {
		return nil, err
	}
	if refused := report.Refusal; refused != nil && refused.Number == m.number && refused.Seq == m.seq &&
		r.brought.mark == m && time.Since(r.brought.at) < againAfter {
		return nil, nil
	}
	s, err := r.fetch(ctx)
	if err != nil || s == nil {
		return nil, err
	}
	r.brought = brought{m, time.Now()}
	return s, nil
}

// held is the mark of the release in Redis; the zero value if there is none.
func (r *Redis) held(ctx context.Context) (m mark, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	fields, err := r.client.HMGet(ctx, r.keys.release, "number", "seq", "digest").Result()
	if err != nil || fields[0] == nil {
		return mark{}, err
	}
	if m.number, err = number(fields[0]); err != nil {
		return mark{}, fmt.Errorf("%s: number: %w", r.keys.release, err)
	}
	if m.seq, err = number(fields[1]); err != nil {
		return mark{}, fmt.Errorf("%s: seq: %w", r.keys.release, err)
	}
	m.digest, _ = fields[2].(string)
	return m, nil
}

// fetch reads the release, whichever it is by now. Nil: it is gone.
func (r *Redis) fetch(ctx context.Context) (*release.Signed, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if err := r.bounded(ctx); err != nil {
		return nil, err
	}
	fields, err := r.client.HMGet(ctx, r.keys.release, "number", "seq", "manifest", "signature", "records", "records_signature").Result()
	if err != nil || fields[0] == nil {
		return nil, err
	}
	text := make([]string, len(fields))
	for i, f := range fields {
		text[i], _ = f.(string) // what is missing cannot be verified later
	}
	s := &release.Signed{Stream: r.stream, Manifest: []byte(text[2]), Signature: text[3],
		Records: release.RecordSet{Bytes: []byte(text[4]), Signature: text[5]}}
	if s.Number, err = number(fields[0]); err != nil {
		return nil, fmt.Errorf("%s: number: %w", r.keys.release, err)
	}
	if s.Records.Seq, err = number(fields[1]); err != nil {
		return nil, fmt.Errorf("%s: seq: %w", r.keys.release, err)
	}
	s.Records.Release = s.Number
	return s, nil
}

// bounded refuses what is too large to be a release before it is read.
func (r *Redis) bounded(ctx context.Context) error {
	pipe := r.client.Pipeline()
	var sizes []*redis.IntCmd
	for _, field := range []string{"manifest", "signature", "records", "records_signature"} {
		sizes = append(sizes, pipe.HStrLen(ctx, r.keys.release, field))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	total := int64(0)
	for _, size := range sizes {
		total += size.Val()
	}
	if total > 2*release.MaxManifest { // its manifest, and records that are smaller
		return fmt.Errorf("%s: %d bytes are no release", r.keys.release, total)
	}
	return nil
}

func number(field any) (uint64, error) {
	text, _ := field.(string)
	return strconv.ParseUint(text, 10, 64)
}

// wait returns true when it is time to look, because of a nudge, and false when
// until has come. Meanwhile it keeps the subscription alive.
func (r *Redis) wait(ctx context.Context, until time.Time) (bool, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var look time.Time // set by the first nudge
	for {
		now := time.Now()
		if !look.IsZero() && !now.Before(look) {
			return true, nil
		}
		if !now.Before(until) {
			return false, nil
		}
		messages, deaf := r.listening(now)
		if !now.Before(deaf) {
			r.resubscribe(ctx)
			continue
		}
		if !now.Before(r.nextBeat) {
			r.sendBeat(ctx)
			continue
		}
		timer.Reset(earliest(look, until, deaf, r.nextBeat).Sub(now))
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-timer.C:
		case m, ok := <-messages:
			switch {
			case !ok: // closed
				return false, errors.New("redis: the subscription is closed")
			case m.Channel == r.keys.beats:
				r.hear()
			case look.IsZero():
				r.nudges.Inc()
				look = time.Now().Add(r.limit.Reserve().Delay())
			default:
				r.nudges.Inc()
			}
		}
	}
}

// earliest is the first of some times that are set.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
