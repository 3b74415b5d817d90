package pages

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
)

const (
	// maxStreams bounds the streams of events of one node: a goroutine and a
	// connection each. Whoever comes later polls.
	maxStreams = 200
	// streamTime bounds one stream; the browser opens the next by itself. It is below
	// the server's WriteTimeout.
	streamTime = 5 * time.Minute
	// barEvery is the longest time between two looks at the bar. A connection that
	// has died is found by writing to it.
	barEvery = 5 * time.Second
	// ackTime is how long a release is watched on its way to the replicas.
	ackTime = 10 * time.Second
	ackStep = 250 * time.Millisecond
)

// stream opens a stream of server-sent events, each a piece of HTML. It ends when send
// returns, the caller goes or the server ends; send returns nil when there is nothing
// more to tell, and an error when the browser shall ask again.
func (v *visit) stream(limit time.Duration, send func(ctx context.Context, event func(block string, data view) error) error) error {
	select {
	case v.streams <- struct{}{}:
		defer func() { <-v.streams }()
	default:
		return fault.New(fault.Unavailable, "too_many_streams", "%d pages follow events already", maxStreams).
			WithHint("the page asks again by itself every few seconds")
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), limit)
	defer cancel()
	if v.opt.Ending != nil {
		defer context.AfterFunc(v.opt.Ending, cancel)()
	}
	set, err := v.templates.of(v.lang, v.Roles, "events")
	if err != nil {
		return err
	}
	control := http.NewResponseController(v.w)
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	v.w.WriteHeader(http.StatusOK)
	err = send(ctx, func(block string, data view) error {
		data.Me, data.Lang = v.Visitor, v.lang
		var out bytes.Buffer
		if err := set.ExecuteTemplate(&out, block, data); err != nil {
			return fmt.Errorf("write event %s: %w", block, err)
		}
		for line := range bytes.Lines(out.Bytes()) {
			if _, err := fmt.Fprintf(v.w, "data: %s\n", bytes.TrimRight(line, "\r\n")); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprint(v.w, "\n"); err != nil {
			return err
		}
		return control.Flush()
	})
	if err == nil { // there is nothing more to tell: or the browser would ask again
		_, _ = fmt.Fprint(v.w, "event: end\ndata:\n\n")
	}
	return nil // otherwise the caller has gone, or its time is over
}

// barEvents follows the top bar: an event when a replica changes, and every few
// seconds for its ages.
func (v *visit) barEvents() error {
	return v.stream(streamTime, func(ctx context.Context, event func(string, view) error) error {
		tick := time.NewTicker(barEvery)
		defer tick.Stop()
		for {
			changed := v.do.Fleet.Changed()
			if err := event("bar", view{Bar: v.bar()}); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
				// Replicas change together: one event for all of them.
				if err := wait(ctx, ackStep); err != nil {
					return err
				}
			case <-tick.C:
			}
		}
	})
}

// wait is a pause that ends with ctx.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// progress is how far a release has come.
type progress struct {
	Release uint64
	Ack     fleet.Acknowledgement
	Done    bool
}

// releaseEvents follows a release to the replicas, until all serve it or for ackTime.
func (v *visit) releaseEvents() error {
	n, err := strconv.ParseUint(v.r.PathValue("n"), 10, 64)
	if err != nil {
		return fault.New(fault.NotFound, "unknown_release", "%q is no release", v.r.PathValue("n"))
	}
	return v.stream(ackTime, func(ctx context.Context, event func(string, view) error) error {
		for last := -1; ; {
			step, cancel := context.WithTimeout(ctx, ackStep)
			ack := v.do.Fleet.Await(step, n, "")
			cancel()
			now := progress{Release: n, Ack: ack, Done: len(ack.Lagging) == 0}
			if now.Done || ack.Replicas != last {
				if err := event("event", view{Page: now}); err != nil || now.Done {
					return err
				}
			}
			last = ack.Replicas
			// A replica that refuses is waited for by nobody, so Await may have come at once.
			if wait(ctx, ackStep) != nil {
				return nil // whoever still lags is on the page
			}
		}
	})
}
