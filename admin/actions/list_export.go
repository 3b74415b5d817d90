package actions

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"

	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// ListExport is a list on its way out, with its ids as people know them.
type ListExport struct {
	List  string
	Count int

	actions  *Actions
	manifest *release.Manifest
	csv      bool
}

// ExportList reads the ids of a list of the release in use: one a line, as an import
// takes them, or CSV for people to open. Who took them is written down before the
// first one leaves.
func (a *Actions) ExportList(ctx context.Context, who Actor, list string, format whitelist.Format) (*ListExport, error) {
	cur := a.Keeper.Current()
	if cur == nil {
		return nil, noRelease()
	}
	stored, err := a.stored(ctx, cur.Manifest, list)
	if err != nil {
		return nil, err
	}
	for n, d := range stored.Index.Digests { // what cannot be read is known before the answer begins
		if release.Digest(d) == release.DigestOf(nil) {
			continue
		}
		if _, err := stored.Raw(n); err != nil {
			return nil, fmt.Errorf("read ids of list %s: %w", list, err)
		}
		break
	}
	c := Write{Actor: who, Reason: "export of the ids"}.change("export_list", list)
	c.Details = fmt.Appendf(nil, `{"count":%d,"release":%d}`, stored.Index.Count, cur.Number)
	if err := a.Ledger.Record(ctx, c); err != nil {
		return nil, fmt.Errorf("record export of list %s: %w", list, err)
	}
	return &ListExport{List: list, Count: stored.Index.Count, actions: a, manifest: cur.Manifest, csv: format == whitelist.CSV}, nil
}

// Write writes all ids. It holds one chunk of them at a time.
func (e *ListExport) Write(ctx context.Context, w io.Writer) error {
	stored, err := e.actions.stored(ctx, e.manifest, e.List)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	table := csv.NewWriter(out)
	if e.csv {
		_ = table.Write([]string{"id"}) // Error says it
	}
	for id, err := range stored.All() {
		if err != nil {
			return fmt.Errorf("export list %s: %w", e.List, err)
		}
		if e.csv {
			_ = table.Write([]string{cell(id)})
			continue
		}
		if _, err := out.WriteString(id + "\n"); err != nil {
			return err
		}
	}
	table.Flush()
	if err := table.Error(); err != nil {
		return err
	}
	return out.Flush()
}
