package directory

import (
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
)

// Service is one service as people see it.
type Service struct {
	Name      string     `json:"name"`
	Instances []Instance `json:"instances"`
}

// Instance is one entry and what the directory thinks of it.
type Instance struct {
	discovery.Instance
	Load    discovery.Load `json:"load"`
	Scale   *route.Scale   `json:"scale,omitempty"`
	Sources []string       `json:"sources"` // every registry that names its address
}

// View is everything that the directory knows at one moment. It is never changed.
type View struct {
	At         time.Time `json:"at"`
	Region     string    `json:"region"`
	Registries []State   `json:"registries"` // in order of belief
	Services   []Service `json:"services"`   // by name
	Suspicious []Suspect `json:"suspicious"` // cannot be used: a coordinate is missing or unmapped
	Queue      []Suspect `json:"queue"`      // wait for a person: the fingerprint does not fit
	Isolated   []Verdict `json:"isolated"`   // verdicts that keep an instance out: Isolate or Refuse
	Calls      []Call    `json:"calls"`      // by From, then To
}

// Call says that a service asked for the instances of another: who calls whom.
type Call struct {
	From string    `json:"from"` // service of the caller
	Env  string    `json:"env"`  // of the caller
	To   string    `json:"to"`
	Last time.Time `json:"last"` // to the minute
}

// State is how one registry and the directory get along.
type State struct {
	Name      string        `json:"name"`
	Kind      string        `json:"kind"`
	OK        bool          `json:"ok"`                // false: it is away, and its last lists stay
	Age       time.Duration `json:"age"`               // since it was last heard, at View.At
	Problem   string        `json:"problem,omitempty"` // also of single services, while OK
	Services  int           `json:"services"`          // names in its catalogue
	Elsewhere int           `json:"elsewhere"`         // entries of other regions, which are left out
}

// Suspect is an entry that nobody is sent to.
type Suspect struct {
	Fingerprint
	Service  string    `json:"service"`
	Registry string    `json:"registry"`
	Why      string    `json:"why"`
	Since    time.Time `json:"since"` // when this process saw it first
}

// Directory is what rules.Lint asks.
var _ rules.Directory = (*View)(nil)

// Values implements rules.Directory.
func (v *View) Values(coordinate string) []string {
	var found []string
	last := ""
	for _, s := range v.Services {
		for i := range s.Instances {
			in := &s.Instances[i]
			value := in.coordinate(coordinate)
			if value == last || !in.usable() {
				continue
			}
			if at, known := slices.BinarySearch(found, value); !known {
				found = slices.Insert(found, at, value)
			}
			last = value
		}
	}
	return found
}

// Match implements rules.Directory. What takes no traffic by verdict or suspicion
// does not count; what drains does, for it may come back.
func (v *View) Match(service string, s rules.Selector, version string) (n int) {
	at, known := slices.BinarySearchFunc(v.Services, service, func(s Service, name string) int { return strings.Compare(s.Name, name) })
	if !known {
		return 0
	}
	want := discovery.Coordinates{Cluster: s.Cluster, Region: s.Region, Env: s.Env, Version: version}
	for i := range v.Services[at].Instances {
		if in := &v.Services[at].Instances[i]; in.Coordinates == want && in.usable() {
			n++
		}
	}
	return n
}

// Service implements rules.Directory. For a name that is one part of a full name,
// names are the full ones.
func (v *View) Service(name string) (known bool, names []string) {
	var full []string
	for _, s := range v.Services {
		known = known || s.Name == name
		names = append(names, s.Name)
		if server, port, two := strings.Cut(s.Name, "."); two && (server == name || port == name) {
			full = append(full, s.Name)
		}
	}
	if !known && len(full) > 0 {
		return false, full
	}
	return known, names
}

// usable says whether the directory lets traffic to the instance.
func (in *Instance) usable() bool { return in.Scale == nil || in.Scale.Thousandths > 0 }

func (in *Instance) coordinate(name string) string {
	switch name {
	case "cluster":
		return in.Cluster
	case "region":
		return in.Region
	case "env":
		return in.Env
	case "version":
		return in.Version
	default:
		return ""
	}
}
