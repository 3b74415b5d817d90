package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

type exportCmd struct {
	Form string `arg:"" enum:"ranges,haproxy,nginx" help:"ranges, haproxy or nginx."`
	App  string `arg:"" help:"Key of an app."`
	Dir  string `type:"path" default:"." help:"Folder to write into."`
	At   string `default:"/etc/dispatch" help:"Folder where the proxy will find the lists."`
}

// Run writes the files and says what they leave to dispatch.
func (c *exportCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Files []struct {
			Name string `json:"name"`
			Text string `json:"text"`
		} `json:"files"`
		Notes []string `json:"notes"`
	}
	answer, err := p.get(ctx, "/apps/"+url.PathEscape(c.App)+"/export/"+c.Form+"?"+url.Values{"dir": {c.At}}.Encode(), &v)
	if err != nil {
		return err
	}
	if p.json {
		return p.show(answer, "")
	}
	text := ""
	for _, f := range v.Files {
		path := filepath.Join(c.Dir, filepath.Base(f.Name)) // whatever the server calls it, it stays in the folder
		if err := os.WriteFile(path, []byte(f.Text), 0o600); err != nil {
			return fmt.Errorf("write export: %w", err)
		}
		text += path + "\n"
	}
	for _, note := range v.Notes {
		fmt.Fprintln(p.log, "left to dispatch:", printable(note))
	}
	return p.show(answer, printable(text))
}
