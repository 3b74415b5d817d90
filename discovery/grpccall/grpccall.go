// Package grpccall sends gRPC calls to services by their names, and takes the lane
// of those that come in:
//
//	opts := append(grpccall.DialOptions(c), grpc.WithTransportCredentials(creds)) // c is a *caller.Caller
//	conn, err := grpc.NewClient("dispatch:///order-core", opts...)
//
//	grpc.NewServer(grpccall.ServerOptions(&inWork)...)
//
// An interceptor picks once for each call, by the lane of the call's context, and
// sends the lane on as W3C baggage. The balancer only keeps connections:
//
//	call ── interceptor: Pick ──► context with an address ── balancer ──► its connection
//	caller ── Candidates ──► resolver ── who is there, number of the rules ──► balancer
//
// A connection is made when the first call needs it, so one that was dialled has no
// connection and is not Ready before; do not wait for that. It is closed, after the
// calls in it, when its instance is gone, and once when the service's rules have
// changed.
//
// Goroutines: one for each resolver, which gRPC starts and ends with the connection.
//
// What fails is told and not tried again. A pick without a match is
// FailedPrecondition, and the *route.NoMatch in it is found by errors.As; an
// instance that cannot be connected to within 500 ms, or a caller without lists, is
// Unavailable, also for calls that wait for ready: they would wait for the very
// instance that is away. A lane that cannot be read is InvalidArgument.
package grpccall

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/baggage"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
)

// scheme is that of targets: dispatch:///SERVICE.
const scheme = "dispatch"

const (
	// dialTimeout is what callers give a connection: three that fail put an instance out.
	dialTimeout = 500 * time.Millisecond
	// connectTimeout is what TLS and HTTP/2 may take on top.
	connectTimeout = 3 * time.Second
	// maxBackoff keeps an instance that came back from being left alone for long; no
	// connection is tried without a call.
	maxBackoff = 5 * time.Second
)

// Caller chooses instances and says who they are. A *caller.Caller is one.
type Caller interface {
	Pick(ctx context.Context, service string) (caller.Pick, error)
	// Lane is the one that Pick goes by: that of the traffic, else the process's own.
	Lane(ctx context.Context) route.Query
	Candidates(service string) (all []discovery.Instance, number uint64, changed <-chan struct{})
}

var _ Caller = (*caller.Caller)(nil)

// DialOptions make a client call dispatch:///SERVICE. Credentials are to be added.
// Interceptors that are added after them see the call with its instance; those
// before may call several times, each with a pick of its own.
func DialOptions(c Caller) []grpc.DialOption {
	i := interceptor{c}
	wait := backoff.DefaultConfig
	wait.MaxDelay = maxBackoff
	return []grpc.DialOption{
		grpc.WithResolvers(resolverBuilder{c}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext(ctx, "tcp", address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: connectTimeout}),
		grpc.WithChainUnaryInterceptor(i.unary()),
		grpc.WithChainStreamInterceptor(i.stream()),
	}
}

// interceptor picks. Guards belong here, around what it calls.
type interceptor struct{ caller Caller }

func (i interceptor) unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, err := i.outgoing(ctx, conn, opts)
		if err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	}
}

func (i interceptor) stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, err := i.outgoing(ctx, conn, opts)
		if err != nil {
			return nil, err
		}
		return streamer(ctx, desc, conn, method, opts...)
	}
}

type addressKey struct{}

// outgoing is the context of a call with its instance and its lane.
func (i interceptor) outgoing(ctx context.Context, conn *grpc.ClientConn, opts []grpc.CallOption) (context.Context, error) {
	service, ok := strings.CutPrefix(conn.CanonicalTarget(), scheme+":///")
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "target %s is not dispatch:///SERVICE", conn.Target())
	}
	pick, err := i.caller.Pick(ctx, service)
	if err != nil {
		return nil, pickError{err}
	}
	for _, opt := range opts {
		if to, ok := opt.(pickTo); ok {
			*to.pick = pick
		}
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if lane := baggage.Out(ctx, i.caller.Lane(ctx), md[baggageKey]); lane != "" {
		if md == nil {
			md = metadata.MD{}
		}
		md[baggageKey] = []string{lane}
	} else {
		delete(md, baggageKey)
	}
	ctx = metadata.NewOutgoingContext(ctx, md)
	return context.WithValue(ctx, addressKey{}, pick.Instance.Address), nil
}

// PickTo is a call option that tells which instance was picked.
func PickTo(pick *caller.Pick) grpc.CallOption { return pickTo{pick: pick} }

type pickTo struct {
	grpc.EmptyCallOption
	pick *caller.Pick
}

// pickError is a pick that failed, with its status.
type pickError struct{ error }

// Unwrap is what the caller said.
func (e pickError) Unwrap() error { return e.error }

// GRPCStatus implements what package status asks errors for.
func (e pickError) GRPCStatus() *status.Status {
	if _, ok := errors.AsType[*route.NoMatch](e.error); ok {
		return status.New(codes.FailedPrecondition, e.Error())
	}
	return status.New(codes.Unavailable, e.Error())
}
