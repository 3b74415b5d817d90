// Package ledger is what the control plane writes down: releases in their
// order, hosts with who proposed and who approved them, tokens, and the audit
// chain over all of it. It holds the nouns that the store keeps and that the
// actions and pages read, so that neither imports the other. It does nothing by
// itself.
package ledger

import (
	"encoding/json"
	"iter"
	"time"

	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// Change says who changes something and why. Each becomes one audit row, in the
// transaction of what it changes.
type Change struct {
	By      string          // a login or the name of a token, never an id from traffic
	Reason  string          // as the person gave it
	Action  string          // what is done; a method that does only one thing sets it
	Target  string          // what it is done to; set like Action
	Details json.RawMessage // kept byte for byte; empty means {}
	Once    *Once           // the answer to remember under the caller's idempotency key
}

// Once is the answer to a write under the caller's Idempotency-Key.
type Once struct {
	Key      string
	Request  release.Digest // of the request: the same key with another one is a mistake
	Status   int
	Response []byte // must hold no secret
}

// Write is one release to append to its stream.
type Write struct {
	Base   uint64         // the head that the author saw
	Signed release.Signed // its number must be above the head
	Hosts  []string       // every host it may send people to; each must be approved
	Change Change         // Action as in the manifest's cause
	// Canary is the replica that shall serve the release first, alone; empty: all
	// at once. A canary that still runs is superseded either way.
	Canary string

	// Blobs are the chunks, indexes and tables that may not be stored yet; nil: none.
	Blobs iter.Seq[whitelist.Blob]
}

// Summary is one release in a list.
type Summary struct {
	Stream  string         `json:"stream"`
	Number  uint64         `json:"number"`
	Parent  uint64         `json:"parent"` // the head it was appended to
	Created time.Time      `json:"created"`
	Action  string         `json:"action"`
	By      string         `json:"by"`
	Reason  string         `json:"reason,omitempty"`
	Digest  release.Digest `json:"-"` // of the manifest
}

// Rollout is how far the newest release of a stream has come.
type Rollout struct {
	Head    uint64    `json:"head"`             // the newest release
	All     uint64    `json:"all"`              // the newest one that everybody may serve
	Canary  string    `json:"canary,omitempty"` // who serves Head alone, while Head > All
	Started time.Time `json:"started,omitzero"` // of the canary
}

// StaleBase is the Data of the conflict stale_base.
type StaleBase struct {
	Base uint64 `json:"base"`
	Head uint64 `json:"head"`
}

// Host is a host that releases may send people to once it is approved.
type Host struct {
	Host        string    `json:"host"`
	Proposer    string    `json:"proposer"`
	Proposed    time.Time `json:"proposed"`
	Reason      string    `json:"reason,omitempty"`
	Approver    string    `json:"approver,omitempty"` // empty: not approved
	Approved    time.Time `json:"approved,omitzero"`
	FourEyesOff bool      `json:"four_eyes_off,omitempty"` // one person did both
	// Adopted is the release, as STREAM/NUMBER, whose adoption registered the host.
	// The signature on that release stands in for the proposer.
	Adopted string `json:"adopted,omitempty"`
}

// AuditEntry is one row of the audit chain.
type AuditEntry struct {
	Seq     uint64          `json:"seq"`
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`
	Action  string          `json:"action"`
	Target  string          `json:"target,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Details json.RawMessage `json:"details"`
	Stream  string          `json:"stream,omitempty"`
	Release uint64          `json:"release,omitempty"`
	Hash    release.Digest  `json:"-"`
}

// AuditFilter narrows a reading of the audit chain; zero fields do not.
type AuditFilter struct {
	Actor, Action, Target string
	Stream                string
	Release               uint64
	Since, Until          time.Time // Since ≤ at < Until
	Before                uint64    // only rows older than the one with this seq: the next page
	Limit                 int       // default 100, at most 1000
}

// AuditHead is the end of the chain. Kept outside the database, it shows a cut
// or a rewrite of everything before it.
type AuditHead struct {
	Seq  uint64
	Hash release.Digest
}

// AuditCheck is what a walk over the whole chain found.
type AuditCheck struct {
	Head    AuditHead // the last good row
	Bad     uint64    // seq of the first bad row; 0: none
	Problem string    // what is wrong with it
}

// Token is a credential of a pipeline or a person. Its secret is not kept.
type Token struct {
	ID       int64     `json:"id"`
	Name     string    `json:"name"` // who acts with it, in Change.By
	Role     string    `json:"role"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"` // zero: never
	Revoked  time.Time `json:"revoked,omitzero"`
	LastUsed time.Time `json:"last_used,omitzero"` // to the minute
}

// NewToken describes a token to make.
type NewToken struct {
	Type    string // a few lower-case letters that say what leaked, e.g. adm
	Name    string
	Role    string
	Expires time.Time // zero: never
}
