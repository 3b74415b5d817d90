package release

import (
	"time"

	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// Snapshot is a release compiled for answering. It is immutable; a request takes
// it once from the Keeper and sees one consistent world.
type Snapshot struct {
	Number   uint64
	Seq      uint64 // of its records
	Digest   Digest // of the manifest bytes
	Created  time.Time
	Issued   time.Time          // of its records
	Manifest *Manifest          // what it was compiled from; not to be changed
	Signed   Signed             // as it came; zero in a draft
	Override *Override          // laid over it here; nil: none. Manifest knows nothing of it
	Apps     map[string]*Served // by key
	Hosts    map[string]*Served // by request host
	Default  *Served            // nil: no default
	Lists    *whitelist.Index

	parts parts     // what the next snapshot may reuse
	under *Snapshot // what Override lies over; nil without one
}

// Served is one app, ready to answer.
type Served struct {
	App    *App // of the document, operational state applied to its regions
	Table  *policy.Table
	IDs    *whitelist.Normalizer
	Life   policy.SessionLife
	Answer [][]Answer // by region and endpoint index; standby ones included, closed ones empty
	// Fallback is the answer that names no region.
	Fallback Answer

	source  string // what Table and IDs were compiled from
	routing string // the part of source, and of the rest, that chooses regions
	walked  *walked
}

// parts are what a snapshot was made of, by what tells them apart.
type parts struct {
	lists    map[string]listPart
	tables   map[string]tablePart
	prefixes map[string]*policy.Prefixes
	sessions *policy.SessionKeys
	keys     KeyIDs
	blobs    []Digest // everything that was read, in the order of reading
}

type listPart struct {
	digest Digest
	of     whitelist.Of
	blob   *whitelist.IndexBlob
}

type tablePart struct {
	digest   Digest
	prefixes *policy.Prefixes
}

// Blobs are the digests of all lists and tables that the release consists of,
// in the order in which a load reads them.
func (s *Snapshot) Blobs() []Digest { return s.parts.blobs }

// released is the snapshot as it was signed, without an override. Releases are
// compared with that: what one replica does on its own must not decide what it accepts.
func (s *Snapshot) released() *Snapshot {
	if s == nil || s.under == nil {
		return s
	}
	return s.under
}

// Expires is when clients stop believing the records unless they are renewed.
func (s *Snapshot) Expires() time.Time { return s.Issued.Add(RecordLife) }

// Mark is the snapshot's place in its stream; that of nil is the zero Mark.
func (s *Snapshot) Mark() signed.Mark {
	if s == nil {
		return signed.Mark{}
	}
	return signed.Mark{Number: s.Number, Seq: s.Seq, Digest: s.Digest}
}
