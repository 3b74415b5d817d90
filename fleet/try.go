package fleet

import (
	"context"
	"encoding/json"
	"time"

	"dispatch.example/dispatch/release"
)

const (
	// tryWithin bounds one trial on a replica.
	tryWithin = 5 * time.Second
	// maxVerdict bounds a verdict in a report.
	maxVerdict = 64 << 10
)

// trying is what a replica has to do with the trials of one source.
type trying struct {
	id      string             // of the last one that came
	stop    context.CancelFunc // ends it; nil: none came yet
	verdict *Verdict           // that the source has not heard yet
}

// try judges a trial beside everything else. A source that sends another one has no
// use for the one before. Of the trials of several sources one runs at a time.
func (f *Follower) try(ctx context.Context, l *link, t Trial) {
	ctx, stop := context.WithTimeout(ctx, tryWithin)
	l.mu.Lock()
	if l.trying.stop != nil {
		l.trying.stop()
	}
	l.trying = trying{id: t.ID, stop: stop}
	l.mu.Unlock()
	f.loads.Go(func() {
		defer stop()
		v := f.judge(ctx, l, t)
		v.ID = t.ID
		if data, err := json.Marshal(v); err != nil || len(data) > maxVerdict {
			v = Verdict{ID: t.ID, Problem: "the verdict is too long to be sent"}
		}
		l.judged(&v)
	})
}

// judge waits for its turn.
func (f *Follower) judge(ctx context.Context, l *link, t Trial) Verdict {
	if f.opt.Try == nil {
		return Verdict{Problem: "it answers no requests"}
	}
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return Verdict{Problem: "another trial takes all the time"}
	}
	// A draft is no release: what is fetched for it goes to no disk.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	from := &layers{sources: []Source{l.source}, fail: stop}
	if f.opt.Disk != nil {
		from.disk = unkept{f.opt.Disk}
	}
	t.Blobs = from
	return f.opt.Try(ctx, t)
}

// judged leaves the verdict to the next question, which is asked at once.
func (l *link) judged(v *Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trying.id != v.ID {
		return
	}
	l.trying.verdict = v
	if l.cut != nil {
		l.cut()
	}
}

// unheard is the last trial, and the verdict that goes into the next report, nil if
// there is none.
func (l *link) unheard() (trial string, v *Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trying.id, l.trying.verdict
}

// hasHeard notes that the source has had a verdict.
func (l *link) hasHeard(v *Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trying.verdict == v {
		l.trying.verdict = nil
	}
}

// tried says whether a trial came before.
func (l *link) tried(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trying.id == id
}

// unkept is a disk that is only read.
type unkept struct{ release.Blobs }

func (unkept) Keep(release.Digest, []byte) error { return nil }

func (unkept) Restore(context.Context, func(context.Context, release.Signed, release.Blobs) error) error {
	return nil
}
