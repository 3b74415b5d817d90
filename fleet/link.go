package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

const (
	// firstBackOff and lastBackOff bound the time from a question that failed to the next one.
	firstBackOff = 500 * time.Millisecond
	lastBackOff  = 5 * time.Second
	// lookAgain is how long a refused release is not looked at again.
	lookAgain = time.Minute
	// tooSoon is how early a source may say that there is nothing new. One that
	// does so sooner would be asked in a circle.
	tooSoon = time.Second
)

// errSend is what Next returns when the source lacks the release that the report
// names. It gets it by send.
var errSend = errors.New("the source asks for the release that is served")

// sender is a Source that can be given a release.
type sender interface {
	// send gives the release in the report and, of its parts, the blobs that the
	// other end asks for.
	send(ctx context.Context, r Report, parts []release.Digest, blobs release.Blobs) error
}

// listener is a Source that hears what the report counts and tries, and says more
// than which release is newer.
type listener interface {
	tell(ctx context.Context, r Report) (*Reply, error)
}

// link is a source and how it gets along. Its follow loop is the only one that
// asks the source and that touches refused and fails.
type link struct {
	source  Source
	refused *refused // the release of this source that was refused last, until something else is known
	fails   int      // in a row

	leave context.CancelFunc // ends follow; guarded by Follower.mu

	mu       sync.Mutex // guards what follows
	since    time.Time  // of the last answer; of the start if there was none
	answered bool       // once at least
	problem  string     // of the last question; empty: it was answered
	failures uint64
	said     said               // by the question that is open
	cut      context.CancelFunc // ends that question; nil: none is open
	trying   trying
}

// refused is a release that the Keeper would not take from this source.
type refused struct {
	release.Refusal
	digest release.Digest
	at     time.Time
}

// covers says whether it is too soon to look at a release again.
func (r *refused) covers(s *release.Signed, digest release.Digest) bool {
	return r != nil && r.Number == s.Number && r.Seq == s.Records.Seq && r.digest == digest && time.Since(r.at) < lookAgain
}

func newLink(s Source) *link { return &link{source: s, since: time.Now(), leave: func() {}} }

// state is the source's, and how many questions to it have failed.
func (l *link) state() (SourceState, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	age := time.Since(l.since)
	s := SourceState{Name: l.source.Name(), OK: l.answered && l.problem == "" && age < SilentAfter, Age: age.Seconds(), Problem: l.problem}
	if !s.OK && s.Problem == "" {
		s.Problem = "has not answered yet"
	}
	return s, l.failures
}

func (l *link) cutShort(now said) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != nil && l.said != now {
		l.cut()
	}
}

// opened is the context of a question that says what the Keeper's status is now.
// closed must be called after it.
func (f *Follower) opened(ctx context.Context, l *link) (context.Context, func()) {
	ctx, cut := context.WithCancel(ctx)
	f.mu.Lock() // so that no change falls between the status and the question
	defer f.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said, l.cut = saidOf(f.opt.Keeper.Status()), cut
	return ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cut = nil
		cut()
	}
}

// follow asks one source until ctx ends.
func (f *Follower) follow(ctx context.Context, l *link) {
	if c, ok := l.source.(interface{ CloseIdleConnections() }); ok {
		defer c.CloseIdleConnections()
	}
	for ctx.Err() == nil {
		asked := time.Now()
		err := f.ask(ctx, l)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		f.failed(ctx, l, err)
		// Counted from the question on: a dial that has lasted 2 s has waited already.
		pause(ctx, max(backOff(l.fails)-time.Since(asked), jitter(firstBackOff)))
	}
}

// backOff doubles with every failure in a row.
func backOff(fails int) time.Duration {
	return min(jitter(firstBackOff<<min(fails-1, 4)), lastBackOff)
}

// ask asks once and does what the answer demands.
func (f *Follower) ask(ctx context.Context, l *link) error {
	asked := time.Now()
	question, closed := f.opened(ctx, l)
	report := f.reportTo(l)
	reply, err := f.next(question, l, report)
	cut := question.Err() != nil
	closed()
	switch {
	case errors.Is(err, errSend):
		return f.send(ctx, l)
	case err != nil && cut:
		return nil // it is asked anew, with what has changed
	case err != nil:
		return err
	}
	f.answered(ctx, l)
	tries := reply.Trial != nil && !l.tried(reply.Trial.ID)
	if tries {
		f.try(ctx, l, *reply.Trial)
	}
	switch {
	case reply.Release != nil:
		return f.consider(ctx, l, reply.Release, report.Number)
	case !cut && !tries && time.Since(asked) < tooSoon:
		f.idle(ctx, l, tooSoon)
	}
	return nil
}

