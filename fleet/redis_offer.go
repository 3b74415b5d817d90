package fleet

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

const (
	// blobLife is how long a blob stays that no control node has touched. A
	// replica that was away for longer takes its blobs from a control node.
	blobLife = 30 * 24 * time.Hour
	// touchEvery is how often the blobs of an unchanged release are touched, and
	// those sent again that Redis has lost.
	touchEvery = time.Hour
	// touchBatch and sendBatch are how many commands, and sendBytes how many
	// bytes, are under way at once.
	touchBatch, sendBatch, sendBytes = 1000, 64, 4 << 20
)

// putRelease writes a release unless a higher one is there: a late writer must
// not undo an early one. 1: written, 0: it was there, -1: a higher one is, -2:
// another one of the same number is. Numbers end at 2^53-1, so Lua has them exactly.
//
//go:embed redis_put.lua
var putRelease string

// The answers of putRelease.
const (
	putHigher = -1
	putFork   = -2
)

// offered is what this process has put into Redis.
type offered struct {
	mark
	touched time.Time // when all its blobs were last seen there
}

// Offer puts what is for everybody into Redis: the blobs that it lacks, then the
// release, then a message that says: look now. A canary is no business of Redis,
// which does not know who asks. An unchanged offer costs one question; once an
// hour, and when Redis was emptied, all blobs are looked after.
//
// A frozen Redis holds the caller for lookTimeout.
func (r *Redis) Offer(ctx context.Context, o Offer, blobs release.Blobs) error {
	s := &o.All
	if s.Number == 0 {
		return nil
	}
	select {
	case <-r.offers:
		defer func() { r.offers <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := r.offer(ctx, s, blobs); err != nil {
		return fmt.Errorf("offer release %d to redis: %w", s.Number, err)
	}
	return nil
}

func (r *Redis) offer(ctx context.Context, s *release.Signed, blobs release.Blobs) error {
	m := mark{s.Number, s.Records.Seq, release.DigestOf(s.Manifest).String()}
	there, err := r.held(ctx)
	if _, garbage := errors.AsType[*strconv.NumError](err); err != nil && !garbage { // garbage is overwritten
		return err
	}
	if there == m && r.offered.mark == m && time.Since(r.offered.touched) < touchEvery {
		return nil
	}
	if err := r.putBlobs(ctx, s, blobs); err != nil {
		return err
	}
	if err := r.put(ctx, s, m); err != nil {
		return err
	}
	r.offered = offered{m, time.Now()}
	return nil
}

// put writes the release and nudges.
func (r *Redis) put(ctx context.Context, s *release.Signed, m mark) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	wrote, err := redis.NewScript(putRelease).Run(ctx, r.client, []string{r.keys.release}, m.number, m.seq, m.digest,
		s.Manifest, s.Signature, s.Records.Bytes, s.Records.Signature).Int()
	switch {
	case err != nil:
		return err
	case wrote == putHigher:
		return fault.New(fault.Conflict, "redis_ahead", "%s holds a higher release", r.keys.release).
			WithHint("if replicas serve it, the database is behind: dispatchctl releases adopt; if they refuse it, somebody else writes there: delete that key and change the password of Redis")
	case wrote == putFork:
		return fault.New(fault.Conflict, "fork", "%s holds another release of this number", r.keys.release).
			WithHint("two publishers signed one number, or two deployments of one name share a Redis: find the second one before anything else")
	case wrote == 0:
		return nil
	}
	return r.client.Publish(ctx, r.keys.nudges, "").Err()
}

// putBlobs makes sure that Redis has every blob of a release for blobLife.
// Touching says which are missing, and only those are read and sent.
func (r *Redis) putBlobs(ctx context.Context, s *release.Signed, blobs release.Blobs) error {
	digests, err := blobsOf(ctx, s, blobs)
	if err != nil {
		return err
	}
	missing, err := r.touch(ctx, digests)
	if err != nil {
		return err
	}
	return r.send(ctx, missing, blobs)
}

// touch starts the life of blobs anew and returns those that are not there.
func (r *Redis) touch(ctx context.Context, digests []release.Digest) (missing []release.Digest, err error) {
	for len(digests) > 0 {
		batch := digests[:min(len(digests), touchBatch)]
		digests = digests[len(batch):]
		had := make([]*redis.BoolCmd, len(batch))
		err := r.pipe(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
			for i, d := range batch {
				had[i] = pipe.Expire(ctx, r.keys.blob(d), blobLife)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("touch blobs: %w", err)
		}
		for i, d := range batch {
			if !had[i].Val() {
				missing = append(missing, d)
			}
		}
	}
	return missing, nil
}

func (r *Redis) send(ctx context.Context, digests []release.Digest, blobs release.Blobs) error {
	for len(digests) > 0 {
		var batch [][]byte
		for size := 0; len(batch) < min(len(digests), sendBatch) && size < sendBytes; {
			data, err := blobs.Blob(ctx, digests[len(batch)])
			if err != nil {
				return err
			}
			batch, size = append(batch, data), size+len(data)
		}
		err := r.pipe(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
			for i, data := range batch {
				pipe.Set(ctx, r.keys.blob(digests[i]), data, blobLife)
			}
		})
		if err != nil {
			return fmt.Errorf("send blobs: %w", err)
		}
		digests = digests[len(batch):]
	}
	return nil
}

// pipe sends one batch of commands.
func (r *Redis) pipe(ctx context.Context, fill func(context.Context, redis.Pipeliner)) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	pipe := r.client.Pipeline()
	fill(ctx, pipe)
	_, err := pipe.Exec(ctx)
	return err
}

// blobsOf are the digests of everything that a release names. The chunk without
// hashes is neither stored nor fetched by anybody.
func blobsOf(ctx context.Context, s *release.Signed, blobs release.Blobs) ([]release.Digest, error) {
	m, err := release.DecodeManifest(s.Manifest)
	if err != nil {
		return nil, err
	}
	var digests []release.Digest
	for _, d := range m.Tables {
		digests = append(digests, d)
	}
	empty := release.DigestOf(nil)
	for key, d := range m.Lists {
		data, err := blobs.Blob(ctx, d)
		if err != nil {
			return nil, err
		}
		index, err := whitelist.ParseIndexBlob(data)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", key, err)
		}
		digests = append(digests, d)
		for _, chunk := range index.Digests {
			if chunk != empty {
				digests = append(digests, chunk)
			}
		}
	}
	return digests, nil
}
