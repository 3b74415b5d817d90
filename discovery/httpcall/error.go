package httpcall

import (
	"fmt"
	"time"

	"dispatch.example/dispatch/discovery/caller"
)

// Error is a call that failed after its instance was picked.
type Error struct {
	Service  string
	Pick     caller.Pick // of the last attempt
	Attempts int
	Outcome  caller.Outcome // of the last attempt
	Took     time.Duration  // the last attempt, until its answer began or failed
	Stop     error          // why there was no other attempt, a guard.Stop or an error of the pick; nil: it broke in the body
	Err      error
}

// failure is the Error of a call.
func (c *call) failure(o caller.Outcome, stop, err error) *Error {
	return &Error{Service: c.req.URL.Host, Pick: c.guard.Pick, Attempts: c.guard.Attempts, Outcome: o, Took: c.took, Stop: stop, Err: err}
}

// Error names service, instance, record and attempts, and the next step.
func (e *Error) Error() string {
	text := fmt.Sprintf("call %s at %s: %s after %s: %s", e.Service, e.Pick.Instance.Address, e.Outcome, e.Took.Round(time.Millisecond), e.Err)
	if e.Attempts > 1 {
		text += fmt.Sprintf("; attempt %d", e.Attempts)
	}
	if e.Stop != nil {
		text += "; " + e.Stop.Error()
	}
	if id := e.Pick.ID(); id != "" {
		return text + "; record " + id + "\ntry: dispatchctl explain call " + id
	}
	return text
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout says whether the cause is one; package url asks for it.
func (e *Error) Timeout() bool {
	t, ok := e.Err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}
