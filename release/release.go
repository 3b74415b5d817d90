// Package release is everything between a document that people wrote and the
// answers that requests get.
//
// The types, in the order in which a change passes them:
//
//	Document, Operational   what people review, and what changes at night
//	Manifest                both as one numbered release; Next makes it from the one before
//	Signed                  its exact bytes, their signature and the domain records; Sign makes it
//	Snapshot                a Signed that Loader has believed and compiled for answering
//	Keeper                  the one pointer to the Snapshot in use
//	Override                emergency actions that one replica lays over every Snapshot for a time
//	Disk                    copies of the last five Signed and the Blobs that they name
//
// Before a Snapshot serves, it has to answer the golden requests, a file of ten
// thousand that stands in for everybody: none may get nowhere, and what moves is
// counted against what was approved. Golden is its answers in writing.
//
// Nobody owns a goroutine here. A request reads Keeper.Current once, which is one
// atomic load, and everything it then sees is immutable. Whoever brings a
// release (a publisher in this process, a source, the disk at start) calls
// Keeper.Accept from its own goroutine; one release loads at a time, and gives way
// to a newer one. The owner of the Keeper calls Expire when an override is over.
//
// What a failure does:
//
//   - A document or change that is wrong is refused with every mistake at once;
//     nothing is published.
//   - A release that a Loader refuses, or panics on, changes nothing: the Keeper
//     serves the one it had, for ever if need be, and counts the reason.
//   - What is of the kind Unavailable is no fault of the release, and whoever follows
//     may offer it again at once: missing_part, a part that no source has, and
//     superseded, a load that gave way to a newer release. Any other is its fault.
//   - An override that does not fit a release has no effect while that is so, and
//     Status says it; one whose file is damaged is gone, and Status says that.
//   - A file that is damaged is set aside as .bad and an older one serves.
//   - A disk that cannot be written is reported in Status; serving goes on.
//   - Without any release Current is nil, and the process is not ready.
//
// Keys never travel: a manifest names session and list keys, a Keyring holds them.
package release

// Format is the newest manifest format this program writes and reads.
const Format = 1

// StreamEdge is the stream of releases that edges serve. Each stream has its own numbers.
const StreamEdge = "edge"

// Signed is a release as it is stored and travels: the exact manifest bytes, their
// detached signature, and the domain records signed for it.
type Signed struct {
	Stream    string
	Number    uint64
	Manifest  []byte
	Signature string // detached JWS over Manifest, typ dispatch-manifest
	Records   RecordSet
}

// RecordSet holds the pre-signed domain records of one release. Renewal makes a
// set with the same release and a higher Seq.
type RecordSet struct {
	Release   uint64
	Seq       uint64
	Bytes     []byte // JSON, see records.go
	Signature string // detached JWS over Bytes, typ dispatch-records
}
