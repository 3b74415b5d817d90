package peers

import (
	"encoding/json"
	"errors"
	"fmt"

	v3orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
)

// GRPC picks with a balancer of grpc-go; config is its service config. Reports of
// load that give the nodes their weights are sent before the first pick, to a
// balancer that takes them.
func GRPC(name, config string, n int) (Picker, func(), error) {
	builder := balancer.Get(name)
	if builder == nil {
		return nil, nil, fmt.Errorf("grpc-go has no balancer %s", name)
	}
	cc := &clientConn{}
	b := builder.Build(cc, balancer.BuildOptions{})
	state := balancer.ClientConnState{}
	for _, one := range nodes(n) {
		state.ResolverState.Endpoints = append(state.ResolverState.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: one.host}}})
	}
	if parser, ok := builder.(balancer.ConfigParser); ok {
		parsed, err := parser.ParseConfig(json.RawMessage(config))
		if err != nil {
			return nil, nil, fmt.Errorf("config of %s: %w", name, err)
		}
		state.BalancerConfig = parsed
	}
	if err := b.UpdateClientConnState(state); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", name, err)
	}
	cc.ready()
	if err := cc.report(n); err != nil {
		return nil, nil, err
	}
	if err := b.UpdateClientConnState(state); err != nil { // weights count from here
		return nil, nil, fmt.Errorf("update %s: %w", name, err)
	}
	return cc.pick, b.Close, nil
}

// clientConn is what a balancer sees of grpc-go, with connections to nowhere.
type clientConn struct {
	balancer.ClientConn
	conns  []*subConn
	picker balancer.Picker
}

func (c *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc := &subConn{host: addrs[0].Addr, state: opts.StateListener}
	c.conns = append(c.conns, sc)
	return sc, nil
}

func (c *clientConn) UpdateState(s balancer.State)          { c.picker = s.Picker }
func (c *clientConn) ResolveNow(resolver.ResolveNowOptions) {}
func (c *clientConn) Target() string                        { return "order-core" }
func (c *clientConn) MetricsRecorder() stats.MetricsRecorder {
	return noMetrics{}
}

// noMetrics stands for a process without metrics.
type noMetrics struct {
	stats.UnimplementedMetricsRecorder
}

// ready says of every connection that it is.
func (c *clientConn) ready() {
	for i := 0; i < len(c.conns); i++ { // more may come on the way
		sc := c.conns[i]
		sc.state(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
		sc.state(balancer.SubConnState{ConnectivityState: connectivity.Ready})
		if sc.health != nil {
			sc.health(balancer.SubConnState{ConnectivityState: connectivity.Ready})
		}
	}
}

// report picks until every node has said what it can take: weights are the requests
// a second at full use.
func (c *clientConn) report(n int) error {
	weights := map[string]int{}
	for _, one := range nodes(n) {
		weights[one.host] = one.weight
	}
	for range 20 * n {
		if len(weights) == 0 {
			return nil
		}
		result, err := c.picker.Pick(balancer.PickInfo{})
		if err != nil {
			return fmt.Errorf("first pick: %w", err)
		}
		host := result.SubConn.(*subConn).host
		if result.Done != nil && weights[host] > 0 {
			result.Done(balancer.DoneInfo{ServerLoad: &v3orcapb.OrcaLoadReport{RpsFractional: float64(weights[host]), ApplicationUtilization: 1}})
		}
		delete(weights, host)
	}
	return errors.New("some nodes were never picked")
}

func (c *clientConn) pick() (string, error) {
	result, err := c.picker.Pick(balancer.PickInfo{})
	if err != nil {
		return "", err
	}
	if result.Done != nil {
		result.Done(balancer.DoneInfo{})
	}
	return result.SubConn.(*subConn).host, nil
}

// subConn is one connection.
type subConn struct {
	balancer.SubConn
	host          string
	state, health func(balancer.SubConnState)
}

func (*subConn) Connect()  {}
func (*subConn) Shutdown() {}

func (s *subConn) RegisterHealthListener(listener func(balancer.SubConnState)) { s.health = listener }
