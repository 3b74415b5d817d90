package actions

import (
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// Confirmation is what must be typed to confirm an emergency: the regions, the
// clusters or the policies that it acts on, each once and in the order of the
// targets, so that who types has read which. With Options.Env the environment
// stands before it: the same window on the wrong installation is refused.
func (a *Actions) Confirmation(e Emergency) string {
	var words []string
	for _, t := range e.Targets {
		word := t.Region
		switch e.Action {
		case SetClusterState:
			word = t.Region + "/" + t.Cluster
		case AbortGray:
			word = t.Policy
		case Freeze:
			if word = "freeze"; t.State == "open" {
				word = "unfreeze"
			}
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return a.typed(strings.Join(words, ","))
}

// ConfirmRelive is what must be typed to make release n live again.
func (a *Actions) ConfirmRelive(n uint64) string { return a.typed(fmt.Sprintf("release %d", n)) }

// typed is what must be typed for a word in this environment.
func (a *Actions) typed(word string) string {
	if a.Env == "" {
		return word
	}
	return a.Env + "/" + word
}

// confirmed is a refusal unless w carries what must be typed, in whatever case.
func (w Write) confirmed(want string) error {
	if strings.EqualFold(strings.TrimSpace(w.Confirm), want) {
		return nil
	}
	err := fault.New(fault.Invalid, "confirm_mismatch", "this must be confirmed with %q; nothing was changed", want)
	if w.Confirm != "" {
		err = fault.New(fault.Invalid, "confirm_mismatch", "%q does not confirm this; nothing was changed", w.Confirm)
	}
	err.Data = map[string]string{"confirm": want}
	return err.Hintf("read what will change, then give confirm: %s", want)
}
