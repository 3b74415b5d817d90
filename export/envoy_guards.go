package export

import (
	"net/http"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previous "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	percent "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dispatch.example/dispatch/discovery/rules"
)

// What callers do by default (ADR 0043), in the terms of Envoy.
const (
	callFor     = 3 * time.Second
	connectFor  = 500 * time.Millisecond
	ejectFor    = 30 * time.Second
	ejectAtMost = 5 * time.Minute
	rampFor     = 60 * time.Second // 30 s of nothing and 30 s of rise
	failedIn    = 5 * time.Second
	failedCalls = 20
	unreachable = 3  // connections in a row
	half        = 50 // percent: of calls that fail, and of instances that may be out
	retryBudget = 20 // percent
	noLimit     = 1_000_000_000
)

// guarded is a cluster that finds failing instances as callers do.
func guarded(name string) *cluster.Cluster {
	none := wrapperspb.UInt32(0)
	return &cluster.Cluster{
		Name:           name,
		ConnectTimeout: durationpb.New(connectFor),
		LbPolicy:       cluster.Cluster_ROUND_ROBIN, // the one with weights and slow start
		LbConfig: &cluster.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &cluster.Cluster_RoundRobinLbConfig{
			SlowStartConfig: &cluster.Cluster_SlowStartConfig{SlowStartWindow: durationpb.New(rampFor)}}},
		// Who is ejected serves when nobody else is left, not as soon as half are out.
		CommonLbConfig: &cluster.Cluster_CommonLbConfig{HealthyPanicThreshold: &percent.Percent{Value: 1}},
		OutlierDetection: &cluster.OutlierDetection{
			Interval:           durationpb.New(failedIn),
			BaseEjectionTime:   durationpb.New(ejectFor),
			MaxEjectionTime:    durationpb.New(ejectAtMost),
			MaxEjectionPercent: wrapperspb.UInt32(half),
			// No connection, or no answer: local origin.
			SplitExternalLocalOriginErrors:         true,
			ConsecutiveLocalOriginFailure:          wrapperspb.UInt32(unreachable),
			EnforcingConsecutiveLocalOriginFailure: wrapperspb.UInt32(100),
			// Answers of 500 and more: by their part of the calls, never in a row.
			FailurePercentageThreshold:      wrapperspb.UInt32(half + 1), // Envoy ejects at it, callers above half
			FailurePercentageRequestVolume:  wrapperspb.UInt32(failedCalls),
			FailurePercentageMinimumHosts:   wrapperspb.UInt32(2),
			EnforcingFailurePercentage:      wrapperspb.UInt32(100),
			EnforcingConsecutive_5Xx:        none,
			EnforcingSuccessRate:            none,
			EnforcingLocalOriginSuccessRate: none,
		},
		// Callers limit no calls under way. Unsaid, each of the three is 1,024.
		CircuitBreakers: &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{{
			MaxConnections: wrapperspb.UInt32(noLimit), MaxPendingRequests: wrapperspb.UInt32(noLimit), MaxRequests: wrapperspb.UInt32(noLimit),
			RetryBudget: &cluster.CircuitBreakers_Thresholds_RetryBudget{BudgetPercent: &percent.Percent{Value: retryBudget}}}}},
		// gRPC stays HTTP/2, and the rest what it came as.
		TypedExtensionProtocolOptions: map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": packed(
			&upstream.HttpProtocolOptions{UpstreamProtocolOptions: &upstream.HttpProtocolOptions_UseDownstreamProtocolConfig{
				UseDownstreamProtocolConfig: &upstream.HttpProtocolOptions_UseDownstreamHttpConfig{Http2ProtocolOptions: &core.Http2ProtocolOptions{}}}})},
	}
}

// routes send by weight. What may be sent twice, by its method or its key, is tried
// again once, at another instance of the version; anything else, also of gRPC, only if
// nobody had it.
func routes(w *route.WeightedCluster) []*route.Route {
	method := &route.HeaderMatcher{Name: ":method", HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{StringMatch: &matcher.StringMatcher{
		MatchPattern: &matcher.StringMatcher_SafeRegex{SafeRegex: &matcher.RegexMatcher{Regex: "GET|HEAD|OPTIONS|TRACE|PUT|DELETE"}}}}}
	key := &route.HeaderMatcher{Name: "idempotency-key", HeaderMatchSpecifier: &route.HeaderMatcher_PresentMatch{PresentMatch: true}}
	const unheard = "connect-failure,refused-stream"
	return []*route.Route{
		{Match: grpc(), Action: ownTime(send(w, unheard))},
		{Match: everyPath(method), Action: send(w, unheard+",reset,gateway-error")},
		{Match: everyPath(key), Action: send(w, unheard+",reset,gateway-error")},
		{Match: everyPath(), Action: send(w, unheard)},
	}
}

// everyPath matches all requests; headers narrow it.
func everyPath(headers ...*route.HeaderMatcher) *route.RouteMatch {
	return &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}, Headers: headers}
}

// grpc matches what gRPC sends.
func grpc() *route.RouteMatch {
	m := everyPath()
	m.Grpc = &route.RouteMatch_GrpcRouteMatchOptions{}
	return m
}

// ownTime leaves the deadline to grpc-timeout: Envoy cannot tell a stream, which has
// none of callers either, from a call.
func ownTime(r *route.Route_Route) *route.Route_Route {
	r.Route.Timeout = durationpb.New(0)
	r.Route.MaxStreamDuration = &route.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: durationpb.New(0)} // 0: as it says
	return r
}

func send(w *route.WeightedCluster, retryOn string) *route.Route_Route {
	return &route.Route_Route{Route: &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_WeightedClusters{WeightedClusters: w},
		Timeout:          durationpb.New(callFor),
		RetryPolicy: &route.RetryPolicy{RetryOn: retryOn, NumRetries: wrapperspb.UInt32(1), HostSelectionRetryMaxAttempts: 5,
			RetryHostPredicate: []*route.RetryPolicy_RetryHostPredicate{{Name: "envoy.retry_host_predicates.previous_hosts",
				ConfigType: &route.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: packed(&previous.PreviousHostsPredicate{})}}}},
	}}
}

// nowhere is the route of a rule that matches nobody: an error, never a wider search.
func nowhere(r rules.Rule) []*route.Route {
	text := "no instance of " + r.Service + " takes calls in " + r.Selector.Cluster + ", " + r.Selector.Region + ", " + r.Selector.Env + " by rule " + r.ID() + "\n"
	return []*route.Route{{Match: everyPath(),
		Action: &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{Status: http.StatusServiceUnavailable,
			Body: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: text}}}}}}
}

// packed is a message as Envoy's extensions have it. Only text that is no UTF-8
// cannot be packed, and these messages have none of others.
func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}
