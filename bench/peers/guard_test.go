package peers

import (
	"context"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"

	"dispatch.example/dispatch/discovery/breaker"
)

// BenchmarkGuards is what guards cost around a call that does nothing, in time and
// allocations: those of failsafe-go in an executor that is made once, as it is meant
// to be used, and in one that is made for each call, as a deadline or a service that
// differs from call to call asks for; and our breaker, which is a part of ours.
//
//	go test -bench Guards -benchmem ./...
func BenchmarkGuards(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	call := func(failsafe.Execution[any]) (any, error) { return nil, nil }
	retry := retrypolicy.NewBuilder[any]().WithMaxRetries(1).Build()
	breaks := circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 20, 5*time.Second).WithDelay(30 * time.Second).WithSuccessThreshold(3).Build()
	limit := timeout.New[any](3 * time.Second)
	once := failsafe.With[any](retry, breaks, limit)
	for name, run := range map[string]func() (any, error){
		"failsafe, executor made once": func() (any, error) { return once.WithContext(ctx).GetWithExecution(call) },
		"failsafe, executor for a call": func() (any, error) {
			return failsafe.With[any](retry, breaks, limit).WithContext(ctx).GetWithExecution(call)
		},
		"failsafe, without timeout": func() (any, error) { return failsafe.With[any](retry, breaks).WithContext(ctx).GetWithExecution(call) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("our breaker", func(b *testing.B) {
		ours := breaker.New(breaker.Settings{})
		b.ReportAllocs()
		for b.Loop() {
			p, ok := ours.Allow(time.Now())
			if !ok {
				b.Fatal("open")
			}
			ours.Done(p, false, time.Millisecond, time.Now())
		}
	})
}
