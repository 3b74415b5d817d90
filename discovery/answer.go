package discovery

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"
)

// answer is what a registry says about a service.
type answer struct {
	instances []Instance
	rejected  []Rejected
	index     uint64 // of Consul; 0: missing or no number
}

// problem is a failure to get one, with its word for metrics.
type problem struct {
	kind problemKind
	err  error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

// kindIn is the word for a failure, unreachable for one that has none.
func kindIn(err error) problemKind {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.kind
	}
	return unreachable
}

// entry is what a registry says about one instance.
type entry struct {
	id    string // empty: made of service and address
	host  string
	port  int
	pairs map[string]string             // metadata as written
	amend func(pairs map[string]string) // adds to pairs in our keys; nil: nothing
}

// reader turns the entries of one service into instances.
type reader struct {
	source  string
	service string            // the name as the dialect reads it
	named   map[string]string // coordinates that the name states
	dialect *translator
}

func newReader(source, name string, dialect *translator) reader {
	service, named := dialect.split(name)
	return reader{source: source, service: service, named: named, dialect: dialect}
}

// add turns an entry into an instance, or rejects it.
func (r reader) add(a *answer, e entry) {
	in, err := r.read(e)
	if err != nil {
		why := strings.TrimSpace(err.Error())
		a.rejected = append(a.rejected, Rejected{ID: in.ID, Address: net.JoinHostPort(e.host, strconv.Itoa(e.port)), Why: why})
		return
	}
	a.instances = append(a.instances, in)
}

func (r reader) read(e entry) (Instance, error) {
	in := Instance{ID: e.id, Service: r.service, Source: r.source}
	address, err := newAddress(e.host, e.port)
	if err != nil {
		return in, err
	}
	in.Address = address
	if in.ID == "" {
		in.ID = fmt.Sprintf("%s-%s-%d", in.Service, address.Host, address.Port) // as filled does
	}
	pairs, err := r.dialect.translate(e.pairs, r.named)
	if err != nil {
		return in, err
	}
	if e.amend != nil {
		pairs = maps.Clone(pairs)
		if pairs == nil {
			pairs = map[string]string{}
		}
		e.amend(pairs)
	}
	if err := in.readMeta(pairs); err != nil {
		return in, err
	}
	return in, in.Validate()
}

// meta is how a registry that keeps pairs of text keeps the fields of an instance.
func (in Instance) meta() map[string]string {
	pairs := map[string]string{keyCluster: in.Cluster, keyRegion: in.Region, keyEnv: in.Env, keyVersion: in.Version}
	if !in.Started.IsZero() {
		pairs[keyStarted] = in.Started.UTC().Format(time.RFC3339Nano)
	}
	if in.Weight != nil {
		pairs[keyWeight] = strconv.Itoa(*in.Weight)
	}
	maps.Copy(pairs, in.Labels)
	return pairs
}

// readMeta is the reverse of meta.
func (in *Instance) readMeta(pairs map[string]string) error {
	in.Coordinates = Coordinates{pairs[keyCluster], pairs[keyRegion], pairs[keyEnv], pairs[keyVersion]}
	if text, stated := pairs[keyWeight]; stated {
		weight, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("weight %q is no whole number", text)
		}
		in.Weight = &weight
	}
	if text := pairs[keyStarted]; text != "" {
		started, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return fmt.Errorf("started %q is no time", text)
		}
		in.Started = started
	}
	for key, value := range pairs {
		if isOurs(key) {
			continue
		}
		if in.Labels == nil {
			in.Labels = map[string]string{}
		}
		in.Labels[key] = value
	}
	return nil
}
