package discovery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"dispatch.example/dispatch/internal/fault"
)

// DefaultWeight is the weight of an instance that states none.
const DefaultWeight = 100

// What an instance may carry: the narrowest of the registries, Consul, keeps 64
// pairs with keys of 128 and values of 512 bytes. Eight of the pairs are ours.
const (
	maxLabels    = 56
	maxLabelKey  = 128
	maxLabelText = 512
	maxPart      = 128    // bytes of a coordinate
	maxWeight    = 10_000 // sums over any list stay far from overflow
	maxID        = 200
)

// Coordinates say where an instance belongs. All four are always stated.
type Coordinates struct {
	Cluster string `json:"cluster"`
	Region  string `json:"region"`
	Env     string `json:"env"`
	Version string `json:"version"`
}

// Instance is one server of a service.
type Instance struct {
	// ID is unique among the instances of a service. When left empty, Register
	// makes it from service and address, so it is the same after a restart.
	ID      string `json:"id"`
	Service string `json:"service"` // NAME, or SERVER.NAME for one of several ports of a server
	// Address is where callers reach it. With a port alone, Register finds the host.
	Address Address `json:"address"`
	Coordinates
	Weight  *int              `json:"weight,omitempty"` // nil: DefaultWeight; 0: no new calls
	Labels  map[string]string `json:"labels,omitempty"`
	Started time.Time         `json:"started,omitzero"` // of the process; zero: unknown
	Source  string            `json:"source,omitempty"` // who told us
}

// Share is the weight that counts.
func (in Instance) Share() int {
	if in.Weight == nil {
		return DefaultWeight
	}
	return *in.Weight
}

// Equal says whether two instances are the same in everything.
func (in Instance) Equal(other Instance) bool {
	weights := in.Weight == other.Weight || in.Weight != nil && other.Weight != nil && *in.Weight == *other.Weight
	return in.ID == other.ID && in.Service == other.Service && in.Address == other.Address && weights &&
		in.Coordinates == other.Coordinates && maps.Equal(in.Labels, other.Labels) &&
		in.Started.Equal(other.Started) && in.Source == other.Source
}

func compareInstances(a, b Instance) int {
	if c := compare(a.ID, b.ID); c != 0 {
		return c
	}
	return compare(a.Address.String(), b.Address.String())
}

// Validate reports everything that keeps the instance from being used.
func (in Instance) Validate() error {
	var p fault.Problems
	if why := serviceProblem(in.Service); why != "" {
		p.Addf("service", "%s", why)
	}
	if in.Address.Host == "" || in.Address.Port == 0 {
		p.Addf("address", "is required as host:port")
	}
	if whose := foreignPort(in.Address.Port); whose != "" {
		p.Addf("address", "port %d is %s's: databases, caches and queues are no services of this layer, whose calls may be repeated and sent elsewhere", in.Address.Port, whose)
	}
	in.Coordinates.check(&p)
	if in.Weight != nil && (*in.Weight < 0 || *in.Weight > maxWeight) {
		p.Addf("weight", "must be 0 to %d, got %d", maxWeight, *in.Weight)
	}
	checkLabels(&p, in.Labels)
	return p.Err("invalid_instance", fmt.Sprintf("instance %s of %s cannot be used", in.Address, in.Service))
}

func (c Coordinates) check(p *fault.Problems) {
	for _, part := range []struct{ name, value string }{
		{"cluster", c.Cluster}, {"region", c.Region}, {"env", c.Env}, {"version", c.Version},
	} {
		switch {
		case strings.TrimSpace(part.value) == "":
			p.Addf(part.name, "is required; an instance states cluster, region, env and version")
		case part.value != strings.TrimSpace(part.value) || strings.ContainsFunc(part.value, unicode.IsControl) || !utf8.ValidString(part.value):
			p.Addf(part.name, "%q has blanks at an end, control characters or bytes that are no UTF-8", part.value)
		case strings.Contains(part.value, "*"):
			p.Addf(part.name, "%q: there are no wildcards", part.value)
		case len(part.value) > maxPart:
			p.Addf(part.name, "has %d bytes, at most %d are allowed", len(part.value), maxPart)
		}
	}
}

// foreignPort is whose port it is by IANA's registry, if that is no service to be
// called: a protocol with connections that mean something cannot be routed call by call.
func foreignPort(port uint16) string {
	switch port {
	case 1433:
		return "SQL Server"
	case 1521:
		return "Oracle"
	case 3306:
		return "MySQL"
	case 5432:
		return "PostgreSQL"
	case 5672:
		return "AMQP"
	case 6379:
		return "Redis"
	case 11211:
		return "memcached"
	case 27017:
		return "MongoDB"
	}
	return ""
}

// serviceProblem says what is wrong with the name of a service, empty if nothing.
func serviceProblem(name string) string {
	server, port, two := strings.Cut(name, ".")
	if name == "" {
		return "is required"
	}
	if !isWord(server) || two && !isWord(port) || len(name) > maxPart {
		return fmt.Sprintf("%q is not NAME or SERVER.NAME of letters, digits, - and _, with at most %d bytes", name, maxPart)
	}
	return ""
}

func checkService(name string) error {
	if why := serviceProblem(name); why != "" {
		return fault.New(fault.Invalid, "invalid_service", "service %s", why)
	}
	return nil
}

// isWord allows what every registry takes in a name and in a metadata key.
func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

func checkLabels(p *fault.Problems, labels map[string]string) {
	if len(labels) > maxLabels {
		p.Addf("labels", "there are %d, at most %d are kept", len(labels), maxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		path, value := "labels["+key+"]", labels[key]
		switch {
		case !isWord(key):
			p.Addf(path, "the key may have letters, digits, - and _ only; write %q", strings.Map(toWord, key))
		case len(key) > maxLabelKey:
			p.Addf(path, "the key has %d bytes, at most %d are kept", len(key), maxLabelKey)
		case isOurs(key):
			p.Addf(path, "the key is taken: it is a field of the instance")
		case strings.HasPrefix(key, "consul-"):
			p.Addf(path, "keys that begin with consul- belong to Consul")
		}
		if len(value) > maxLabelText || !utf8.ValidString(value) {
			p.Addf(path, "the value has %d bytes, at most %d of UTF-8 are kept", len(value), maxLabelText)
		}
	}
}

func toWord(r rune) rune {
	if isWord(string(r)) {
		return r
	}
	return '_'
}

// The metadata keys of a registry that hold fields of an instance.
const (
	keyCluster = "cluster"
	keyRegion  = "region"
	keyEnv     = "env"
	keyVersion = "version"
	keyWeight  = "weight"
	keyStarted = "started"
)

func isOurs(key string) bool {
	switch key {
	case keyCluster, keyRegion, keyEnv, keyVersion, keyWeight, keyStarted:
		return true
	}
	return false
}
