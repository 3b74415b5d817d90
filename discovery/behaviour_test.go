package discovery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

// registry is a Source together with a way to say who is there.
type registry interface {
	Catalog
	// set makes these the instances of their services, and of those named before.
	set(t *testing.T, instances ...Instance)
}

// registries are those that the behaviour of Source is shown on.
func registries() map[string]func(*testing.T) registry {
	return map[string]func(*testing.T) registry{
		"static": func(t *testing.T) registry {
			r := &fileRegistry{path: filepath.Join(t.TempDir(), "instances.yaml")}
			r.set(t)
			r.Catalog = openFor(t, "static:"+r.path)
			return r
		},
		"consul": func(t *testing.T) registry {
			return &leasedRegistry{Catalog: openFor(t, "consul://"+testenv.Consul(t)), leases: map[string]Lease{}, last: map[string]Instance{}}
		},
		"nacos": func(t *testing.T) registry {
			d := newNacosDouble()
			d.silent = true
			return &leasedRegistry{Catalog: openFor(t, "nacos://"+d.serving(t)), leases: map[string]Lease{}, last: map[string]Instance{}}
		},
	}
}

func openFor(t *testing.T, target string) Catalog {
	t.Helper()
	s, err := Open(target, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

type fileRegistry struct {
	Catalog
	path string
}

func (r *fileRegistry) set(t *testing.T, instances ...Instance) {
	t.Helper()
	var b strings.Builder
	b.WriteString("instances:\n")
	if len(instances) == 0 {
		b.Reset()
		b.WriteString("instances: []\n")
	}
	for _, in := range instances {
		fmt.Fprintf(&b, "  - {id: %q, service: %q, address: %q, cluster: %q, region: %q, env: %q, version: %q",
			in.ID, in.Service, in.Address, in.Cluster, in.Region, in.Env, in.Version)
		if in.Weight != nil {
			fmt.Fprintf(&b, ", weight: %d", *in.Weight)
		}
		if in.Labels != nil {
			text, err := json.Marshal(in.Labels)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, ", labels: %s", text)
		}
		b.WriteString("}\n")
	}
	replaceFile(t, r.path, b.String())
}

// replaceFile writes as people should: nobody reads half of it.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// leasedRegistry is one that instances enter themselves.
type leasedRegistry struct {
	Catalog
	leases map[string]Lease
	last   map[string]Instance
}

func (r *leasedRegistry) set(t *testing.T, instances ...Instance) {
	t.Helper()
	wanted := map[string]bool{}
	for _, in := range instances {
		wanted[in.ID] = true
		if before, known := r.last[in.ID]; known && before.Equal(in) {
			continue
		}
		lease, err := r.Register(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		r.leases[in.ID], r.last[in.ID] = lease, in
	}
	for id, lease := range r.leases {
		if wanted[id] {
			continue
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		delete(r.leases, id)
		delete(r.last, id)
	}
}

// soon is how long a change may take through any registry (C09 wants 300 ms of
// Consul; a file is read once a second; Nacos is asked every 3 s, and about an empty
// list again 5 s later).
const soon = 10 * time.Second

func TestSource(t *testing.T) {
	t.Parallel()
	for name, open := range registries() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, behaviour := range []struct {
				name  string
				shows func(*testing.T, registry)
			}{
				{"full list first, then every change", showsEveryChange},
				{"what an instance says arrives, T25", keepsEveryField},
				{"the last instance leaves once, T31 T32", emptiesOnce},
				{"a watch that ends keeps its list, T34", keepsListAtEnd},
				{"three watch, one ends, T39", tellsTheOthers},
				{"a service that nobody has is empty, not unknown", knowsNobody},
				{"a bad name is refused", refusesNames},
				{"services are named", namesServices},
				{"1,000 watches leave nothing, T45", leavesNothing},
			} {
				t.Run(behaviour.name, func(t *testing.T) { behaviour.shows(t, open(t)) })
			}
		})
	}
}

func showsEveryChange(t *testing.T, r registry) {
	service := serviceOf(t)
	a, b, c := instance(service, "10.0.0.1:80"), instance(service, "10.0.0.2:80"), instance(service, "10.0.0.3:80")
	r.set(t, a, b, instance("other-"+service, "10.0.0.9:80"))
	w, _ := watching(t, r, service)
	first := await(t, w, soon, lists("10.0.0.1:80", "10.0.0.2:80"))
	if first.Version != 1 || first.Service != service || first.Source != r.Name() {
		t.Errorf("first snapshot: version %d of %s from %s", first.Version, first.Service, first.Source)
	}
	r.set(t, a, b, c)
	await(t, w, soon, lists("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"))
	b.Weight = new(0)
	r.set(t, a, b, c)
	s := await(t, w, soon, func(s Snapshot) bool { return len(s.Instances) == 3 && s.Instances[1].Share() == 0 })
	r.set(t, a, c)
	last := await(t, w, soon, lists("10.0.0.1:80", "10.0.0.3:80"))
	if last.Version <= s.Version {
		t.Errorf("version %d after %d", last.Version, s.Version)
	}
	if state := w.State(); state.Problem != nil || !state.Known {
		t.Errorf("state %+v", state)
	}
}

