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
	// Dialect maps what teams write in the registry to coordinates; nil: they write
	// ours. A file states coordinates itself and takes none.
	Dialect *Dialect
}

// Open returns the registry that target names:
//
//	static:FILE                      a file of YAML or JSON, followed
//	consul://HOST:PORT[,…]?key=value a Consul agent; several are tried in turn
//	nacos://HOST:PORT[,…]?key=value  a Nacos server of 1.3 to 2.x, by its open API
//
// Keys for both: token-file, tls=true, ca, cert, key, server-name,
// plain-token=true. For Consul: datacenter, ttl, deregister-after, check=http|tcp
// and check-path; without token-file, CONSUL_HTTP_TOKEN counts. For Nacos:
// namespace, group, cluster, username-file and password-file.
func Open(target string, opt Options) (Catalog, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	kind, rest, _ := strings.Cut(target, ":")
	switch kind {
	case "static":
		return openStatic(rest, opt)
	case "consul":
		return openConsul(strings.TrimPrefix(rest, "//"), opt)
	case "nacos":
		return openNacos(strings.TrimPrefix(rest, "//"), opt)
	default:
		return nil, fault.New(fault.Invalid, "unknown_discovery", "discovery %q begins with no known kind", kind).
			WithHint("static:FILE, consul://HOST:PORT or nacos://HOST:PORT")
	}
}
