package grpccall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
)

// Error is a call that failed after its instance was picked. Its status is the one
// that gRPC gave, with its details.
type Error struct {
	Service  string
	Pick     caller.Pick // of the last attempt
	Attempts int
	Outcome  caller.Outcome // of the last attempt
	Took     time.Duration  // the last attempt
	Stop     error          // why there was no other attempt, a guard.Stop or an error of the pick
	Err      error
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

// GRPCStatus implements what package status asks errors for.
func (e *Error) GRPCStatus() *status.Status { return status.Convert(e.Err) }

// unmade is a call that was not made, with its status.
type unmade struct{ error }

// Unwrap is why.
func (e unmade) Unwrap() error { return e.error }

// GRPCStatus implements what package status asks errors for.
func (e unmade) GRPCStatus() *status.Status {
	if _, ok := errors.AsType[*route.NoMatch](e.error); ok {
		return status.New(codes.FailedPrecondition, e.Error())
	}
	if errors.Is(e.error, context.Canceled) || errors.Is(e.error, context.DeadlineExceeded) {
		return status.FromContextError(e.error)
	}
	return status.New(codes.Unavailable, e.Error())
}
