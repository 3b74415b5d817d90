package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

const (
	// putWithin is how long a load waits for a blob that a replica sends, and how
	// long a replica's blob waits to be wanted.
	putWithin = 10 * time.Second
	// askAgainAfter is how long a release that was not accepted from a replica is not asked for again.
	askAgainAfter = time.Minute
)

// adoption is how a control node gets a release that only a replica has: its
// database went back, or another publisher has signed. One is under way at a
// time. The zero value is ready.
//
// Accept reads the release's blobs as ever. A blob that is nowhere on this node is
// wanted, and the replica, which has sent the release, sends what is wanted. So a
// blob is known to belong to the release, because the load asks for it after it
// has verified the signature, and few are in memory at a time.
type adoption struct {
	mu      sync.Mutex // guards what follows
	running bool
	asked   string // the replica that was asked to send, until when
	until   time.Time
	refused release.Digest // the last one that was not accepted, until when it is not asked for
	quiet   time.Time
	taken   uint64 // the highest number that came so
	wanted  map[release.Digest]chan []byte
	changed chan struct{} // closed when wanted or running changes; nil: nobody waits
}

// lacks says whether the replica serves what this node does not know and shall
// send. One replica is asked at a time.
func (s *Server) lacks(r *Report) bool {
	if s.opt.Accept == nil || r.Release != nil {
		return false
	}
	known := s.known()
	if r.Number <= known {
		return false
	}
	a, now := &s.adopt, time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running || now.Before(a.until) && a.asked != r.ID || a.refused == r.Digest && now.Before(a.quiet) {
		return false
	}
	if a.asked != r.ID || !now.Before(a.until) {
		s.opt.Log.Error("a replica serves a release that this node does not know", "replica", r.ID, "number", r.Number, "known", known,
			"try", "bring it into the database: POST /api/v1/releases/adopt")
	}
	a.asked, a.until = r.ID, now.Add(2*PollEvery)
	return true
}

// known is the highest number that this node knows.
func (s *Server) known() uint64 {
	s.adopt.mu.Lock()
	known := max(s.opt.Board.Head(), s.adopt.taken)
	s.adopt.mu.Unlock()
	if s.opt.Known != nil {
		known = max(known, s.opt.Known())
	}
	return known
}

// take hands the release in a report to Accept.
func (s *Server) take(ctx context.Context, r *Report) error {
	if s.opt.Accept == nil || r.Release.Number <= s.known() {
		return nil
	}
	a := &s.adopt
	if !a.begin() {
		return fault.New(fault.Unavailable, "busy", "another release is being received")
	}
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	err := s.opt.Accept(ctx, *r.Release, received{s})
	a.end(err, r.Release)
	if err != nil {
		s.opt.Log.ErrorContext(ctx, "the release of a replica is not accepted", "replica", r.ID, "number", r.Release.Number, "err", err)
		return fault.New(fault.Conflict, "not_accepted", "release %d is not accepted here (%s)", r.Release.Number, fault.CodeOf(err)).Because(err)
	}
	s.opt.Log.WarnContext(ctx, "a release came from a replica", "replica", r.ID, "number", r.Release.Number,
		"try", "bring it into the database: POST /api/v1/releases/adopt")
	return nil
}

func (a *adoption) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return false
	}
	a.running, a.wanted = true, map[release.Digest]chan []byte{}
	a.wake()
	return true
}

func (a *adoption) end(err error, s *release.Signed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running, a.wanted = false, nil
	a.until = time.Time{}
	if err == nil {
		a.taken = max(a.taken, s.Number)
	} else {
		a.refused, a.quiet = release.DigestOf(s.Manifest), time.Now().Add(askAgainAfter)
	}
	a.wake()
}

// wake tells those who wait that something is different; a.mu is held.
func (a *adoption) wake() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// received are the blobs of a release that a replica sends.
type received struct{ server *Server }

