// Package guard is what stands around each call to a service: a deadline, a breaker,
// retries within a budget, and a value to go on with when all else fails. It knows no
// transport; httpcall and grpccall are built on it.
//
//	g.Begin ──► breaker open? ──yes──► *Open (and the degraded value, by the transport)
//	   │ no
//	   ▼
//	Call.Next: pick, not where this call failed before ──► transport sends ──► Call.Done(outcome)
//	   ▲                                                                         │
//	   └──── retry: idempotent, failed, time left, budget left ◄─────────────────┘
//
// What a failure does: an instance that cannot be reached or fails is another one's
// turn, once (Settings.Retries), while retries are at most a fifth of all calls; a
// service that fails as a whole opens its breaker, and calls to it end at once with
// *Open. A call without a deadline of its own gets one. A call that its caller gave
// up counts for nothing.
//
// It owns no goroutine. A guarded call costs no allocation here.
package guard
