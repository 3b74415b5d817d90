package grpccall

import (
	"context"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery/baggage"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/trace"
)

// The metadata keys, as gRPC spells names of headers. They are fixed.
var (
	baggageKey = strings.ToLower(baggage.Header)
	personKey  = strings.ToLower(baggage.PersonHeader)
	traceKey   = strings.ToLower(trace.Header)
	stateKey   = strings.ToLower(trace.StateHeader)
	retryKey   = strings.ToLower(guard.RetryHeader)
)

// ServerOptions put the lane of each call into its context, where it counts before
// the process's own, and a span of its trace, and whether it is a retry, and count
// the calls in work, for the load that heartbeats report; nil counts nothing.
func ServerOptions(inWork *atomic.Int64) []grpc.ServerOption {
	if inWork == nil {
		inWork = &atomic.Int64{}
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			inWork.Add(1)
			defer inWork.Add(-1)
			ctx, err := incoming(ctx)
			if err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			inWork.Add(1)
			defer inWork.Add(-1)
			ctx, err := incoming(stream.Context())
			if err != nil {
				return err
			}
			return handle(srv, within{stream, ctx})
		}),
	}
}

// StripBaggage takes the lane out of calls that come from outside, and that they are
// retries: who may be routed where is not theirs to say. Baggage of others stays, and
// so does the trace, of which few may say that it is recorded: trace.Door. Give it
// before ServerOptions, and before stats handlers of OpenTelemetry, which would believe
// the flag.
func StripBaggage() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.StatsHandler(&strip{door: trace.NewDoor()})}
}

// strip is a stats handler because those read metadata before any interceptor does.
type strip struct{ door *trace.Door }

// TagRPC implements stats.Handler.
func (s *strip) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return stripped(ctx, s.door)
}

// TagConn implements stats.Handler.
func (s *strip) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (s *strip) HandleRPC(context.Context, stats.RPCStats) {}

// HandleConn implements stats.Handler.
func (s *strip) HandleConn(context.Context, stats.ConnStats) {}

func incoming(ctx context.Context) (context.Context, error) {
	person := ""
	if by := metadata.ValueFromIncomingContext(ctx, personKey); len(by) > 0 {
		person = by[0]
	}
	within, err := baggage.In(ctx, metadata.ValueFromIncomingContext(ctx, baggageKey), person)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	// Several of one name are one list, of which only a tracestate may be one.
	parent := strings.Join(metadata.ValueFromIncomingContext(ctx, traceKey), ",")
	within = trace.In(within, parent, strings.Join(metadata.ValueFromIncomingContext(ctx, stateKey), ","))
	if metadata.ValueFromIncomingContext(ctx, retryKey) != nil {
		within = guard.AsRetry(within)
	}
	return within, nil
}

func stripped(ctx context.Context, door *trace.Door) context.Context {
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	rest := baggage.Strip(md[baggageKey])
	delete(md, personKey)
	delete(md, baggageKey)
	delete(md, retryKey)
	if rest != "" {
		md[baggageKey] = []string{rest}
	}
	if passed := door.Pass(strings.Join(md[traceKey], ",")); passed != "" {
		md[traceKey] = []string{passed}
	} else {
		delete(md, traceKey)
		delete(md, stateKey)
	}
	return metadata.NewIncomingContext(ctx, md)
}

// within is a stream with another context.
type within struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (w within) Context() context.Context { return w.ctx }
