package caller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

const (
	// readEvery is how often the folder of rules is read.
	readEvery = time.Second
	// settleFor is how long changed files must stay as they are, so that a write that
	// is under way is not taken for its result.
	settleFor = 200 * time.Millisecond
	maxRules  = 8 << 20 // bytes of all files
)

// watchRegistry follows the services in the registry until ctx ends.
func (c *Caller) watchRegistry(ctx context.Context) {
	var watches sync.WaitGroup
	for _, name := range c.opt.Services {
		if c.overrides[name] != nil {
			continue
		}
		w, err := discovery.NewWatcher(c.opt.Registry, name, c.log)
		if err != nil {
			c.troubles.note("registry", err, "of", name)
			continue
		}
		c.mu.Lock()
		c.heard.watchers = append(c.heard.watchers, w)
		c.mu.Unlock()
		watches.Go(func() {
			if err := w.Run(ctx); err != nil {
				c.troubles.note("registry", err, "of", name)
			}
		})
		watches.Go(func() { c.hear(ctx, name, w) })
	}
	watches.Wait()
}

// hear takes over each list of a watcher until ctx ends.
func (c *Caller) hear(ctx context.Context, name string, w *discovery.Watcher) {
	for first := true; ; {
		s, changed := w.Current()
		if s.Version > 0 {
			c.mu.Lock()
			if c.heard.control.IsZero() {
				c.heard.listed = true
				c.learn(name, told{Service: listOf(s), full: true, first: first})
			}
			c.mu.Unlock()
			first = false
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// listOf is a registry's list as a control node would tell it.
func listOf(s discovery.Snapshot) wire.Service {
	all := distinct(slices.Concat(s.Instances, s.LastResort))
	list := wire.Service{Instances: all}
	for i := len(s.Instances); i < len(all); i++ {
		if list.Scale == nil {
			list.Scale = map[string]route.Scale{}
		}
		list.Scale[all[i].ID] = route.Scale{Why: route.Vanished}
	}
	return list
}

// distinct adds the address to IDs that several instances have, as control nodes do:
// an agent of Consul keeps its own, and what is lowered is named by ID.
func distinct(all []discovery.Instance) []discovery.Instance {
	times := make(map[string]int, len(all))
	for i := range all {
		times[all[i].ID]++
	}
	if len(times) == len(all) {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		if times[all[i].ID] > 1 {
			all[i].ID += "@" + all[i].Address.String()
		}
	}
	return all
}

// readRules follows the folder of rules until ctx ends. What cannot be read or
// parsed leaves the rules in use as they are.
func (c *Caller) readRules(ctx context.Context) {
	var used map[string]string
	for ctx.Err() == nil {
		files, err := c.ruleFiles()
		if err == nil && !maps.Equal(files, used) {
			if !pause(ctx, settleFor) {
				return
			}
			var again map[string]string
			if again, err = c.ruleFiles(); err == nil && !maps.Equal(files, again) {
				continue // somebody is writing
			}
			if err == nil {
				if err = c.useFiles(files); err == nil {
					used = files
				}
			}
		}
		c.troubles.note("rules", err)
		if c.tried.CompareAndSwap(false, true) {
			c.mu.Lock()
			c.soil() // Ready waits for this
			c.mu.Unlock()
		}
		pause(ctx, readEvery)
	}
}

// ruleFiles are the files of the folder by name. A folder without any is not
// believed: it is more often one that was not mounted than a wish to have no rules.
func (c *Caller) ruleFiles() (map[string]string, error) {
	entries, err := os.ReadDir(c.opt.RulesDir)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	files, size := map[string]string{}, 0
	for _, e := range entries {
		// Parse refuses .yml by its name, which is better than overlooking it.
		ext := filepath.Ext(e.Name())
		if ext != ".yaml" && ext != ".yml" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(c.opt.RulesDir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read rules: %w", err)
		}
		if size += len(text); size > maxRules {
			return nil, fmt.Errorf("read rules: the files of %s have more than %d bytes", c.opt.RulesDir, maxRules)
		}
		files[e.Name()] = string(text)
	}
	if len(files) == 0 {
		return nil, errors.New("read rules: no .yaml in " + c.opt.RulesDir + "; to have no rules, keep a groups.yaml there")
	}
	return files, nil
}

// useFiles parses files and takes them into use. Their number counts what was taken.
func (c *Caller) useFiles(files map[string]string) error {
	var list []rules.File
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = append(list, rules.File{Name: name, Text: files[name]})
	}
	set, err := rules.Parse(list)
	if err != nil {
		return fmt.Errorf("read rules of %s: %w", c.opt.RulesDir, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	number := c.book.number + 1
	changed, all := c.book.turn(set, number)
	c.metrics.number.Set(float64(number))
	c.log.Info("rules are in use", "number", number, "rules", len(set.Rules), "changed", len(changed))
	if all {
		c.soil()
	}
	if len(changed) > 0 {
		c.soil(changed...)
	}
	return nil
}
