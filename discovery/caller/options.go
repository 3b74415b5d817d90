package caller

import (
	"crypto/rand"
	"log/slog"
	"os"
	"slices"
	"strings"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

// maxCallerID bounds what stands in every record.
const maxCallerID = 200

// checkOptions fills in defaults, and lists everything that is wrong.
func checkOptions(opt *Options) (map[string][]discovery.Instance, error) {
	var p fault.Problems
	for _, part := range []struct{ name, value string }{
		{"Self.Cluster", opt.Self.Cluster}, {"Self.Region", opt.Self.Region}, {"Self.Env", opt.Self.Env},
	} {
		if strings.TrimSpace(part.value) == "" {
			p.Addf(part.name, "is required: picks stay in the caller's own coordinates")
		}
	}
	if len(opt.ID) > maxCallerID {
		p.Addf("ID", "has %d bytes, at most %d are kept", len(opt.ID), maxCallerID)
	}
	if opt.Sample < 0 {
		p.Addf("Sample", "must not be negative, got %d", opt.Sample)
	}
	checkSources(&p, opt)
	overrides := parseOverrides(&p, opt)
	if err := p.Err("invalid_caller", "calls cannot be routed with these options"); err != nil {
		return nil, err
	}
	if opt.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		opt.ID = host + "-" + randomText(6)
	}
	if opt.Deployment == "" {
		opt.Deployment = "dispatch" // as dispatch serve --deployment
	}
	if opt.Sample == 0 {
		opt.Sample = DefaultSample
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return overrides, nil
}

func checkSources(p *fault.Problems, opt *Options) {
	control := len(opt.Control) > 0
	opt.Control = slices.Clone(opt.Control)
	opt.Control = wire.CheckControl(p, opt.Control)
	if control && opt.Trust == nil {
		p.Addf("Trust", "is required with Control: rules are believed by their signature")
	}
	if control && opt.RulesDir != "" {
		p.Addf("RulesDir", "is for callers without Control, which has the rules")
	}
	if !control && opt.Registry == nil {
		p.Addf("Control", "neither Control nor Registry says where instances are found")
	}
	if opt.Registry == nil {
		return
	}
	if len(opt.Services) == 0 {
		p.Addf("Services", "is required with Registry: it is asked for one service at a time")
	}
	for _, name := range opt.Services {
		if _, err := discovery.NewWatcher(opt.Registry, name, nil); err != nil {
			p.Addf("Services", "%s", err)
		}
	}
}

// overrideSource is the Source of instances that the configuration names.
const overrideSource = "override"

// parseOverrides reads NAME@ADDRESS;ADDRESS. They are for trying things out, so
// production refuses them unless told otherwise.
func parseOverrides(p *fault.Problems, opt *Options) map[string][]discovery.Instance {
	all := map[string][]discovery.Instance{}
	for _, text := range opt.Overrides {
		name, list, found := strings.Cut(text, "@")
		switch {
		case !found || name == "" || list == "":
			p.Addf("Overrides", "%q is not NAME@IP:PORT;IP:PORT", text)
			continue
		case all[name] != nil:
			p.Addf("Overrides", "%s is named twice; write all its addresses in one", name)
			continue
		}
		seen := map[discovery.Address]bool{}
		for part := range strings.SplitSeq(list, ";") {
			address, err := discovery.ParseAddress(strings.TrimSpace(part))
			switch {
			case err != nil:
				p.Addf("Overrides", "%s: %s", name, err)
			case seen[address]:
				p.Addf("Overrides", "%s: %s is named twice", name, address)
			default:
				seen[address] = true
				// Coordinates stay empty: nobody has said what is there.
				all[name] = append(all[name], discovery.Instance{ID: address.String(), Service: name, Address: address, Source: overrideSource})
			}
		}
	}
	if len(opt.Overrides) > 0 && opt.Self.Env == "prod" && !opt.AllowProd {
		p.Addf("Overrides", "are refused in prod, where calls follow the registry and the rules; AllowProd lets them")
	}
	return all
}

func addresses(instances []discovery.Instance) (all []string) {
	for i := range instances {
		all = append(all, instances[i].Address.String())
	}
	return all
}

// randomText is n characters of 5 random bits each.
func randomText(n int) string {
	const digits = "0123456789abcdefghijklmnopqrstuv"
	text := make([]byte, n)
	_, _ = rand.Read(text) // never fails, see crypto/rand
	for i := range text {
		text[i] = digits[text[i]%32]
	}
	return string(text)
}
