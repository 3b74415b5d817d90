package discovery

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// The variables that the release platform injects, spelled as it does. Others are
// not looked for: ENV, REGION and VERSION mean other things in many images.
const (
	varEnv     = "env"
	varEnvID   = "env_id"   // of a feature environment; counts before env
	varBaseEnv = "base_env" // where services are that the feature environment lacks
	varCluster = "cluster_name"
	varRegion  = "region"
	varVersion = "version"
	varDeploy  = "deploy_type"
	varPodIP   = "POD_IP"
)

// Self is what the release platform says about this process.
type Self struct {
	Coordinates
	Labels map[string]string // deploy_type, cluster_name, env_id and base_env, as injected
	Host   string            // POD_IP; empty: Register finds the address
	// LaneEnv and LaneBase are the process's own lane, which calls carry unless their
	// traffic has one. Empty: none.
	LaneEnv, LaneBase string
}

// FromEnv reads the variables env or env_id, base_env, cluster_name, region,
// version, deploy_type and POD_IP. The error names every one that is missing.
//
//	self, err := discovery.FromEnv(os.Getenv)
func FromEnv(getenv func(string) string) (Self, error) {
	value := func(name string) string { return strings.TrimSpace(getenv(name)) }
	s := Self{
		Coordinates: Coordinates{Cluster: value(varCluster), Region: value(varRegion), Env: value(varEnv), Version: value(varVersion)},
		Labels:      map[string]string{}, Host: value(varPodIP), LaneEnv: value(varEnvID), LaneBase: value(varBaseEnv),
	}
	var p fault.Problems
	if s.LaneEnv != "" {
		s.Env = s.LaneEnv
	} else if s.LaneBase != "" {
		p.Addf(varBaseEnv, "is set without %s: state the feature environment, or no base", varEnvID)
	}
	for _, name := range []string{varEnv, varCluster, varRegion, varVersion, varDeploy} {
		if value(name) == "" && (name != varEnv || s.LaneEnv == "") {
			p.Addf(name, "is not set")
		}
	}
	for _, name := range []string{varDeploy, varCluster, varEnvID, varBaseEnv} {
		if v := value(name); v != "" {
			s.Labels[name] = v
		}
	}
	if len(p) > 0 {
		return Self{}, &fault.Error{Kind: fault.Invalid, Code: "incomplete_environment", Problems: p,
			Detail: "the environment does not say where this process belongs",
			Hint:   "the release platform injects these variables; elsewhere set them, or name an env file that has them"}
	}
	return s, nil
}

// Instance is this process as an instance of a service at a port.
func (s Self) Instance(service string, port uint16) Instance {
	return Instance{Service: service, Address: Address{Host: s.Host, Port: port}, Coordinates: s.Coordinates, Labels: maps.Clone(s.Labels)}
}

// ReadEnvFile reads the variables of a file of lines NAME=VALUE, taken literally.
// Empty lines and those that begin with # do not count. It returns what FromEnv
// asks; the environment of the process itself is not looked at.
func ReadEnvFile(path string) (getenv func(string) string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read environment: %w", err)
	}
	values, err := parseEnv(path, text)
	if err != nil {
		return nil, err
	}
	return func(name string) string { return values[name] }, nil
}

func parseEnv(path string, text []byte) (map[string]string, error) {
	values := map[string]string{}
	var p fault.Problems
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		_, twice := values[name]
		switch {
		case !ok || !isWord(name):
			p = append(p, fault.Problem{File: path, Line: n, Detail: "is not NAME=VALUE"})
		case twice:
			p = append(p, fault.Problem{File: path, Line: n, Path: name, Detail: "is set twice"})
		default:
			values[name] = value
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read environment %s: %w", path, err)
	}
	return values, p.Err("invalid_environment", "the file of variables cannot be used")
}

// DeployMap says in which registry each service is: what Open takes, by service.
// A server's entry counts for its ports.
type DeployMap map[string]string

// Registry is the URL of the registry of a service.
func (m DeployMap) Registry(service string) (string, error) {
	server, _, _ := strings.Cut(service, ".")
	for _, name := range []string{service, server} {
		if url, ok := m[name]; ok {
			return url, nil
		}
	}
	return "", fault.New(fault.NotFound, "not_deployed", "the deploy map has no registry for %s", service).
		WithHint("it has " + strings.Join(slices.Sorted(maps.Keys(m)), ", "))
}

// ReadDeployMap reads a file of JSON: {"order-core": "consul://127.0.0.1:8500"}.
func ReadDeployMap(path string) (DeployMap, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read deploy map: %w", err)
	}
	return parseDeployMap(path, text)
}

// parseDeployMap reads pair by pair: encoding/json alone would let the last of two
// entries for one service win.
func parseDeployMap(path string, text []byte) (DeployMap, error) {
	bad := func(err error) error {
		return fault.New(fault.Invalid, "invalid_deploy_map", "deploy map %s is not an object of texts", path).Because(err).
			WithHint(`write {"order-core": "consul://127.0.0.1:8500"}`)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, bad(err)
	}
	m := DeployMap{}
	var p fault.Problems
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, bad(err)
		}
		name := key.(string) // a key is nothing else
		var url string
		if err := d.Decode(&url); err != nil {
			return nil, bad(err)
		}
		if why := serviceProblem(name); why != "" {
			p = append(p, fault.Problem{File: path, Path: name, Detail: "service " + why})
		}
		if _, twice := m[name]; twice {
			p = append(p, fault.Problem{File: path, Path: name, Detail: "has two registries"})
		}
		if kind, rest, _ := strings.Cut(url, ":"); kind == "" || rest == "" {
			p = append(p, fault.Problem{File: path, Path: name, Detail: fmt.Sprintf("%q is no registry", url), Hint: "static:FILE or consul://HOST:PORT"})
		}
		m[name] = url
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil, bad(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, bad(errors.New("there is more after it"))
	}
	return m, p.Err("invalid_deploy_map", "the deploy map cannot be used")
}
