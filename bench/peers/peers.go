// Package peers measures a pick of dispatch beside those of two libraries that Go
// services use: the selectors of go-kratos and the balancers of grpc-go; and what
// the guards of failsafe-go cost around a call (guard_test.go). It is a module of its
// own, so that the product never depends on what it is compared with.
//
//	go test ./...              all of them follow weights, in this set-up
//	go test -bench . ./...     what a pick costs, by turns in one run
//
// A pick here is everything that the library asks of a caller for one call: kratos
// and grpc-go want to be told when the call is done, so that is measured too, with
// nothing to report. Ours chooses between two versions by a rule (70/30) before it
// chooses an instance; the others choose among one list. Nobody connects anywhere:
// grpc-go's balancer is driven through a ClientConn that says of every connection
// that it is ready, and has load reports from which it makes the same weights.
//
// What is not measured: keeping up with load. P2C looks at answer times at each pick
// and grpc-go's weights come from the servers, where ours are lowered ahead, when a
// table is compiled.
package peers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/selector"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
)

// Picker makes one pick and gives the address that was chosen.
type Picker func() (string, error)

// node is one of the n servers that everybody chooses from.
type node struct {
	host   string
	weight int
}

// nodes have the weights 50, 100 and 200 in turn.
func nodes(n int) (all []node) {
	for i := range n {
		all = append(all, node{fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), []int{50, 100, 200}[i%3]})
	}
	return all
}

// Dispatch picks by a rule of 70/30 between two versions that have half of the nodes each.
func Dispatch(n int) Picker {
	home := discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod", Version: "v1"}
	in := route.Input{Service: "order-core", Home: home, Number: 1, Rules: []rules.Rule{{Service: "order-core",
		Selector: rules.Selector{Cluster: home.Cluster, Region: home.Region, Env: home.Env},
		Strategy: rules.Strategy{Version: "v1", Weight: 70}, Fallback: &rules.Fallback{Version: "v2", Weight: 30}}}}
	for i, one := range nodes(n) {
		inst := discovery.Instance{ID: one.host, Service: in.Service, Coordinates: home, Weight: &one.weight,
			Address: discovery.Address{Host: one.host, Port: 8080}}
		inst.Version = []string{"v1", "v2"}[i%2]
		in.Instances = append(in.Instances, inst)
	}
	table := route.Compile(in)
	return func() (string, error) {
		choice, err := table.Pick(route.Query{}, rand.Uint64())
		if err != nil {
			return "", err
		}
		return choice.Instance.Address.Host, nil
	}
}

// Kratos picks with a selector of go-kratos.
func Kratos(s selector.Selector, n int) Picker {
	var all []selector.Node
	for _, one := range nodes(n) {
		all = append(all, selector.NewNode("grpc", one.host, &registry.ServiceInstance{
			Name: "order-core", Metadata: map[string]string{"weight": strconv.Itoa(one.weight)}}))
	}
	s.Apply(all)
	ctx := context.Background()
	return func() (string, error) {
		chosen, done, err := s.Select(ctx)
		if err != nil {
			return "", err
		}
		done(ctx, selector.DoneInfo{})
		return chosen.Address(), nil
	}
}
