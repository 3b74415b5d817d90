package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/examples"
)

// demoRegion is where the demo's services stand.
const demoRegion = "cn-hangzhou"

// demoPatience is how long the demo waits for its directory to know all services.
const demoPatience = 30 * time.Second

// innerDemo lets the demo follow a registry of made-up services, a file in its data
// folder. Nobody listens at their addresses, and nobody calls them.
func (c *serveCmd) innerDemo() error {
	if len(c.Inner.Registry) > 0 {
		return nil
	}
	text, err := fs.ReadFile(examples.Files, examples.DemoRegistry)
	if err != nil {
		return fmt.Errorf("read the demo's registry: %w", err)
	}
	file := filepath.Join(c.Data, "demo-registry.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("write the demo's registry: %w", err)
	}
	c.Inner.Registry, c.Inner.InnerRegion, c.Inner.demo = []string{"demo=static:" + file}, demoRegion, true
	return nil
}

// publishRules publishes the example rules once the directory knows what they are
// about. A demo that has rules keeps them.
func (d *demo) publishRules(ctx context.Context, do *actions.Actions) error {
	if d == nil || !d.p.cfg.Inner.demo {
		return nil
	}
	late := time.After(demoPatience)
	for {
		_, changed := d.p.inner.directory.View()
		err := firstRules(ctx, do)
		if err == nil {
			return nil
		}
		select {
		case <-changed: // it may not have known all services
		case <-late:
			d.p.log.WarnContext(ctx, "the demo has no rules for internal calls", "err", err)
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func firstRules(ctx context.Context, do *actions.Actions) error {
	before, err := do.RegionRules(ctx, bootstrapper)
	if err != nil || before.Number > 0 {
		return err
	}
	names, err := fs.Glob(examples.Files, path.Join(examples.DemoRules, "*.yaml"))
	if err != nil {
		return err
	}
	var in actions.RulesInput
	for _, name := range names {
		text, err := fs.ReadFile(examples.Files, name)
		if err != nil {
			return err
		}
		in.Files = append(in.Files, rules.File{Name: path.Base(name), Text: string(text)})
	}
	check, err := do.LintRules(ctx, bootstrapper, in)
	if err != nil {
		return err
	}
	w := actions.Write{Actor: bootstrapper, Reason: "first rules"}
	if _, err := do.ApproveRules(ctx, w, in, check.Digest); err != nil {
		return err
	}
	_, err = do.ApplyRules(ctx, w, in)
	return err
}
