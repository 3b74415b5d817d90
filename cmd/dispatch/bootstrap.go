package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/examples"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// bootstrap publishes a first document from the command line's side: whoever
// starts the process brings the file and the tables beside it.
type bootstrap struct {
	files    fs.FS
	name     string // in files
	path     string // as the flag has it
	do       *actions.Actions
	hosts    hostRegister
	suffixes domain.Suffixes
	fourEyes bool
	log      *slog.Logger
}

// hostRegister is what bootstrap needs to register the document's hosts.
type hostRegister interface {
	ApprovedHosts(ctx context.Context) (map[string]bool, error)
	ProposeHost(ctx context.Context, host string, c ledger.Change) error
	ApproveHost(ctx context.Context, host string, c ledger.Change) error
}

// firstDocument is what --demo or --bootstrap names; ok is false for neither.
func (c *serveCmd) firstDocument() (files fs.FS, name string, ok bool) {
	switch {
	case c.Bootstrap != "":
		return os.DirFS(filepath.Dir(c.Bootstrap)), filepath.Base(c.Bootstrap), true
	case c.Demo:
		return examples.Files, examples.Demo, true
	default:
		return nil, "", false
	}
}

var bootstrapper = actions.Actor{Name: "bootstrap", Roles: []string{actions.Administrator}}

// run publishes the document. With four eyes it only proposes hosts that nobody
// has approved yet, says so, and leaves the publishing to people.
func (b bootstrap) run(ctx context.Context) error {
	data, err := fs.ReadFile(b.files, b.name)
	if err != nil {
		return fmt.Errorf("read first configuration %s: %w", b.path, err)
	}
	doc, err := release.Parse(b.name, data)
	if err != nil {
		return err
	}
	if err := b.inside(doc); err != nil {
		return err
	}
	missing, err := b.register(ctx, doc)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		b.log.WarnContext(ctx, "nothing is published: hosts wait for a second person", "hosts", missing,
			"try", "approve each with POST /api/v1/approvals/HOST, then start again or POST /api/v1/releases")
		return nil
	}
	w := actions.Write{Actor: bootstrapper, Reason: "first configuration " + b.name}
	tables := map[string]string{}
	for _, t := range doc.Tables {
		if t.File == "" {
			continue
		}
		f, err := b.files.Open(t.File)
		if err != nil {
			return fmt.Errorf("read table %s: %w", t.Key, err)
		}
		uploaded, err := b.do.UploadTable(ctx, w, t.Key, f)
		_ = f.Close() // read only
		if err != nil {
			return fmt.Errorf("upload table %s: %w", t.Key, err)
		}
		tables[t.Key] = uploaded.Digest
	}
	out, err := b.do.Publish(ctx, w, actions.Publication{File: b.name, Document: data, Tables: tables})
	if err != nil {
		return fmt.Errorf("publish first configuration: %w", err)
	}
	for _, warning := range out.Warnings {
		b.log.WarnContext(ctx, "first configuration", "warning", warning.String())
	}
	return nil
}

// inside names every host that could never be approved.
func (b bootstrap) inside(doc *release.Document) error {
	var p fault.Problems
	for host, path := range doc.Domains() {
		if normal, err := domain.NormalHost(host); err == nil && normal == host && !b.suffixes.Allows(host) {
			p.Addf(path, "%s lies outside the allowed suffixes %s", host, b.suffixes)
		}
	}
	slices.SortFunc(p, func(x, y fault.Problem) int { return cmp.Compare(x.Path, y.Path) })
	return p.Err("outside_suffixes", b.name+" needs more of --allowed-suffixes")
}

// register proposes the document's hosts, approves them where one person may,
// and names those that still wait.
func (b bootstrap) register(ctx context.Context, doc *release.Document) (missing []string, err error) {
	approved, err := b.hosts.ApprovedHosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("read approved hosts: %w", err)
	}
	change := ledger.Change{By: bootstrapper.Name, Reason: "first configuration " + b.name}
	for _, host := range slices.Sorted(maps.Keys(doc.Domains())) {
		if approved[host] {
			continue
		}
		if err := b.hosts.ProposeHost(ctx, host, change); err != nil && fault.KindOf(err) != fault.Conflict {
			return nil, fmt.Errorf("propose host %s: %w", host, err)
		}
		if b.fourEyes {
			missing = append(missing, host)
			continue
		}
		if err := b.hosts.ApproveHost(ctx, host, change); err != nil {
			return nil, fmt.Errorf("approve host %s: %w", host, err)
		}
	}
	return missing, nil
}
