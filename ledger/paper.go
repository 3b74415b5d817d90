package ledger

import (
	"encoding/json"
	"time"

	"dispatch.example/dispatch/release"
)

// The kinds of paper.
const (
	Draft    = "draft"    // a change that nobody serves yet
	Gray     = "gray"     // the plan of a gray; its id is APP/POLICY
	Settings = "settings" // one paper with the id "settings"
	Import   = "import"   // content of a list that nobody uses yet
)

// Paper is what people work on beside the releases: it is changed in place, by
// compare-and-set on Rev, and the audit trail has each change. What Body holds is
// the business of admin/actions.
type Paper struct {
	Kind    string          `json:"kind"`
	ID      string          `json:"id"`
	Rev     uint64          `json:"rev"`   // of a write: the one that its author saw; 0: a new paper
	State   string          `json:"state"` // a word of its kind; papers are found by it
	By      string          `json:"by"`    // who began it
	Created time.Time       `json:"created"`
	Changed time.Time       `json:"changed"`
	Body    json.RawMessage `json:"body"`
}

// PaperFilter narrows a reading of papers of one kind.
type PaperFilter struct {
	States []string // nil: any
	Limit  int      // default 100, at most 1000; newest change first
}

// The kinds of what a second person signs. Hosts have rows of their own.
const (
	OfDraft   = "draft"   // before it is published; Digest is that of the exact difference and its base
	OfRelease = "release" // after an emergency; Digest is that of the manifest
	OfGray    = "gray"    // the plan; Digest is that of its steps
	OfList    = "list"    // an import that removes much; Digest is that of its content, of what it follows and of its paper
)

// Approval is a second person's signature. The database refuses one by the author.
type Approval struct {
	Kind        string         `json:"kind"`
	ID          string         `json:"id"`
	Digest      release.Digest `json:"digest"`
	Author      string         `json:"author"` // of a release, as the store has it
	Approver    string         `json:"approver"`
	At          time.Time      `json:"at"`
	Reason      string         `json:"reason,omitempty"`
	FourEyesOff bool           `json:"four_eyes_off,omitempty"` // one person did both
}
