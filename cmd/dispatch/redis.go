package main

import (
	"context"
	"math/rand/v2"
	"time"

	"dispatch.example/dispatch/fleet"
)

// Offer puts the offer on the board, from where replicas have it at once, and
// leaves it to feedRedis: a Redis that hangs must not hold up the next emergency.
func (n *node) Offer(ctx context.Context, o fleet.Offer) error {
	if err := n.board.Offer(ctx, o, n.blobs()); err != nil || n.redis == nil {
		return err
	}
	for {
		select {
		case n.offers <- o:
			return nil
		default:
		}
		select {
		case <-n.offers: // an older one that has not been taken
		default:
		}
	}
}

// feedRedis brings the newest offer into Redis, again every few seconds until
// Redis has it.
func (n *node) feedRedis(ctx context.Context) error {
	var newest fleet.Offer
	failing := false
	for {
		var again <-chan time.Time
		if failing {
			again = time.After(time.Duration(float64(fleet.PollEvery) * (0.7 + 0.6*rand.Float64())))
		}
		select {
		case newest = <-n.offers:
		case <-again:
		case <-ctx.Done():
			return nil
		}
		err := n.redis.Offer(ctx, newest, n.blobs())
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			n.p.log.WarnContext(ctx, "redis does not have the newest release", "release", newest.All.Number, "err", err,
				"try", "nothing yet: it is offered again every few seconds, and replicas have the control nodes")
		case err == nil && failing:
			n.p.log.InfoContext(ctx, "redis has the newest release again", "release", newest.All.Number)
		}
		failing = err != nil
	}
}
