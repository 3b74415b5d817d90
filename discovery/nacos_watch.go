package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// nacosPoll to nacosPollTo is the time between two questions. Nacos has no
	// question that waits: it pushes over UDP, which is lost in silence.
	nacosPoll   = 2 * time.Second
	nacosPollTo = 3 * time.Second
	// nacosAfter a failure at most, anything up to it: everybody loses a registry in
	// the same second. It does not grow, so that the first answer is not waited for.
	nacosAfter = 7 * time.Second

	// keyID is where Nacos keeps the id of our own instances.
	keyID = "dispatch-id"
	// LabelHealth is a label of instances whose health a registry does not know.
	LabelHealth   = "registry-health"
	healthUnknown = "unknown"
)

// nacosHost is one instance in an answer.
type nacosHost struct {
	IP       string            `json:"ip"`
	Port     int               `json:"port"`
	Weight   *float64          `json:"weight"`
	Healthy  bool              `json:"healthy"`
	Enabled  *bool             `json:"enabled"`
	Metadata map[string]string `json:"metadata"`
}

// list asks a server for the instances of a service that may be called.
func (n *nacos) list(ctx context.Context, server int, service string) (answer, error) {
	text, err := n.call(ctx, server, http.MethodGet, "/v1/ns/instance/list", n.form("serviceName", service, "healthyOnly", "false"))
	if err != nil {
		return answer{}, n.wrap(err, server, service)
	}
	var said struct {
		Hosts     []nacosHost `json:"hosts"`
		Threshold bool        `json:"reachProtectionThreshold"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return answer{}, n.wrap(fmt.Errorf("the answer is no list: %w", err), server, service)
	}
	if said.Hosts == nil {
		return answer{}, n.wrap(errors.New("the answer has no list of hosts"), server, service)
	}
	if said.Threshold && len(said.Hosts) > 0 {
		n.metrics.problem(threshold)
	}
	var a answer
	r := newReader(n.Name(), service, n.dialect)
	for _, h := range said.Hosts {
		// One that people took out in the console is not listed, or not enabled.
		if h.Healthy && (h.Enabled == nil || *h.Enabled) {
			r.add(&a, h.entry(said.Threshold && len(said.Hosts) > 0))
		}
	}
	return a, nil
}

// entry reads what Nacos states beside the metadata. Under its protection threshold
// it calls everybody healthy, the dead too: then nobody's health is known. A weight
// of 0 drains, whatever the metadata says; others count for entries without one of
// ours, 1 being what Nacos gives to those that state none.
func (h nacosHost) entry(healthIsUnknown bool) entry {
	id := h.Metadata[keyID]
	return entry{id: id, host: strings.Trim(h.IP, "[]"), port: h.Port, pairs: h.Metadata, amend: func(pairs map[string]string) {
		for key := range pairs {
			if key == keyID || !isWord(key) { // preserved.register.source and others are no labels
				delete(pairs, key)
			}
		}
		if h.Weight != nil && (*h.Weight == 0 || *h.Weight != 1 && pairs[keyWeight] == "") {
			pairs[keyWeight] = strconv.FormatFloat(math.Round(*h.Weight*DefaultWeight), 'f', -1, 64)
		}
		if healthIsUnknown {
			pairs[LabelHealth] = healthUnknown
		}
	}}
}

// Watch asks every two to three seconds.
func (n *nacos) Watch(ctx context.Context, service string, out Observer) error {
	if err := checkService(service); err != nil {
		return err
	}
	w := &nacosWatch{nacos: n, belief: belief{source: n.Name(), service: service, probe: n.probe, metrics: n.metrics,
		out: newPublisher(n.Name(), service, out, n.metrics)}}
	for pause(ctx, w.step(ctx)) {
	}
	return nil
}

// nacosWatch is one Watch.
type nacosWatch struct {
	*nacos
	belief
	server int // who is asked
}

// step asks once, judges the answer and returns how long to wait before the next.
// An empty list says the same as that of a server which has just started and knows
// nobody yet, so another look comes after everybody has renewed.
func (w *nacosWatch) step(ctx context.Context) time.Duration {
	a, err := w.list(ctx, w.server, w.service)
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		w.failed(err)
		w.server = (w.server + 1) % len(w.options.hosts)
		return jitter(0, nacosAfter)
	case len(a.instances)+len(a.rejected) == 0 && len(w.known()) > 0 && (w.contradicted() || !w.gone(ctx, false)):
		return doubtPace
	}
	w.believe(ctx, a)
	return jitter(nacosPoll, nacosPollTo)
}
