package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
)

// injected is what a release platform says to a service in a feature environment.
func injected() map[string]string {
	return map[string]string{"env": "test", "env_id": "t2", "base_env": "t0", "cluster_name": "production",
		"region": "cn-hangzhou", "version": "v2.3.1", "deploy_type": "vm", "POD_IP": "10.2.0.9"}
}

func get(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

// B01, B14: what is injected becomes coordinates, labels and the process's own lane.
func TestFromEnv(t *testing.T) {
	t.Parallel()
	self, err := FromEnv(get(injected()))
	if err != nil {
		t.Fatal(err)
	}
	in := self.Instance("order-core", 8080)
	want := Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "t2", Version: "v2.3.1"}
	labels := map[string]string{"deploy_type": "vm", "cluster_name": "production", "env_id": "t2", "base_env": "t0"}
	if in.Coordinates != want || !maps.Equal(in.Labels, labels) || in.Address.String() != "10.2.0.9:8080" {
		t.Errorf("%+v", in)
	}
	if err := in.Validate(); err != nil {
		t.Errorf("it cannot be registered: %v", err)
	}
	if self.LaneEnv != "t2" || self.LaneBase != "t0" {
		t.Errorf("lane %q, then %q", self.LaneEnv, self.LaneBase)
	}
	in.Labels["mine"] = "x"
	if len(self.Labels) != 4 {
		t.Error("the labels of an instance are those of all")
	}
}

func TestFromEnvOfAnOrdinaryEnvironment(t *testing.T) {
	t.Parallel()
	values := injected()
	delete(values, "env_id")
	delete(values, "base_env")
	delete(values, "POD_IP")
	self, err := FromEnv(get(values))
	if err != nil || self.Env != "test" || self.LaneEnv != "" || self.LaneBase != "" || self.Host != "" {
		t.Errorf("%+v, %v", self, err)
	}
}

// A02: one error names every variable that is missing, and no other.
func TestFromEnvNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	all := []string{"env", "cluster_name", "region", "version", "deploy_type"}
	for name, c := range map[string]struct {
		set     map[string]string
		missing []string
	}{
		"everything":             {map[string]string{}, all},
		"upper case is another":  {map[string]string{"ENV": "prod", "REGION": "r", "VERSION": "v", "CLUSTER_NAME": "c", "DEPLOY_TYPE": "vm"}, all},
		"blank is missing":       {map[string]string{"env": " ", "cluster_name": "\t", "region": "r", "version": "v", "deploy_type": "vm"}, all[:2]},
		"env_id stands for env":  {map[string]string{"env_id": "t2", "cluster_name": "c", "region": "r", "version": "v"}, all[4:]},
		"a base without an env_": {map[string]string{"env": "t0", "base_env": "t0", "cluster_name": "c", "region": "r", "version": "v", "deploy_type": "vm"}, []string{"base_env"}},
	} {
		_, err := FromEnv(get(c.set))
		found, ok := errors.AsType[*fault.Error](err)
		if !ok || found.Kind != fault.Invalid || found.Hint == "" {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var named []string
		for _, p := range found.Problems {
			named = append(named, p.Path)
		}
		slices.Sort(named)
		if want := slices.Sorted(slices.Values(c.missing)); !slices.Equal(named, want) {
			t.Errorf("%s: it names %v, want %v", name, named, want)
		}
	}
}

func TestReadEnvFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dispatch.env")
	for text, want := range map[string]string{
		"# a comment\n\nenv=prod\nJAVA_OPTS=-Da=b -Dc=d\n": "",
		"env=a=b\nenv_id=\"t2\"":                           "",
		"env=prod\nenv=test":                               path + ":2: env: is set twice",
		"env prod\n=x\na.b=c":                              path + ":1: is not NAME=VALUE\n  " + path + ":2: is not NAME=VALUE\n  " + path + ":3: is not NAME=VALUE",
		"env=" + strings.Repeat("a", 1<<17):                "too long",
	} {
		replaceFile(t, path, text)
		getenv, err := ReadEnvFile(path)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.40q: %v, want %q", text, err, want)
			}
			continue
		}
		if err != nil || getenv("env") == "" || getenv("HOME") != "" {
			t.Errorf("%.40q: %v; env %q", text, err, getenv("env"))
		}
	}
	if _, err := ReadEnvFile(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestReadDeployMap(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deploy.json")
	for text, want := range map[string]string{
		`{"a": "static:x", "b.c": "consul://127.0.0.1:8500"}`: "",
		`{}`:                                 "",
		``:                                   "not an object",
		`[]`:                                 "not an object",
		`{"a": 1}`:                           "not an object",
		`{"a": "static:x"`:                   "not an object",
		`{"a": "static:x"} {}`:               "more after it",
		`{"a": "static:x", "a": "static:y"}`: "a: has two registries",
		`{"a b": "static:x", "c": "nowhere", "d": ":", "e": ""}`: "3 problems",
	} {
		replaceFile(t, path, text)
		_, err := ReadDeployMap(path)
		if found, ok := errors.AsType[*fault.Error](err); want == "3 problems" && ok && len(found.Problems) == 4 {
			continue // a name and three URLs
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	m := DeployMap{"order-core": "static:a", "passport_server": "static:b", "passport_server.admin": "static:c"}
	for service, want := range map[string]string{"order-core": "static:a", "passport_server.rpc_service": "static:b", "passport_server.admin": "static:c"} {
		if got, err := m.Registry(service); got != want || err != nil {
			t.Errorf("%s: %q, %v", service, got, err)
		}
	}
	if _, err := m.Registry("orders"); fault.KindOf(err) != fault.NotFound || !strings.Contains(err.Error(), "order-core, passport_server") {
		t.Errorf("unknown service: %v", err)
	}
}

// B28: an env file and a deploy map are all that a release platform must supply.
func TestEnvFileAndDeployMapAreEnough(t *testing.T) {
	t.Parallel()
	dir, server := t.TempDir(), "passport_"+serviceOf(t)
	replaceFile(t, filepath.Join(dir, "env"), "env=prod\ncluster_name=production\nregion=cn-hangzhou\nversion=v2.3.1\ndeploy_type=vm\nPOD_IP=127.0.0.1\n")
	replaceFile(t, filepath.Join(dir, "map.json"), fmt.Sprintf(`{%q: "consul://%s"}`, server, testenv.Consul(t)))

	getenv, err := ReadEnvFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := FromEnv(getenv)
	if err != nil {
		t.Fatal(err)
	}
	deploy, err := ReadDeployMap(filepath.Join(dir, "map.json"))
	if err != nil {
		t.Fatal(err)
	}
	target, err := deploy.Registry(server + ".rpc_service")
	if err != nil {
		t.Fatal(err)
	}
	source := openFor(t, target)
	rpc, control := listener(t), listener(t)
	running(t, source, Ports(server, self.Instance("", 0), map[string]uint16{"rpc_service": rpc.Port, "control_service": control.Port})...)
	for service, want := range map[string]Address{server + ".rpc_service": rpc, server + ".control_service": control} {
		w, _ := watching(t, source, service)
		in := await(t, w, soon, lists(want.String())).Instances[0]
		if in.Coordinates != home() || in.Labels["deploy_type"] != "vm" || in.Labels["cluster_name"] != "production" {
			t.Errorf("%s is found as %+v", service, in)
		}
	}
}

// T24, T25: the address of the environment is checked like any other.
func TestPodIPIsChecked(t *testing.T) {
	t.Parallel()
	source := openFor(t, "consul://"+testenv.Consul(t))
	for host, says := range map[string]string{
		"127.0.0.1":   "is loopback",
		"172.17.0.2":  "Docker's bridge network",
		"169.254.1.1": "is link-local",
		"fe80::1":     "is link-local",
		"0.0.0.0":     "no address of one machine",
		"10.1.0":      "neither an IP address nor a host name",
	} {
		self := Self{Coordinates: home(), Host: host}
		_, err := Register(t.Context(), source, RegisterOptions{}, self.Instance(serviceOf(t), listener(t).Port))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("POD_IP %s: %v, want %q", host, err, says)
		}
	}
	if got := (Self{Coordinates: home(), Host: "2001:db8::1"}).Instance("a", 8080).Address.String(); got != "[2001:db8::1]:8080" {
		t.Errorf("IPv6 is announced as %s", got)
	}
}

// A11: who registers is told until when callers wait.
func TestRegistrationSaysHowLongCallersWarmUp(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	source := openFor(t, "consul://"+testenv.Consul(t))
	opt := RegisterOptions{Force: true, Linger: -1, Log: slog.New(slog.NewTextHandler(&log, nil))}
	reg, err := Register(t.Context(), source, opt, Instance{Service: serviceOf(t), Address: listener(t), Coordinates: home()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reg.Run(ctx); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "warming_until=20") {
		t.Errorf("the log says %s", log.String())
	}
}

func FuzzEnvFile(f *testing.F) {
	f.Add("env=prod\n# x\n\nregion=cn-hangzhou\r\n")
	f.Add("=\na=b=c\na=")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := parseEnv("f", []byte(text))
		if err == nil && values[""] != "" {
			t.Error("a variable without a name")
		}
		for name, value := range values {
			if !strings.Contains(text, name+"="+value) {
				t.Errorf("%q=%q is not in the file", name, value)
			}
		}
	})
}

func FuzzDeployMap(f *testing.F) {
	f.Add(`{"order-core": "consul://127.0.0.1:8500"}`)
	f.Add(`{"a": "b:c", "a": "b:c"}`)
	f.Add(`{"a"`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseDeployMap("f", []byte(text))
		if err != nil {
			return
		}
		for service := range m {
			if checkService(service) != nil {
				t.Errorf("it takes %q for a service", service)
			}
			if _, err := m.Registry(service); err != nil {
				t.Error(err)
			}
		}
	})
}