func keepsEveryField(t *testing.T, r registry) {
	service := serviceOf(t) + ".rpc_service"
	full := instance(service, "[2001:db8::1]:8080")
	full.Weight, full.Labels = new(0), map[string]string{"zone": "a", "Deploy-Type": "", "note": `"quoted": {text}, ünï`}
	full.Version = "2.10"
	plain := instance(service, "node-7.example:81")
	r.set(t, full, plain)
	w, _ := watching(t, r, service)
	s := await(t, w, soon, lists("[2001:db8::1]:8080", "node-7.example:81"))
	full.Source, plain.Source = r.Name(), r.Name()
	want := tidy([]Instance{full, plain})
	if !slices.EqualFunc(s.Instances, want, Instance.Equal) {
		t.Errorf("got  %+v\nwant %+v", s.Instances, want)
	}
}

func emptiesOnce(t *testing.T, r registry) {
	service := serviceOf(t)
	r.set(t, instance(service, "10.0.0.1:80"))
	w, _ := watching(t, r, service)
	before := await(t, w, soon, lists("10.0.0.1:80"))
	r.set(t)
	after := await(t, w, soon, lists())
	if after.Version != before.Version+1 {
		t.Errorf("version %d after %d, want one event", after.Version, before.Version)
	}
	r.set(t, instance(service, "10.0.0.2:80"))
	if s := await(t, w, soon, lists("10.0.0.2:80")); s.Version != after.Version+1 {
		t.Errorf("version %d after %d: the empty list was told twice", s.Version, after.Version)
	}
}

func keepsListAtEnd(t *testing.T, r registry) {
	service := serviceOf(t)
	r.set(t, instance(service, "10.0.0.1:80"), instance(service, "10.0.0.2:80"))
	w, end := watching(t, r, service)
	want := await(t, w, soon, lists("10.0.0.1:80", "10.0.0.2:80"))
	if err := end(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	r.Close()
	if got, _ := w.Current(); got.Version != want.Version || len(got.Instances) != 2 {
		t.Errorf("after the end: version %d with %v, want %d unchanged", got.Version, addresses(got), want.Version)
	}
}

func tellsTheOthers(t *testing.T, r registry) {
	service := serviceOf(t)
	r.set(t, instance(service, "10.0.0.1:80"))
	var watchers []*Watcher
	var ends []func() error
	for range 3 {
		w, end := watching(t, r, service)
		await(t, w, soon, lists("10.0.0.1:80"))
		watchers, ends = append(watchers, w), append(ends, end)
	}
	if err := ends[1](); err != nil {
		t.Error(err)
	}
	r.set(t, instance(service, "10.0.0.1:80"), instance(service, "10.0.0.2:80"))
	for _, i := range []int{0, 2} {
		await(t, watchers[i], soon, lists("10.0.0.1:80", "10.0.0.2:80"))
	}
	if s, _ := watchers[1].Current(); len(s.Instances) != 1 {
		t.Errorf("the one that ended was told %v", addresses(s))
	}
}

func knowsNobody(t *testing.T, r registry) {
	unread, err := NewWatcher(r, serviceOf(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := unread.Current(); s.Version != 0 || unread.State().Known {
		t.Errorf("version %d before anything was read", s.Version)
	}
	w, _ := watching(t, r, serviceOf(t))
	if s := await(t, w, soon, lists()); s.Version != 1 {
		t.Errorf("version %d, want 1", s.Version)
	}
}

func refusesNames(t *testing.T, r registry) {
	for _, name := range []string{"", "a/b", "a.b.c", "a b", "../x", strings.Repeat("a", 129)} {
		if _, err := NewWatcher(r, name, nil); err == nil {
			t.Errorf("NewWatcher takes %q", name)
		}
		if err := r.Watch(t.Context(), name, nil); err == nil {
			t.Errorf("Watch takes %q", name)
		}
	}
}

func leavesNothing(t *testing.T, r registry) {
	service := serviceOf(t)
	r.set(t, instance(service, "10.0.0.1:80"))
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 10 {
		var batch sync.WaitGroup
		for range 100 {
			batch.Go(func() {
				w, end := watching(t, r, service)
				_, changed := w.Current()
				select { // some end while they ask, some after
				case <-changed:
				case <-time.After(20 * time.Millisecond):
				}
				if err := end(); err != nil {
					t.Error(err)
				}
			})
		}
		batch.Wait()
	}
	r.Close()
	deadline := time.After(soon)
	for runtime.NumGoroutine() > before+20 { // other tests run beside this one
		select {
		case <-deadline:
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// The names of services are those that instances of any environment have.
func namesServices(t *testing.T, r registry) {
	one, two := serviceOf(t), serviceOf(t)+"-2"
	r.set(t, instance(two, "10.0.0.1:80"), instance(one, "10.0.0.2:80"), instance(one, "10.0.0.3:80"))
	names, err := r.Services(t.Context())
	if err != nil || !slices.IsSorted(names) || !slices.Contains(names, one) || !slices.Contains(names, two) {
		t.Errorf("Services = %q, %v; want %s and %s among them", names, err, one, two)
	}
	if slices.Contains(names, "consul") {
		t.Error("the registry itself is among the services")
	}
}
