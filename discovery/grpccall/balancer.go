package grpccall

import (
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/outlier"
)

// policy is the name of the balancer in gRPC.
const policy = "dispatch_by_pick"

// serviceConfig is what the resolver tells gRPC to use. Making it registers the
// balancer while the program starts: balancer.Register writes to a map that gRPC
// reads without a lock, so that no later moment is safe.
var serviceConfig = registered(balancerBuilder{})

func registered(b balancerBuilder) string {
	balancer.Register(b)
	return `{"loadBalancingConfig":[{"` + b.Name() + `":{}}]}`
}

// balancerBuilder implements balancer.Builder and keeps nothing.
type balancerBuilder struct{}

// Name implements balancer.Builder.
func (balancerBuilder) Name() string { return policy }

// Build implements balancer.Builder.
func (balancerBuilder) Build(conn balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &connections{grpc: conn, all: map[discovery.Address]*connection{}}
}

// connections are those of one grpc.ClientConn, by address. It is the balancer and
// the picker in one: a call brings its address with it.
//
// mu is taken before the locks of gRPC, which calls it with none of them held.
type connections struct {
	grpc balancer.ClientConn

	mu     sync.Mutex // guards the rest
	all    map[discovery.Address]*connection
	states balancer.ConnectivityStateEvaluator
	number uint64 // of the rules that the connections were made under
	known  bool   // a number was told
}

// connection is one address.
type connection struct {
	balancer.SubConn
	state connectivity.State
	err   error // why there is none now
}

// Pick implements balancer.Picker: the connection to the instance of the call. gRPC
// asks again after each UpdateState when it is not ready.
func (c *connections) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	attempt, ok := info.Ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return balancer.PickResult{}, status.Error(codes.Internal, "a call came past the interceptors of grpccall.DialOptions")
	}
	address := attempt.to
	attempt.sent.Store(false) // gRPC asks again only as long as nothing was sent
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.all[address]
	if to == nil {
		var err error
		if to, err = c.open(address); err != nil {
			return balancer.PickResult{}, status.Errorf(codes.Unavailable, "open %s: %s", address, err)
		}
	}
	switch to.state {
	case connectivity.Ready:
		attempt.sent.Store(true)
		return balancer.PickResult{SubConn: to.SubConn}, nil
	case connectivity.TransientFailure:
		attempt.ownFault.Store(outlier.OwnFault(to.err))
		return balancer.PickResult{}, status.Errorf(codes.Unavailable, "connect to %s: %s", address, to.err)
	case connectivity.Idle:
		to.Connect()
	}
	return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
}

// open makes a connection for an address, which is told how it fares. An address
// that is no candidate has one too, until the candidates change: a pick may be a
// moment older or newer than they are.
func (c *connections) open(address discovery.Address) (*connection, error) {
	to := &connection{}
	//lint:ignore SA1019 what will go is several addresses for one connection; these have one
	sub, err := c.grpc.NewSubConn([]resolver.Address{{Addr: address.String()}}, balancer.NewSubConnOptions{
		StateListener: func(s balancer.SubConnState) { c.moved(address, to, s) },
	})
	if err != nil {
		return nil, err
	}
	to.SubConn = sub
	c.all[address] = to
	c.states.RecordTransition(connectivity.Shutdown, connectivity.Idle)
	return to, nil
}

// moved notes the state of a connection, and lets calls that wait look again.
func (c *connections) moved(address discovery.Address, to *connection, s balancer.SubConnState) {
	c.mu.Lock()
	if c.all[address] != to { // it was dropped
		c.mu.Unlock()
		return
	}
	c.states.RecordTransition(to.state, s.ConnectivityState)
	to.state, to.err = s.ConnectivityState, s.ConnectionError
	state := c.state()
	c.mu.Unlock()
	c.grpc.UpdateState(state)
}

// state is what gRPC shows of all. Without a connection it is idle, not failing.
func (c *connections) state() balancer.State {
	if len(c.all) == 0 {
		return balancer.State{ConnectivityState: connectivity.Idle, Picker: c}
	}
	return balancer.State{ConnectivityState: c.states.CurrentState(), Picker: c}
}

// UpdateClientConnState implements balancer.Balancer. It drops connections to
// instances that are gone, and all when the rules are newer.
func (c *connections) UpdateClientConnState(s balancer.ClientConnState) error {
	now, ok := s.ResolverState.Attributes.Value(candidatesKey{}).(*candidates)
	if !ok {
		return balancer.ErrBadResolverState
	}
	c.mu.Lock()
	rebuild := c.known && now.number > c.number
	c.known, c.number = true, max(c.number, now.number)
	for address, to := range c.all {
		// One that is being made is new already, and calls wait for it.
		if !now.addresses[address] || rebuild && to.state != connectivity.Connecting {
			c.drop(address, to)
		}
	}
	state := c.state()
	c.mu.Unlock()
	c.grpc.UpdateState(state)
	return nil
}

// drop lets the calls in a connection end, and takes no more.
func (c *connections) drop(address discovery.Address, to *connection) {
	c.states.RecordTransition(to.state, connectivity.Shutdown)
	delete(c.all, address)
	to.Shutdown()
}

// ResolverError implements balancer.Balancer. Our resolver reports none.
func (c *connections) ResolverError(error) {}

// UpdateSubConnState implements balancer.Balancer. Connections have listeners instead.
func (c *connections) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle implements balancer.Balancer. Calls connect.
func (c *connections) ExitIdle() {}

// Close implements balancer.Balancer.
func (c *connections) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, to := range c.all {
		c.drop(address, to)
	}
}
