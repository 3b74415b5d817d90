package main

import (
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// innerFlags say which registries a control node follows for internal calls.
type innerFlags struct {
	Registry        []string `placeholder:"NAME=URL" help:"Registries of internal services that this control node follows, in order of belief: static:FILE, consul://HOST:PORT,HOST:PORT, nacos://HOST:PORT. None: no inner layer."`
	RegistryDialect []string `placeholder:"NAME=FILE" help:"What the teams of a registry call the four coordinates: docs/inner-layer.md, Dialects."`
	InnerRegion     string   `placeholder:"REGION" help:"Region whose services and rules this control node keeps (default --region). The others are reached through their gateways."`

	PicksKept time.Duration `default:"2160h" help:"How long records of internal calls are kept, and the lists that explain them: 90 days."`

	demo bool // the demo's own
}

// named splits NAME=VALUE pairs; ok is false where one is none or a name comes twice.
// Flags come split at commas: what has no name goes on with the value before it, as
// the servers of consul://a:8500,b:8500 do.
func named(pairs []string) (names, values []string, ok bool) {
	for _, pair := range pairs {
		name, value, found := strings.Cut(pair, "=")
		if !found && pair != "" && len(values) > 0 {
			values[len(values)-1] += "," + pair
			continue
		}
		if !found || name == "" || value == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || slices.Contains(names, name) {
			return nil, nil, false
		}
		names, values = append(names, name), append(values, value)
	}
	return names, values, true
}

func (f *innerFlags) validate(p *fault.Problems, r role) {
	if f.PicksKept < time.Hour {
		p.Addf("--picks-kept", "%s is less than an hour: nobody could ask in time", f.PicksKept)
	}
	if len(f.Registry) > 0 && !r.controls() {
		p.Addf("--registry", "is for a control node: edges answer apps, which know no services")
	}
	names, _, ok := named(f.Registry)
	if !ok {
		p.Addf("--registry", "must be NAME=URL with names of a-z, 0-9 and -, each once, such as hangzhou=consul://127.0.0.1:8500")
	}
	for _, pair := range f.RegistryDialect {
		if name, _, found := strings.Cut(pair, "="); !found || ok && !slices.Contains(names, name) {
			p.Addf("--registry-dialect", "%q must be NAME=FILE with the name of a --registry", pair)
		}
	}
	if len(f.Registry) > 0 && f.InnerRegion == "" {
		p.Addf("--inner-region", "is required with --registry: give it, or --region")
	}
}