// Blob is the blob from this node, or else from the replica.
func (b received) Blob(ctx context.Context, d release.Digest) ([]byte, error) {
	s := b.server
	data, err := s.opt.Disk.Blob(ctx, d)
	if err != nil {
		data, err = s.read(ctx, d)
	}
	if err == nil {
		return data, nil
	}
	a := &s.adopt
	came := make(chan []byte, 1)
	a.mu.Lock()
	if a.wanted == nil {
		a.mu.Unlock()
		return nil, err
	}
	a.wanted[d] = came
	a.wake()
	a.mu.Unlock()
	timer := time.NewTimer(putWithin)
	defer timer.Stop()
	select {
	case data := <-came:
		return data, nil
	case <-timer.C:
		err = fmt.Errorf("wait for blob %s: the replica does not send it: %w", d, fs.ErrNotExist)
	case <-ctx.Done():
		err = ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wanted, d)
	return nil, err
}

// wants is the answer to a blob: which others the load needs now.
type wants struct {
	Wanted []release.Digest `json:"wanted,omitempty"`
	Done   bool             `json:"done,omitempty"` // no release is being received any more
}

// putBlob receives a blob if the load of the release that is being received wants
// it, and answers what is wanted next as soon as that is known.
func (s *Server) putBlob(w http.ResponseWriter, r *http.Request) error {
	d, err := digestOf(r)
	if err != nil {
		return err
	}
	timer := time.NewTimer(putWithin)
	defer timer.Stop()
	for {
		came, next, changed := s.adopt.next(d)
		switch {
		case came != nil:
			if err := s.receive(w, r, d, came); err != nil {
				return err
			}
			continue
		case len(next) > 0:
			return answer(w, wants{Wanted: next})
		case changed == nil:
			return answer(w, wants{Done: true})
		}
		select {
		case <-changed:
		case <-timer.C:
			return answer(w, wants{})
		case <-r.Context().Done():
			return nil
		}
	}
}

// next is where blob d shall go if it is wanted, else what is wanted, and a channel
// that is closed when that changes; nil when no release is being received.
func (a *adoption) next(d release.Digest) (came chan []byte, wanted []release.Digest, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if came = a.wanted[d]; came != nil {
		delete(a.wanted, d)
		return came, nil, nil
	}
	if !a.running && !time.Now().Before(a.until) {
		return nil, nil, nil
	}
	for other := range a.wanted {
		wanted = append(wanted, other)
	}
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return nil, wanted, a.changed
}

func (s *Server) receive(w http.ResponseWriter, r *http.Request, d release.Digest, came chan<- []byte) error {
	data, err := readBody(w, r, MaxBlob)
	if err == nil && release.DigestOf(data) != d {
		err = fault.New(fault.Invalid, "other_blob", "this is not the blob %s", d)
	}
	if err == nil {
		err = s.opt.Disk.Keep(d, data)
	}
	if err != nil {
		return err // and the load stops waiting by itself
	}
	came <- data
	return nil
}

// sharedBlobs read a blob once for all who ask for it at the same time: a hundred
// replicas that fetch a table of 96 MB hold it once.
type sharedBlobs struct {
	from func(context.Context, release.Digest) ([]byte, error)

	mu   sync.Mutex // guards what follows
	open map[release.Digest]*sharedBlob
}

type sharedBlob struct {
	ready chan struct{} // closed when data or err is set
	data  []byte
	err   error
	users int
}

// get is a blob; done must be called when its bytes are used no longer.
func (b *sharedBlobs) get(ctx context.Context, d release.Digest) (data []byte, done func(), err error) {
	b.mu.Lock()
	blob, reading := b.open[d]
	if !reading {
		if b.open == nil {
			b.open = map[release.Digest]*sharedBlob{}
		}
		blob = &sharedBlob{ready: make(chan struct{})}
		b.open[d] = blob
	}
	blob.users++
	b.mu.Unlock()
	if !reading {
		// Those who wait for it too must not suffer when this caller leaves.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bodyWithin)
		blob.data, blob.err = b.from(ctx, d)
		cancel()
		close(blob.ready)
	}
	done = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if blob.users--; blob.users == 0 {
			delete(b.open, d)
		}
	}
	select {
	case <-blob.ready:
		err = blob.err
	case <-ctx.Done():
		err = errors.Join(errors.New("read blob: nobody waits for it"), ctx.Err())
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return blob.data, done, nil
}
