package pages

import (
	"encoding/json"
	"strconv"

	"dispatch.example/dispatch/admin/actions"
)

// emergencies are the actions that can be undone by another emergency.
func emergencies() []string {
	return []string{actions.SwapEndpoints, actions.SetRegionState, actions.SetClusterState, actions.AbortGray, actions.Freeze}
}

// undo is the emergency that sets back what the audit trail says of one. It is nil
// for an aborted gray, which only its plan can start again, and for more targets
// than a form has fields for: there the release before is made live again.
func undo(action string, details json.RawMessage) *actions.Emergency {
	var targets []actions.Target
	if json.Unmarshal(details, &targets) != nil {
		var named struct{ Targets []actions.Target }
		if json.Unmarshal(details, &named) != nil {
			return nil
		}
		targets = named.Targets
	}
	if len(targets) != 1 || action == actions.AbortGray {
		return nil
	}
	t := targets[0]
	if action == actions.SwapEndpoints {
		t.From, t.To, t.Expect = t.To, t.From, t.To
	} else {
		t.State, t.Expect = t.Expect, t.State
	}
	return &actions.Emergency{Action: action, Targets: []actions.Target{t}}
}

// number64 is a number of an address, 0 for anything else.
func number64(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
