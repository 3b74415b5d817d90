package actions

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// listChange is new content of lists on its way to a release.
type listChange struct {
	action, target string
	lists          []newIndex
	blobs          []whitelist.Blob // chunks
	details        map[string]any
	answer         func(Outcome) any
}

// newIndex is what a list becomes.
type newIndex struct {
	list  string
	seen  release.Digest // of the index that the change was made from
	index *whitelist.IndexBlob
}

// changeLists makes the release, unless somebody else changed one of the lists
// meanwhile. Other changes do not matter: the new release is made from the newest.
func (a *Actions) changeLists(ctx context.Context, w Write, c listChange) (out Outcome, err error) {
	err = a.alone(ctx, func(ctx context.Context) error {
		h, err := a.editable(ctx)
		if err != nil {
			return err
		}
		doc, lists, blobs := h.from.Document, maps.Clone(h.from.Lists), c.blobs
		doc.Lists = slices.Clone(doc.Lists)
		for _, n := range c.lists {
			if h.from.Lists[n.list] != n.seen {
				return listChanged(n.list)
			}
			data := n.index.Bytes()
			digest := release.DigestOf(data)
			for i := range doc.Lists {
				if doc.Lists[i].Key == n.list {
					doc.Lists[i].Digest, doc.Lists[i].Count = digest.String(), n.index.Count
				}
			}
			lists[n.list] = digest
			blobs = append(blobs, whitelist.Blob{Digest: digest, Bytes: data})
		}
		out, err = a.commit(ctx, w, draft{action: c.action, target: c.target, details: c.details, head: h, answer: c.answer, blobs: blobs,
			change: release.Change{Document: &doc, Lists: lists,
				Cause: release.Cause{Action: c.action, By: w.Actor.Name, Reason: w.Reason}}})
		return err
	})
	return out, err
}

func listChanged(list string) error {
	return fault.New(fault.Conflict, "list_changed", "somebody else changed list %s meanwhile", list).WithHint("look at it, then try again")
}

// listEdit is new content of one list, on its way to a release or to a second person.
type listEdit struct {
	action         string // import or patch
	list           string
	of             whitelist.Of
	seen           release.Digest // of the index that it was made from
	had            int            // ids in that
	index          *whitelist.IndexBlob
	blobs          []whitelist.Blob // new chunks, stored by now, without raw ids
	added, removed int
	bad            int // lines that were left out
}

func (e listEdit) details() map[string]any {
	return map[string]any{"added": e.added, "removed": e.removed, "bad_lines": e.bad, "count": e.index.Count}
}

// change is the edit as changeLists takes it.
func (e listEdit) change(answer func(Outcome) any) listChange {
	return listChange{action: e.action, target: e.list, lists: []newIndex{{e.list, e.seen, e.index}}, blobs: e.blobs, details: e.details(), answer: answer}
}

// keepBlobs stores the chunks as they come, with the index, and returns the hashes of
// those that the list did not have. stored hears how many chunks are there.
func (a *Actions) keepBlobs(ctx context.Context, e listEdit, old *whitelist.IndexBlob, blobs iter.Seq[whitelist.Blob], stored func(int)) ([]whitelist.Blob, error) {
	had := make(map[release.Digest]bool, len(old.Digests))
	for _, d := range old.Digests {
		had[d] = true
	}
	var fresh []whitelist.Blob
	n := 0
	data := e.index.Bytes()
	err := a.Ledger.PutBlobs(ctx, func(yield func(whitelist.Blob) bool) {
		for b := range blobs {
			if !yield(b) {
				return
			}
			if b.Raw = nil; !had[b.Digest] { // they are stored; a release needs the hashes alone
				fresh = append(fresh, b)
			}
			n++
			stored(n)
		}
		yield(whitelist.Blob{Digest: release.DigestOf(data), Bytes: data})
	})
	if err != nil {
		return nil, fmt.Errorf("store ids of list %s: %w", e.list, err)
	}
	return fresh, nil
}

// chunks are the stored chunks of an index that old does not have.
func (a *Actions) chunks(ctx context.Context, index, old *whitelist.IndexBlob) ([]whitelist.Blob, error) {
	had := make(map[release.Digest]bool, len(old.Digests))
	for _, d := range old.Digests {
		had[d] = true
	}
	had[release.DigestOf(nil)] = true // the chunk without ids is stored nowhere
	var fresh []whitelist.Blob
	for _, d := range index.Digests {
		if had[d] {
			continue
		}
		data, err := a.Ledger.Blob(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("read chunk: %w", err)
		}
		fresh = append(fresh, whitelist.Blob{Digest: d, Bytes: data})
	}
	return fresh, nil
}
