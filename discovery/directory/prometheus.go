package directory

import (
	"net"
	"net/http"
	"strconv"

	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/fault"
)

// Labels of an instance that say where its metrics are, if not at /metrics of its
// own port.
const (
	labelMetricsPort = "metrics-port" // of the same host
	labelMetricsPath = "metrics-path" // begins with /
)

// target is one group of Prometheus' http_sd.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// prometheus names every instance for scraping, those that are isolated too: their
// metrics say what is wrong. What is suspicious may be another process by now, and
// is left out. A failure keeps the list that Prometheus has.
func (s *Server) prometheus(w http.ResponseWriter, _ *http.Request) error {
	v, _ := s.d.View()
	heard := false
	for _, r := range v.Registries {
		heard = heard || r.OK || r.Services > 0
	}
	if !heard || !s.d.isComplete() {
		return fault.New(fault.Unavailable, "directory_starting", "the registries have not been heard yet").
			WithHint("the registries and their problems: dispatchctl services list, or the log of this control node")
	}
	all := []target{}
	for _, service := range v.Services {
		for i := range service.Instances {
			if in := &service.Instances[i]; in.Scale == nil || in.Scale.Why != route.Suspicious {
				all = append(all, in.target())
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(plain(all)) // whoever has gone asks again
	return nil
}

// target is where an instance is scraped. A port or path that is none does not count.
func (in *Instance) target() target {
	address := in.Address.String()
	if port, err := strconv.ParseUint(in.Labels[labelMetricsPort], 10, 16); err == nil && port > 0 {
		address = net.JoinHostPort(in.Address.Host, strconv.FormatUint(port, 10))
	}
	labels := map[string]string{"service": in.Service, "cluster": in.Cluster, "region": in.Region, "env": in.Env,
		"version": in.Version, "instance_id": in.ID, "source": in.Source}
	if path := in.Labels[labelMetricsPath]; len(path) > 1 && path[0] == '/' {
		labels["__metrics_path__"] = path
	}
	return target{[]string{address}, labels}
}
