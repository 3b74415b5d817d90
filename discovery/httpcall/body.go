package httpcall

import (
	"io"

	"dispatch.example/dispatch/discovery/caller"
)

// body is the body of an answer. How it ends is how the call ends.
type body struct {
	io.ReadCloser
	call *call
}

// Read reads, until the deadline. Who comes to read after that was slow itself, which
// says nothing about the instance.
func (b *body) Read(p []byte) (int, error) {
	late := b.call.ctx.Err() != nil
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		if b.call.pool.old.Load() {
			_ = b.ReadCloser.Close() // HTTP/2 then knows that its connection is idle
		}
		b.call.tell(caller.Answered)
		return n, io.EOF
	}
	outcome := b.call.outcomeOf(nil, err)
	if late {
		outcome = caller.Canceled
	}
	b.call.tell(outcome)
	return n, b.call.failure(outcome, nil, err)
}

// Close ends the call; what was not read is not missed.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.call.tell(caller.Answered)
	return err
}
