// Package grpccall sends gRPC calls to services by their names, and takes the lane
// and the trace of those that come in:
//
//	opts := append(grpccall.DialOptions(c), grpc.WithTransportCredentials(creds)) // c is a *caller.Caller
//	conn, err := grpc.NewClient("dispatch:///order-core", opts...)
//
//	grpc.NewServer(grpccall.ServerOptions(&inWork)...)
//
// An interceptor picks for each attempt, by the lane of the call's context, and sends
// the lane on as W3C baggage and the trace as W3C trace context. The balancer only
// keeps connections:
//
//	call ── interceptor: guard, pick ──► context with an address ── balancer ──► its connection
//	caller ── Candidates ──► resolver ── who is there, number of the rules ──► balancer
//
// A connection is made when the first call needs it, so one that was dialled has no
// connection and is not Ready before; do not wait for that. It is closed, after the
// calls in it, when its instance is gone, and once when the service's rules have
// changed. It counts as broken when what was sent is not acknowledged for 3 s.
//
// Each call is guarded, see package guard; with settings, log and metrics:
//
//	g, err := guard.New(c, guard.Options{…})
//	d := grpccall.NewGuarded(c, g)
//	d.Idempotent = []string{"/advice.Advice/"}
//	d.Degraded = map[string]grpccall.Degraded{"advice": noAdvice}
//	conn, err := grpc.NewClient("dispatch:///advice", d.DialOptions()...)
//
// How an attempt ends, for guard and caller:
//
//	Unavailable without a connection: 500 ms to
//	  dial, 1 s with TLS and HTTP/2, refused       unreachable   tried again: nothing was sent
//	DeadlineExceeded, and the deadline passed      silent        no time to try again
//	Unavailable, Internal, Unknown, DataLoss;
//	  DeadlineExceeded and Canceled of somebody
//	  further on, while the call has time          failed        tried again, if idempotent
//	the caller gave up, or closed the client       canceled      says nothing
//	nothing was sent, by a fault of ours: no file
//	  descriptor, port or memory for a dial; a
//	  message that cannot be written or is larger
//	  than the call may send; a bad key            canceled      says nothing
//	all else, also ResourceExhausted               answered
//
// A deadline of the caller's own, also one that came with the call that it serves, by
// grpc-timeout, may leave less than the service takes (its deadline, or 800 ms, what is
// slow). When that passes it is silent to the caller, and says nothing about instance
// and breaker either.
//
// ResourceExhausted is a quota of the callee or a message that is too large: no other
// instance would do better.
//
// A retry says so to the instance, where ServerOptions note it: the calls for a call
// that is a retry are not tried again themselves, and pass the mark on.
//
// No method is idempotent unless Dialer.Idempotent or the call option Idempotent says
// so: gRPC has no word for it that reaches a client.
//
// A stream has no deadline but its own, and no degraded value. Its opening is tried
// again like a call; what was sent on it never is. For its guard it is a call that
// ends with the first answer, or after a second without one: how long it lasts says
// nothing. When it breaks later, only its instance is told.
//
// Goroutines: one for each resolver, which gRPC starts and ends with the connection.
//
// A call that failed is an *Error with the status that it got; one that was not made
// is Unavailable, with the *guard.Open in it. A pick without a match is
// FailedPrecondition, and the *route.NoMatch in it is found by errors.As; a caller
// without lists is Unavailable. Calls that wait for ready do not wait for an instance
// that is away. A lane that cannot be read is InvalidArgument.
package grpccall

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
)

// scheme is that of targets: dispatch:///SERVICE.
const scheme = "dispatch"

const (
	// connectTimeout is what dialling, TLS and HTTP/2 may take together. A process that
	// is stopped accepts and says nothing: the call goes elsewhere while there is time.
	connectTimeout = time.Second
	// maxBackoff keeps an instance that came back from being left alone for long; no
	// connection is tried without a call.
	maxBackoff = 5 * time.Second
	// silentFor is how long the other side of a connection may leave unacknowledged what
	// was sent. Without it Linux sends again for a quarter of an hour.
	silentFor = 3 * time.Second
	// pingEvery is more than the 5 minutes between pings that gRPC servers put up with:
	// pings find nobody here, but with them gRPC sets TCP_USER_TIMEOUT to silentFor.
	pingEvery = 6 * time.Minute
)

// Caller chooses instances and says who they are. A *caller.Caller is one.
type Caller interface {
	guard.Caller
	Candidates(service string) (all []discovery.Instance, number uint64, changed <-chan struct{})
}

var _ Caller = (*caller.Caller)(nil)

// Dialer makes clients call dispatch:///SERVICE. It may be used for many.
type Dialer struct {
	// Idempotent are full names of methods (/package.Service/Method), or of gRPC
	// services (/package.Service/) for all of theirs, that may be called twice although
	// the first call may have had its effect. Set it before the first call.
	Idempotent []string
	// Degraded are the values of services, or of full names of methods, which count
	// first, whose calls may do without them. Set it before the first call.
	Degraded map[string]Degraded

	caller Caller
	guard  *guard.Guard
}

// New returns a Dialer that guards with the default settings.
func New(c Caller) *Dialer { return NewGuarded(c, guard.Default(c)) }

// NewGuarded is New with a Guard of the same caller, which may be that of HTTP calls
// too.
func NewGuarded(c Caller, g *guard.Guard) *Dialer { return &Dialer{caller: c, guard: g} }

// Guard is what the calls are guarded by.
func (d *Dialer) Guard() *guard.Guard { return d.guard }

// DialOptions are those of a Dialer with the default settings.
func DialOptions(c Caller) []grpc.DialOption { return New(c).DialOptions() }

// DialOptions make a client call dispatch:///SERVICE. Credentials are to be added.
// Interceptors that are added after them see each attempt with its instance; those
// before see the call, and may make several.
func (d *Dialer) DialOptions() []grpc.DialOption {
	wait := backoff.DefaultConfig
	wait.MaxDelay = maxBackoff
	// Probes find a peer that is gone while a stream waits, in 8 s.
	dialer := net.Dialer{Timeout: guard.DialLimit, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 3}}
	return []grpc.DialOption{
		grpc.WithResolvers(resolverBuilder{d.caller}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: silentFor}),
		grpc.WithChainUnaryInterceptor(d.unary()),
		grpc.WithChainStreamInterceptor(d.stream()),
	}
}

// mayRepeat says whether a call may be made twice.
func (d *Dialer) mayRepeat(method string, opts []grpc.CallOption) bool {
	for _, opt := range opts {
		if _, ok := opt.(idempotent); ok {
			return true
		}
	}
	return slices.Contains(d.Idempotent, method) || slices.Contains(d.Idempotent, method[:strings.LastIndexByte(method, '/')+1])
}

// Idempotent is a call option: this call may be made twice.
func Idempotent() grpc.CallOption { return idempotent{} }

type idempotent struct{ grpc.EmptyCallOption }

// PickTo is a call option that tells which instance was picked last.
func PickTo(pick *caller.Pick) grpc.CallOption { return pickTo{pick: pick} }

type pickTo struct {
	grpc.EmptyCallOption
	pick *caller.Pick
}
