package discovery

import (
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/internal/fault"
)

// Options are all optional.
type Options struct {
	Log      *slog.Logger
	Registry prometheus.Registerer // for metrics; nil: none
}

// Open returns the Source that target names:
//
//	static:FILE                      a file of YAML or JSON, followed
//	consul://HOST:PORT[,…]?key=value a Consul agent; several are tried in turn
//
// Keys for Consul: token-file, datacenter, tls=true, ca, cert, key, server-name,
// ttl, deregister-after, plain-token=true. Without token-file, CONSUL_HTTP_TOKEN
// counts.
func Open(target string, opt Options) (Source, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	kind, rest, _ := strings.Cut(target, ":")
	switch kind {
	case "static":
		return openStatic(rest, opt)
	case "consul":
		return openConsul(strings.TrimPrefix(rest, "//"), opt)
	default:
		return nil, fault.New(fault.Invalid, "unknown_discovery", "discovery %q begins with no known kind", kind).
			WithHint("static:FILE or consul://HOST:PORT")
	}
}
