package caller

import (
	"context"
	"errors"
	"time"

	"dispatch.example/dispatch/discovery/wire"
)

const (
	sendEvery = time.Second
	// maxBatch records are half a megabyte.
	maxBatch = 2000
	// lastSend is how long the end of Run waits for the records of the last second.
	lastSend = time.Second
)

// sendRecords sends what is in the ring, every second and once more at the end.
func (c *Caller) sendRecords(ctx context.Context) {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lastSend)
			defer stop()
			c.sendBatch(ctx)
			return
		case <-tick.C:
			for c.sendBatch(ctx) { // more is waiting
			}
		}
	}
}

// sendBatch sends one batch to the node that answers questions; while none does,
// records wait. It reports whether there is more to send.
func (c *Caller) sendBatch(ctx context.Context) (more bool) {
	at := c.current.Load()
	if at < 0 {
		return false
	}
	b, upTo := c.batch(c.ring.most())
	if len(b.Records) == 0 && b.Dropped == 0 {
		return false
	}
	_, err := c.post(ctx, c.opt.Control[at]+wire.RecordsPath, b, answerWithin)
	if ctx.Err() == nil {
		c.troubles.note("records", err)
	}
	switch n := len(b.Records); {
	case errors.Is(err, errUnfit) && n > 1:
		c.ring.size = n / 2
		return true
	case errors.Is(err, errUnfit) && n == 1:
		c.giveUp(upTo)
		return true
	case err != nil:
		return false
	default:
		c.arrived(b, upTo)
		more = n == c.ring.most()
		c.ring.size = 0
		return more
	}
}
