package actions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// RehashOutcome is what a rotation of the list keys did.
type RehashOutcome struct {
	Outcome
	Lists    []string `json:"lists" doc:"that were hashed anew; none: all were under the current key"`
	IDs      int      `json:"ids" doc:"in them"`
	Resealed int      `json:"resealed" doc:"chunks of raw ids that were sealed with the current seal key"`
}

// resealBatch is how many chunks one transaction seals anew: some 10 MB of ids.
const resealBatch = 200

// Rehash hashes every list anew that is not yet under the current list key, from its
// sealed raw ids, and makes a release of that. The release names the current and the
// previous key; a replica that has both serves through. Raw ids under the previous
// seal key are sealed with the current one. It is an action of its own, not a part
// of the next publication: millions of ids take minutes, and nobody's document
// should wait for them.
func (a *Actions) Rehash(ctx context.Context, w Write) (RehashOutcome, error) {
	key, err := a.listKey()
	if err != nil {
		return RehashOutcome{}, err
	}
	out, err := remembered(ctx, a, w, asked{"rehash", key.ID}, func(w Write) (RehashOutcome, error) { return a.rehash(ctx, w, key) })
	if err == nil {
		a.acknowledge(ctx, &out.Outcome, normalWait)
	}
	return out, err
}

func (a *Actions) rehash(ctx context.Context, w Write, key whitelist.Key) (RehashOutcome, error) {
	out := RehashOutcome{Lists: []string{}}
	h, err := a.editable(ctx)
	if err != nil {
		return out, err
	}
	var c listChange
	for _, l := range document(h.from).Lists {
		content, err := a.rehashed(ctx, h.from, l.Key, key)
		if err != nil {
			return out, fmt.Errorf("hash list %s anew: %w", l.Key, err)
		}
		if content == nil {
			continue
		}
		blobs := slices.Collect(content.Blobs())
		if err := a.Ledger.PutBlobs(ctx, slices.Values(blobs)); err != nil {
			return out, fmt.Errorf("store ids of list %s: %w", l.Key, err)
		}
		for i := range blobs {
			blobs[i].Raw = nil // stored by now; the release needs the hashes alone
		}
		c.blobs = append(c.blobs, blobs...)
		c.lists = append(c.lists, newIndex{l.Key, h.from.Lists[l.Key], content.Index()})
		out.Lists = append(out.Lists, l.Key)
		out.IDs += content.Len()
	}
	for n := resealBatch; n == resealBatch; out.Resealed += n {
		if n, err = a.Ledger.Reseal(ctx, resealBatch); err != nil {
			return out, fmt.Errorf("seal raw ids anew: %w", err)
		}
	}
	if len(c.lists) == 0 {
		out.Release = h.newest.Number
		return out, nil
	}
	answer := func(o Outcome) any {
		out.Outcome = o
		return out
	}
	c.action, c.target, c.answer = "rehash", key.ID, answer
	c.details = map[string]any{"key": key.ID, "lists": strings.Join(out.Lists, ", "), "ids": out.IDs}
	out.Outcome, err = a.changeLists(ctx, w, c)
	return out, err
}

// keyIDs are the keys that the release after from names: all of the key files once
// after a rotation, and from then on those that from names, so that a key that was
// retired stays out.
func (a *Actions) keyIDs(from *release.Manifest) release.KeyIDs {
	ids := a.Keys.IDs()
	if from == nil {
		return ids
	}
	return release.KeyIDs{Session: stillNamed(ids.Session, from.Keys.Session), List: stillNamed(ids.List, from.Keys.List)}
}

func stillNamed(file, before []string) []string {
	if len(before) == 0 || before[0] != file[0] {
		return file
	}
	return slices.DeleteFunc(slices.Clone(file), func(id string) bool { return !slices.Contains(before, id) })
}

// Retire makes a release that names the current session and list keys alone. Before
// that a next rotation would take away a key that the release in use names, and no
// node could load it. Sessions under the previous key end.
func (a *Actions) Retire(ctx context.Context, w Write) (Outcome, error) {
	out, err := remembered(ctx, a, w, asked{"retire", a.Keys.IDs()}, func(w Write) (out Outcome, err error) {
		err = a.alone(ctx, func(ctx context.Context) error {
			h, err := a.editable(ctx)
			if err != nil {
				return err
			}
			if h.from == nil {
				return noRelease()
			}
			ids := release.KeyIDs{Session: a.Keys.IDs().Session[:1], List: a.Keys.IDs().List[:1]}
			if slices.Equal(ids.Session, h.from.Keys.Session) && slices.Equal(ids.List, h.from.Keys.List) {
				out.Release = h.newest.Number
				return nil
			}
			if err := a.unused(ctx, h.from, ids.List[0]); err != nil {
				return err
			}
			d := draft{action: "retire_keys", target: ids.Session[0] + ", " + ids.List[0], details: h.from.Keys, head: h}
			d.change = release.Change{Keys: &ids, Cause: release.Cause{Action: d.action, By: w.Actor.Name, Reason: w.Reason}}
			out, err = a.commit(ctx, w, d)
			return err
		})
		return out, err
	})
	if err == nil {
		a.acknowledge(ctx, &out, normalWait)
	}
	return out, err
}

// unused is an error while a list is hashed under another key than the current one.
func (a *Actions) unused(ctx context.Context, m *release.Manifest, current string) error {
	for _, l := range m.Document.Lists {
		stored, err := a.stored(ctx, m, l.Key)
		if err != nil {
			return err
		}
		if stored.Index.KeyID != current {
			return fault.New(fault.Conflict, "key_in_use", "list %s is hashed under the key %s", l.Key, stored.Index.KeyID).
				WithHint("POST /api/v1/keys/rehash first")
		}
	}
	return nil
}

// rehashed is a list under the key; nil when it is already.
func (a *Actions) rehashed(ctx context.Context, m *release.Manifest, list string, key whitelist.Key) (*whitelist.Content, error) {
	stored, err := a.stored(ctx, m, list)
	if err != nil || stored.Index.KeyID == key.ID {
		return nil, err
	}
	return stored.Rehash(key)
}
