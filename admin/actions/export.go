package actions

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"dispatch.example/dispatch/export"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// ExportRules writes an app's rules of the release in use in the words of a proxy,
// or as ranges of buckets. dir is where the proxy will find its lists. Who took
// them is written down: the ids of lists are in it.
func (a *Actions) ExportRules(ctx context.Context, who Actor, app, form, dir string) (export.Export, error) {
	cur := a.Keeper.Current()
	if cur == nil {
		return export.Export{}, noRelease()
	}
	served := cur.Apps[app]
	if served == nil {
		return export.Export{}, fault.New(fault.NotFound, "unknown_app", "no app has the key %q", app).WithHint("GET /api/v1/apps lists them")
	}
	in := export.App{Rules: release.RulesOf(served.App, cur.Manifest.Operational), Release: cur.Number, FoldIDs: served.IDs.Fold(),
		Absent: cur.Manifest.Document.AbsentIDs, OpenUser: served.App.Identity.UserFrom() == release.FromAnyone,
		ListOf: map[string]whitelist.Of{}, IDs: map[string][]string{}}
	if in.Absent == nil {
		in.Absent = whitelist.DefaultAbsent
	}
	var out export.Export
	if form == "ranges" {
		out = export.RangesCSV(in)
	} else {
		if err := a.exportLists(ctx, cur.Manifest, &in); err != nil {
			return export.Export{}, err
		}
		if out = export.HAProxy(in, dir); form == "nginx" {
			out = export.Nginx(in, dir)
		}
	}
	if out.Notes == nil {
		out.Notes = []string{}
	}
	entry := Write{Actor: who, Reason: "export of " + form}.change("export_rules", app)
	if err := a.Ledger.Record(ctx, entry); err != nil {
		return export.Export{}, fmt.Errorf("write audit of export of %s: %w", app, err)
	}
	return out, nil
}

// exportLists brings the ids of the lists that the app's policies name.
func (a *Actions) exportLists(ctx context.Context, m *release.Manifest, in *export.App) error {
	for i := range in.Rules.Policies {
		when := &in.Rules.Policies[i].When
		keys := slices.Clone(when.InList)
		if when.Not != nil {
			keys = append(keys, when.Not.InList...)
		}
		for _, key := range keys {
			if _, known := in.ListOf[key]; known {
				continue
			}
			if err := a.exportList(ctx, m, in, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// exportList brings one list, unless it is too long or its ids are not kept.
func (a *Actions) exportList(ctx context.Context, m *release.Manifest, in *export.App, key string) error {
	stored, err := a.stored(ctx, m, key)
	if err != nil {
		return err
	}
	in.ListOf[key] = stored.Of
	if stored.Index.Count > export.MaxList {
		return nil
	}
	ids := []string{}
	for n := range stored.Index.Digests {
		raw, err := stored.Raw(n)
		if fault.CodeOf(err) == "no_raw_ids" {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ids of list %s: %w", key, err)
		}
		for line := range bytes.Lines(raw) {
			ids = append(ids, string(bytes.TrimRight(line, "\n")))
		}
	}
	in.IDs[key] = ids
	return nil
}
