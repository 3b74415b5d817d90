package release

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// compilation is one run of Loader.Load past its checks.
type compilation struct {
	loader *Loader
	next   *Snapshot
	cur    *Snapshot // nil: nothing to reuse
	blobs  Blobs
	// sameEnv says that lists, tables, keys and absent ids are those of cur, so
	// that an app with unchanged rules keeps its table.
	sameEnv bool
}

func (c *compilation) compile(ctx context.Context, book recorder) error {
	if err := guardForm(&c.next.Manifest.Document); err != nil {
		return err
	}
	c.sameEnv = c.cur != nil
	for _, step := range []func(context.Context) error{c.sessions, c.lists, c.tables} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	apps, err := c.apps()
	if err != nil {
		return err
	}
	return c.next.answers(apps, book)
}

func (c *compilation) sessions(context.Context) error {
	next := &c.next.parts
	next.keys = c.next.Manifest.Keys
	if c.cur != nil && c.cur.parts.keys.unchanged(next.keys) {
		next.sessions = c.cur.parts.sessions
		return nil
	}
	c.sameEnv = false
	var err error
	next.sessions, err = c.loader.sessionKeys(next.keys.Session)
	return err
}

// lists makes the index of all lists. It shares with that of cur whatever did not change.
func (c *compilation) lists(ctx context.Context) error {
	m, next := c.next.Manifest, &c.next.parts
	keys, err := c.loader.listKeys(m.Keys.List)
	if err != nil {
		return err
	}
	base, same := new(whitelist.Index), false
	var old map[string]listPart
	if c.cur != nil {
		base, old = c.cur.Lists, c.cur.parts.lists
		same = len(old) == len(m.Document.Lists) && c.cur.parts.keys.unchanged(m.Keys)
	}
	next.lists = make(map[string]listPart, len(m.Document.Lists))
	lists := make([]whitelist.List, 0, len(m.Document.Lists))
	for _, l := range m.Document.Lists {
		part := old[l.Key]
		if part.digest != m.Lists[l.Key] || part.of != l.Of {
			same = false
			if part, err = c.listPart(ctx, l, m.Lists[l.Key]); err != nil {
				return err
			}
		}
		next.lists[l.Key] = part
		c.need(part)
		lists = append(lists, whitelist.List{Key: l.Key, Of: l.Of, Index: part.blob, Chunk: func(n int) ([]byte, error) {
			return c.fetch(ctx, part.blob.Digests[n])
		}})
	}
	if same {
		c.next.Lists = c.cur.Lists
		return nil
	}
	c.sameEnv = false
	if c.next.Lists, err = base.With(keys, lists); err != nil {
		return badPart("lists", err)
	}
	return nil
}

func (c *compilation) listPart(ctx context.Context, l List, digest Digest) (listPart, error) {
	data, err := c.fetch(ctx, digest)
	if err != nil {
		return listPart{}, badPart("list "+l.Key, err)
	}
	blob, err := whitelist.ParseIndexBlob(data)
	if err != nil {
		return listPart{}, badPart("list "+l.Key, err)
	}
	return listPart{digest: digest, of: l.Of, blob: blob}, nil
}

// need notes the blobs of a list. The chunk without hashes is neither stored nor fetched.
func (c *compilation) need(part listPart) {
	empty := DigestOf(nil)
	c.next.parts.blobs = append(c.next.parts.blobs, part.digest)
	for _, d := range part.blob.Digests {
		if d != empty {
			c.next.parts.blobs = append(c.next.parts.blobs, d)
		}
	}
}

// tables reads the address tables whose digest is new.
func (c *compilation) tables(ctx context.Context) error {
	m, next := c.next.Manifest, &c.next.parts
	var old map[string]tablePart
	same := false
	if c.cur != nil {
		old, same = c.cur.parts.tables, len(c.cur.parts.tables) == len(m.Document.Tables)
	}
	next.tables = make(map[string]tablePart, len(m.Document.Tables))
	next.prefixes = make(map[string]*policy.Prefixes, len(m.Document.Tables))
	for _, t := range m.Document.Tables {
		part := old[t.Key]
		if part.digest != m.Tables[t.Key] {
			same = false
			data, err := c.fetch(ctx, m.Tables[t.Key])
			if err != nil {
				return badPart("table "+t.Key, err)
			}
			prefixes, err := policy.ParsePrefixes(bytes.NewReader(data))
			if err != nil {
				return badPart("table "+t.Key, err)
			}
			part = tablePart{digest: m.Tables[t.Key], prefixes: prefixes}
		}
		next.tables[t.Key], next.prefixes[t.Key] = part, part.prefixes
		next.blobs = append(next.blobs, part.digest)
	}
	c.sameEnv = c.sameEnv && same
	return nil
}

// fetch brings a blob. A source that has not got it says nothing about the
// release: that is missing_part, and the same release may load later.
func (c *compilation) fetch(ctx context.Context, digest Digest) ([]byte, error) {
	data, err := c.blobs.Blob(ctx, digest)
	if err == nil && DigestOf(data) != digest {
		err = errors.New("the source gave another one")
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "missing_part", "no source has blob %s of the release", digest).
			WithHint("the release is asked for again; if it stays so, publish what it names anew").Because(err)
	}
	return data, nil
}

// badPart keeps the code of an error that has one.
func badPart(what string, err error) error {
	if fault.CodeOf(err) != "internal" {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fault.New(fault.Invalid, "bad_part", "%s of the release cannot be loaded", what).Because(err)
}

// apps compiles the rules of every app, or takes them from cur if nothing that
// they depend on has changed.
func (c *compilation) apps() ([]Served, error) {
	m := c.next.Manifest
	applied := Apply(&m.Document, m.Operational)
	served := make([]Served, len(applied))
	for i := range applied {
		app := &applied[i]
		source, err := sourceOf(m, i)
		if err != nil {
			return nil, err
		}
		if old := c.unchanged(app.Key, source); old != nil {
			served[i] = *old // its answers are made anew
			served[i].App = app
			continue
		}
		served[i] = Served{App: app, Life: app.Life(), source: source}
		if served[i].routing, err = routingOf(m, app); err != nil {
			return nil, err
		}
		if served[i].IDs, err = whitelist.NewNormalizer(m.Document.AbsentIDs, app.IDCase == CaseFold); err != nil {
			return nil, fault.New(fault.Invalid, "bad_document", "absent_ids are wrong").Because(err)
		}
		served[i].Table, err = policy.Compile(RulesOf(app, m.Operational), policy.Env{Lists: c.next.Lists, Tables: c.next.parts.prefixes,
			Geo: c.loader.opt.Geo, Replica: c.loader.opt.Replica, Sessions: c.next.parts.sessions})
		if err != nil {
			return nil, fmt.Errorf("app %s: %w", app.Key, err)
		}
	}
	return served, nil
}

func (c *compilation) unchanged(app, source string) *Served {
	if !c.sameEnv {
		return nil
	}
	if old := c.cur.Apps[app]; old != nil && old.source == source {
		return old
	}
	return nil
}

// sourceOf is everything in a manifest that decides for its app number i, in writing.
func sourceOf(m *Manifest, i int) (string, error) {
	app := &m.Document.Apps[i]
	source, err := json.Marshal(struct {
		App    *App
		State  AppState
		Absent []string
	}{app, m.Operational.Apps[app.Key], m.Document.AbsentIDs})
	if err != nil {
		return "", fmt.Errorf("compare app %s: %w", app.Key, err)
	}
	return string(source), nil
}
