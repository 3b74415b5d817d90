package grpccall

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"dispatch.example/dispatch/discovery/caller"
)

// openFor is how long a stream without an answer must last to count as one that was
// opened well. It is longer than most errors take, and shorter than a probe's permit.
const openFor = time.Second

// stream returns the interceptor of streams.
func (d *Dialer) stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		c, err := d.begin(ctx, conn, method, opts)
		if err != nil {
			return nil, err
		}
		s := &stream{dialer: d, ctx: ctx, call: c}
		defer func() {
			if s.ClientStream == nil {
				c.guard.End()
			}
		}()
		d.address(c)
		for {
			c.aim()
			opened, err := streamer(c.now, desc, conn, method, opts...)
			s.took = c.guard.Took()
			if err == nil {
				s.begin(opened)
				return s, nil
			}
			outcome := c.outcomeOf(err, nil)
			c.guard.Done(ctx, outcome, s.took)
			if outcome == caller.Answered || outcome == caller.Canceled {
				return nil, err
			}
			if stop := d.again(ctx, c, outcome); stop != nil {
				return nil, c.failure(outcome, s.took, stop, err)
			}
		}
	}
}

// stream is one that was opened. Its call ends with its first answer.
type stream struct {
	grpc.ClientStream
	dialer *Dialer
	ctx    context.Context // as it came
	call   *call
	took   time.Duration // the opening

	mu    sync.Mutex // guards the rest, and what the call's guard has
	told  bool       // how the call ended
	ended bool
	timer *time.Timer
}

func (s *stream) begin(opened grpc.ClientStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ClientStream = opened
	s.timer = time.AfterFunc(openFor, s.answered)
}

// answered ends the call well, if it has not ended.
func (s *stream) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(caller.Answered)
}

func (s *stream) tell(o caller.Outcome) {
	if s.told {
		return
	}
	s.told = true
	s.timer.Stop()
	s.call.guard.Done(s.ctx, o, s.took)
	s.call.guard.End()
}

// end tells how the stream ended, once: its call, or its instance if that was
// answered before. It says whether that is a failure: a stream that was answered may
// last until its deadline.
func (s *stream) end(o caller.Outcome) (failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed = o == caller.Failed || o != caller.Answered && o != caller.Canceled && !s.told
	switch {
	case s.ended:
	case !s.told:
		s.tell(o)
	case failed:
		s.dialer.caller.Done(s.ctx, &s.call.guard.Pick, o)
	}
	s.ended = true
	return failed
}

// Header implements grpc.ClientStream.
func (s *stream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err == nil && md != nil {
		s.answered()
	}
	return md, err
}

// SendMsg implements grpc.ClientStream. What comes from the other side is io.EOF here,
// and RecvMsg says what it was; the rest is a message that cannot be sent.
func (s *stream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err != nil && err != io.EOF {
		s.end(caller.Canceled)
	}
	return err
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == nil:
		s.answered() // of a stream with one answer this is the end too
	case err == io.EOF:
		s.end(caller.Answered)
	default:
		if outcome := s.call.outcomeOf(err, nil); s.end(outcome) {
			return s.call.failure(outcome, s.call.guard.Took(), nil, err)
		}
	}
	return err
}
