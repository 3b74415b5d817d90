package grpccall

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery/caller"
)

// early is how much before the caller's the timer of an instance may end its call.
const early = 20 * time.Millisecond

// outcomeOf is what the end of an attempt says about its instance. message is what a
// unary call sent, nil for a stream.
func (c *call) outcomeOf(err error, message any) caller.Outcome {
	if err == nil {
		return caller.Answered
	}
	code, sent := status.Code(err), c.now.sent.Load()
	switch {
	case c.conn.GetState() == connectivity.Shutdown: // somebody closed it
		return caller.Canceled
	case code == codes.DeadlineExceeded || code == codes.Canceled:
		return c.cutShort(sent)
	case code == codes.Unavailable && !sent && !c.now.ownFault.Load():
		return caller.Unreachable
	case !sent, (code == codes.Internal || code == codes.ResourceExhausted) && unsendable(message, c.opts):
		return caller.Canceled
	case code == codes.Unavailable, code == codes.Internal, code == codes.Unknown, code == codes.DataLoss:
		return caller.Failed
	}
	return caller.Answered
}

// cutShort is the outcome of an attempt that was canceled or took too long, here or
// further on.
func (c *call) cutShort(sent bool) caller.Outcome {
	ends, limited := c.ctx.Deadline()
	switch {
	case errors.Is(c.ctx.Err(), context.Canceled):
		return caller.Canceled
	case limited && time.Until(ends) < early:
		return caller.Silent
	case !sent:
		return caller.Canceled
	}
	return caller.Failed
}

// unsendable says whether gRPC refused to send a message: it cannot be written, or is
// larger than the call allows. gRPC has the same status for that and for what an
// instance says, and a stats handler that could tell costs every call, so the message
// is written once more.
func unsendable(message any, opts []grpc.CallOption) bool {
	if _, prepared := message.(*grpc.PreparedMsg); prepared || message == nil {
		return false
	}
	most, subtype := math.MaxInt, proto.Name
	var codec encoding.CodecV2
	var before encoding.Codec // as they were before there were buffers
	for _, opt := range opts {
		switch o := opt.(type) {
		case grpc.MaxSendMsgSizeCallOption:
			most = o.MaxSendMsgSize
		case grpc.ContentSubtypeCallOption:
			subtype = o.ContentSubtype
		case grpc.ForceCodecV2CallOption:
			codec, before = o.CodecV2, nil
		case grpc.ForceCodecCallOption:
			codec, before = nil, o.Codec
		}
	}
	if codec == nil && before == nil {
		codec, before = encoding.GetCodecV2(subtype), encoding.GetCodec(subtype)
	}
	switch {
	case codec != nil:
		written, err := codec.Marshal(message)
		defer written.Free()
		return err != nil || written.Len() > most
	case before != nil:
		written, err := before.Marshal(message)
		return err != nil || len(written) > most
	}
	return true
}
