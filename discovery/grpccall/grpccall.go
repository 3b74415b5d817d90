// Package grpccall sends gRPC calls to services by their names: a resolver and
// balancer for targets dispatch:///order-core over a caller.Caller.
package grpccall