// next asks the source. One that listens hears more than which release is served.
func (f *Follower) next(ctx context.Context, l *link, r Report) (*Reply, error) {
	to, listens := l.source.(listener)
	if !listens {
		s, err := l.source.Next(ctx, r)
		return &Reply{Release: s}, err
	}
	if r.Trial, r.Verdict = l.unheard(); f.opt.Counts != nil {
		r.Counts = f.opt.Counts.Take()
	}
	reply, err := to.tell(ctx, r)
	if f.opt.Counts != nil {
		f.opt.Counts.Done(r.Counts, err == nil && reply.Counted)
	}
	if err != nil {
		return nil, err
	}
	if l.hasHeard(r.Verdict); reply.Release == nil && reply.Send {
		return nil, errSend
	}
	return reply, nil
}

// reportTo is the report for one source: of refusals it should hear its own.
// When it is time to look at a refused release again, it hears of none.
func (f *Follower) reportTo(l *link) Report {
	r := f.Report()
	switch {
	case l.refused == nil:
	case time.Since(l.refused.at) >= lookAgain:
		l.refused, r.Refusal = nil, nil
	case l.refused.Number >= r.Number:
		refusal := l.refused.Refusal
		r.Refusal = &refusal
	}
	return r
}

// idle waits like a question that nobody answers: until something has changed here.
func (f *Follower) idle(ctx context.Context, l *link, d time.Duration) {
	ctx, closed := f.opened(ctx, l)
	defer closed()
	pause(ctx, jitter(d))
}

// consider takes what a source has brought into use, or says why not.
func (f *Follower) consider(ctx context.Context, l *link, s *release.Signed, reported uint64) error {
	digest := release.DigestOf(s.Manifest)
	if reported == s.Number && f.serves(s, digest) { // it should not have been brought
		f.idle(ctx, l, tooSoon)
		return nil
	}
	if l.refused.covers(s, digest) {
		f.idle(ctx, l, PollEvery)
		return nil
	}
	done := make(chan error, 1)
	f.loads.Go(func() { done <- f.accept(ctx, l.source, s, reported) })
	for {
		changed := f.opt.Keeper.Changed()
		if f.serves(s, digest) {
			l.refused = nil
			return nil // and its copy is written meanwhile: a slow disk must not delay the acknowledgement
		}
		select {
		case err := <-done:
			return f.considered(ctx, l, s, err)
		case <-changed:
		}
	}
}

func (f *Follower) serves(s *release.Signed, digest release.Digest) bool {
	st := f.opt.Keeper.Status()
	return st.Number == s.Number && st.Seq == s.Records.Seq && st.Digest == digest
}

// considered is what follows from the end of an Accept.
func (f *Follower) considered(ctx context.Context, l *link, s *release.Signed, err error) error {
	switch {
	case err == nil:
		l.refused = nil
		return nil
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, errOvertaken):
		if f.opt.Keeper.Status().Number < s.Number { // it is still on its way
			f.idle(ctx, l, PollEvery)
		}
		return nil
	case errors.Is(err, errIncomplete):
		return err
	}
	refusal := release.Refusal{Number: s.Number, Seq: s.Records.Seq, Source: l.source.Name(), Code: fault.CodeOf(err), Reason: shorten(err.Error())}
	l.refused = &refused{Refusal: refusal, digest: release.DigestOf(s.Manifest), at: time.Now()}
	f.opt.Log.ErrorContext(ctx, "a release is refused", "number", s.Number, "source", refusal.Source, "err", err)
	f.wake() // the other sources hear of it at once
	return nil
}

// send gives the source the release that is served.
func (f *Follower) send(ctx context.Context, l *link) error {
	to, ok := l.source.(sender)
	s, current := f.signed(ctx), f.opt.Keeper.Current()
	if !ok || s == nil || current == nil || current.Number != s.Number || f.opt.Disk == nil {
		f.idle(ctx, l, PollEvery) // another replica may have it
		return nil
	}
	report := f.reportTo(l)
	report.Release = s
	if err := to.send(ctx, report, current.Blobs(), f.opt.Disk); err != nil {
		return fmt.Errorf("send release %d: %w", s.Number, err)
	}
	f.answered(ctx, l)
	return nil
}

func (f *Follower) answered(ctx context.Context, l *link) {
	l.fails = 0
	l.mu.Lock()
	was := l.problem
	l.since, l.answered, l.problem = time.Now(), true, ""
	l.mu.Unlock()
	if was != "" {
		f.opt.Log.InfoContext(ctx, "a source of releases answers again", "source", l.source.Name())
	}
}

func (f *Follower) failed(ctx context.Context, l *link, err error) {
	l.fails++
	l.mu.Lock()
	was := l.problem
	l.problem = shorten(err.Error())
	l.failures++
	l.mu.Unlock()
	if was == "" { // one line for each outage, not for each question
		f.opt.Log.WarnContext(ctx, "a source of releases does not answer", "source", l.source.Name(), "err", err,
			"try", "nothing at once: what is served stays, and the source is asked again")
	}
}
