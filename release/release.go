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
//	Disk                    copies of the last five Signed and the Blobs that they name
//
// Nobody owns a goroutine here. A request reads Keeper.Current once, which is one
// atomic load, and everything it then sees is immutable. Whoever brings a
// release (a publisher in this process, a source, the disk at start) calls
// Keeper.Accept from its own goroutine; one Accept runs at a time.
//
// What a failure does:
//
//   - A document or change that is wrong is refused with every mistake at once;
//     nothing is published.
//   - A release that a Loader refuses, or panics on, changes nothing: the Keeper
//     serves the one it had, for ever if need be, and counts the reason.
//   - A file that is damaged is set aside as .bad and an older one serves.
//   - A disk that cannot be written is reported in Status; serving goes on.
//   - Without any release Current is nil, and the process is not ready.
//
// Keys never travel: a manifest names session and list keys, a Keyring holds them.
package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Format is the newest manifest format this program writes and reads.
const Format = 1

// StreamEdge is the stream of releases that edges serve. Each stream has its own numbers.
const StreamEdge = "edge"

// Digest is the SHA-256 of a blob, the name under which it is stored and fetched.
type Digest [sha256.Size]byte

// DigestOf is the digest of a blob.
func DigestOf(blob []byte) Digest { return sha256.Sum256(blob) }

// String is lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText is String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads lower-case hex.
func (d *Digest) UnmarshalText(text []byte) error {
	var read Digest
	if n, err := hex.Decode(read[:], text[:min(len(text), 2*len(read))]); err != nil || n != len(read) || read.String() != string(text) {
		return fmt.Errorf("%q is not a digest: 64 lower-case hex digits", text)
	}
	*d = read
	return nil
}

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

// Blobs gives list indexes, chunks and tables by digest. Every reader checks the digest.
type Blobs interface {
	Blob(ctx context.Context, d Digest) ([]byte, error)
}
