package release

import (
	"slices"

	"dispatch.example/dispatch/policy"
)

// FoldsIDs says whether the ids of a list are folded: as the apps whose policies
// use it do. mixed: some of them do and some do not, so that no spelling of an
// id could serve all. A list that no policy uses keeps its ids as they are.
func (d *Document) FoldsIDs(list string) (folds, mixed bool) {
	exact := false
	for i := range d.Apps {
		app := &d.Apps[i]
		uses := false
		app.conditions(func(w *policy.When) { uses = uses || slices.Contains(w.InList, list) })
		if !uses {
			continue
		}
		if app.IDCase == CaseFold {
			folds = true
		} else {
			exact = true
		}
	}
	return folds, folds && exact
}
