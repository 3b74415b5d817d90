package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"dispatch.example/dispatch/internal/fault"
)

type exportCmd struct {
	Form string `arg:"" enum:"ranges,haproxy,nginx" help:"ranges, haproxy or nginx."`
	App  string `arg:"" help:"Key of an app."`
	Dir  string `type:"path" default:"." help:"Folder to write into."`
	At   string `default:"/etc/dispatch" help:"Folder where the proxy will find the lists."`
}

// Run writes the files and says what they leave to dispatch.
func (c *exportCmd) Run(ctx context.Context, p *program) error {
	return p.export(ctx, "/apps/"+url.PathEscape(c.App)+"/export/"+c.Form+"?"+url.Values{"dir": {c.At}}.Encode(), c.Dir, "left to dispatch:")
}

type rulesExportCmd struct {
	Form    string `arg:"" enum:"envoy" help:"envoy."`
	Service string `help:"Only this service (default: all that have a rule)."`
	Env     string `help:"Only this environment (default: all)."`
	Region  string `help:"Refuse if the server keeps another region."`
	Dir     string `type:"path" help:"Folder to write into (default: none, all files are printed)."`
}

// Run writes the files and says what Envoy does otherwise.
func (c *rulesExportCmd) Run(ctx context.Context, p *program) error {
	q := url.Values{}
	for name, value := range map[string]string{"service": c.Service, "env": c.Env, "region": c.Region} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return p.export(ctx, "/rules/export/"+c.Form+"?"+q.Encode(), c.Dir, "note:")
}

// export asks for files, writes them into a folder, or to standard output where there
// is none, and prints the notes, each after
// a word of its own.
func (p *program) export(ctx context.Context, path, dir, word string) error {
	var v struct {
		Files []struct {
			Name string `json:"name"`
			Text string `json:"text"`
		} `json:"files"`
		Notes []string `json:"notes"`
	}
	answer, err := p.get(ctx, path, &v)
	if err != nil {
		return err
	}
	if p.json {
		return p.show(answer, "")
	}
	text := ""
	for _, f := range v.Files {
		if dir == "" {
			text += "---\n# " + f.Name + "\n" + f.Text
			continue
		}
		path := filepath.Join(dir, filepath.Base(f.Name)) // whatever the server calls it, it stays in the folder
		if err := os.WriteFile(path, []byte(f.Text), 0o600); errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.NotFound, "no_folder", "there is no folder %s; nothing was written", dir).WithHint("mkdir -p " + dir)
		} else if err != nil {
			return fmt.Errorf("write export: %w", err)
		}
		text += path + "\n"
	}
	for _, note := range v.Notes {
		fmt.Fprintln(p.log, word, printable(note))
	}
	return p.show(answer, printable(text))
}
