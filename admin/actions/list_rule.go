package actions

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// listRemoval is the need of what takes more ids out of a list than one person may.
const listRemoval = "list_removal"

// ConfirmList is what must be typed to remove that many ids of a list.
func (a *Actions) ConfirmList(list string) string { return a.typed(list) }

// removal is why taking removed of had ids out of a list takes a second person.
func (a *Actions) removal(ctx context.Context, list string, had, removed int) ([]Need, error) {
	s, err := a.settings(ctx)
	if err != nil {
		return nil, err
	}
	return s.removal(list, had, removed), nil
}

func (s Settings) removal(list string, had, removed int) []Need {
	limit := s.Safety.RemoveFromListPercent
	if removed*100 <= had*limit {
		return []Need{}
	}
	return []Need{newNeed(listRemoval, fmt.Sprintf("lists[%s]", list), fault.Textf("%d of %d ids go, more than %d %%", removed, had, limit))}
}

// listNeeds are the lists of which a document takes more than one person may: by
// other ids, or by leaving the list out.
func (a *Actions) listNeeds(ctx context.Context, d draft, next *release.Manifest) ([]Need, error) {
	needs := []Need{}
	if d.from == nil {
		return needs, nil
	}
	s, err := a.settings(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range d.from.Document.Lists {
		if l.Count == 0 || d.from.Lists[l.Key] == next.Lists[l.Key] {
			continue
		}
		left := 0
		if digest, ok := next.Lists[l.Key]; ok {
			if left, err = a.shared(ctx, d, l.Key, digest); err != nil {
				return nil, fmt.Errorf("compare list %s with what it becomes: %w", l.Key, err)
			}
		}
		for _, n := range s.removal(l.Key, l.Count, l.Count-left) {
			needs = append(needs, newNeed(n.Code, n.Path, fault.Textf("%s; import the ids by themselves, which somebody else approves", n.Said)))
		}
	}
	return needs, nil
}

// shared is how many ids a list of the draft's parent keeps under another index. Both
// are in the order of their hashes, so one walk over each is enough.
func (a *Actions) shared(ctx context.Context, d draft, list string, digest release.Digest) (n int, err error) {
	stored, err := a.stored(ctx, d.from, list)
	if err != nil {
		return 0, err
	}
	blobs := a.blobs(d)
	data, err := blobs.Blob(ctx, digest)
	if err != nil {
		return 0, err
	}
	index, err := whitelist.ParseIndexBlob(data)
	if err != nil {
		return 0, err
	}
	was := hashes(ctx, stored.Index, blobs, &err)
	if index.KeyID != stored.Index.KeyID {
		if was, err = a.hashedAnew(stored); err != nil {
			return 0, err
		}
	}
	next, stop := iter.Pull(hashes(ctx, index, blobs, &err))
	defer stop()
	now, more := next()
	for old := range was {
		for more && bytes.Compare(now, old) < 0 {
			now, more = next()
		}
		if more && bytes.Equal(now, old) {
			n++
		}
	}
	return n, err
}

// hashes are those of the list in rising order. A failure ends them and stands in err.
func hashes(ctx context.Context, index *whitelist.IndexBlob, blobs release.Blobs, err *error) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, d := range index.Digests {
			if d == release.DigestOf(nil) { // a chunk without ids is stored nowhere
				continue
			}
			chunk, failed := blobs.Blob(ctx, d)
			if failed != nil {
				*err = failed
				return
			}
			for hash := range slices.Chunk(chunk, len(whitelist.Hash{})) {
				if !yield(hash) {
					return
				}
			}
		}
	}
}

// hashedAnew are the hashes of the list's ids under the current key.
func (a *Actions) hashedAnew(list *whitelist.Stored) (iter.Seq[[]byte], error) {
	key, err := a.listKey()
	if err != nil {
		return nil, err
	}
	var all []whitelist.Hash
	for id, err := range list.All() {
		if err != nil {
			return nil, err
		}
		all = append(all, key.Hash(list.Of, id))
	}
	slices.SortFunc(all, func(x, y whitelist.Hash) int { return bytes.Compare(x[:], y[:]) })
	return func(yield func([]byte) bool) {
		for i := range all {
			if !yield(all[i][:]) {
				return
			}
		}
	}, nil
}
