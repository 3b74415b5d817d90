package actions

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// Adopt brings the release that is served into a ledger that was restored from a
// backup and lacks it, with its lists and tables as far as this process has them.
// The keeper has verified its signature. Where only lists and tables are missing,
// it brings those.
func (a *Actions) Adopt(ctx context.Context, w Write) (Outcome, error) {
	out, err := remembered(ctx, a, w, asked{"adopt", nil}, func(w Write) (out Outcome, err error) {
		cur := a.Keeper.Current()
		if cur == nil {
			return Outcome{}, noRelease()
		}
		warnings, err := a.bringParts(ctx, cur)
		if err != nil {
			return Outcome{}, err
		}
		err = a.alone(ctx, func(ctx context.Context) error {
			out, err = a.adopt(ctx, w, cur, warnings)
			return err
		})
		return out, err
	})
	if err == nil {
		a.wake()
		a.acknowledge(ctx, &out, normalWait)
	}
	return out, err
}

func (a *Actions) adopt(ctx context.Context, w Write, cur *release.Snapshot, warnings []fault.Problem) (Outcome, error) {
	h, err := a.head(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if h.newest.Number >= cur.Number {
		warnings = append(warnings, fault.Problem{Detail: fmt.Sprintf("the database has release %d already", h.newest.Number)})
		return Outcome{Release: h.newest.Number, Warnings: warnings}, nil
	}
	out := Outcome{Release: cur.Number, Warnings: warnings}
	if err := w.remember(out); err != nil {
		return Outcome{}, err
	}
	err = a.Ledger.Adopt(ctx, ledger.Write{Base: h.newest.Number, Signed: cur.Signed,
		Hosts: slices.Sorted(maps.Keys(cur.Manifest.Approved.Hosts)), Change: w.change("adopt", fmt.Sprintf("release %d", cur.Number))})
	if err != nil {
		return Outcome{}, fmt.Errorf("adopt release %d: %w", cur.Number, err)
	}
	return out, nil
}

// bringParts stores the lists and tables of a release that the ledger lacks. Raw ids
// come from nowhere: they were in the ledger alone.
func (a *Actions) bringParts(ctx context.Context, s *release.Snapshot) (warnings []fault.Problem, err error) {
	missing, err := a.Ledger.MissingBlobs(ctx, s.Blobs())
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	if a.Copies == nil {
		return nil, fault.New(fault.Unavailable, "missing_part", "%d lists and tables of release %d are not here", len(missing), s.Number).
			WithHint("ask a control node that has a copy on its disk")
	}
	var unread error
	err = a.Ledger.PutBlobs(ctx, func(yield func(whitelist.Blob) bool) {
		for _, d := range missing {
			var data []byte
			if data, unread = a.Copies.Blob(ctx, d); unread != nil || !yield(whitelist.Blob{Digest: d, Bytes: data}) {
				return
			}
		}
	})
	switch {
	case unread != nil:
		return nil, fault.New(fault.Unavailable, "missing_part", "a list or table of release %d is not here", s.Number).
			WithHint("ask a control node that has it on its disk, or publish the document anew with its lists").Because(unread)
	case err != nil:
		return nil, fmt.Errorf("store lists and tables of release %d: %w", s.Number, err)
	}
	return []fault.Problem{{Detail: fmt.Sprintf("%d parts of lists and tables came from the copy on disk, without raw ids", len(missing)),
		Hint: "such a list can be replaced by an import; a patch or a new list key needs that import first"}}, nil
}
