package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"dispatch.example/dispatch/domain"
)

// Format is the newest manifest format this program writes and reads.
const Format = 1

// StreamEdge is the stream of releases that edges serve. Each stream has its own numbers.
const StreamEdge = "edge"

// Digest is the SHA-256 of a blob, the name under which it is stored and fetched.
type Digest [sha256.Size]byte

// String is lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Manifest is one release without its lists and tables, which it names by digest.
type Manifest struct {
	Format      int               `json:"format"`
	Deployment  string            `json:"deployment"`
	Stream      string            `json:"stream"`
	Number      uint64            `json:"number"`
	Parent      uint64            `json:"parent"`
	Created     time.Time         `json:"created"`
	Cause       Cause             `json:"cause"`
	Document    Document          `json:"document"`
	Operational Operational       `json:"operational"`
	Keys        KeyIDs            `json:"keys"`
	Lists       map[string]Digest `json:"lists,omitempty"`  // list key → blob of its whitelist index
	Tables      map[string]Digest `json:"tables,omitempty"` // table key → blob of its CSV
	Approved    Approved          `json:"approved,omitzero"`
	Clears      bool              `json:"clears_overrides,omitempty"`
}

// Cause is who made a release, how and why. By is a login or token name, never an id from traffic.
type Cause struct {
	Action string `json:"action"` // publish, relive, swap, region_state, import, patch …
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// KeyIDs names the keys an edge needs: current first. Key bytes never travel.
type KeyIDs struct {
	Session []string `json:"session"`
	List    []string `json:"list"`
}

// Approved are marks for moves that an edge refuses without one. Each mark names
// the release where it was approved.
type Approved struct {
	Hosts         map[string]uint64 `json:"hosts,omitempty"`
	BigMove       uint64            `json:"big_move,omitempty"`
	RegionRemoved uint64            `json:"region_removed,omitempty"`
}

// Operational is the state that changes at night, beside the document that
// changes by review. A new document keeps it.
type Operational struct {
	Apps   map[string]AppState `json:"apps,omitempty"`
	Frozen bool                `json:"frozen,omitempty"`
}

// AppState is one app's operational state. Keys of Endpoints are REGION/ENDPOINT.
type AppState struct {
	Regions   map[string]RegionOps   `json:"regions,omitempty"`
	Endpoints map[string]EndpointOps `json:"endpoints,omitempty"`
	Policies  map[string]PolicyOps   `json:"policies,omitempty"`
	Salts     map[string]string      `json:"salts,omitempty"` // see policy.Rules.Salts
}

// RegionOps overrides a region's state of the document; Epoch only rises.
type RegionOps struct {
	State domain.RegionState `json:"state,omitempty"`
	Epoch uint32             `json:"epoch,omitempty"`
}

// EndpointOps overrides an endpoint's state and weight of the document.
type EndpointOps struct {
	State  domain.EndpointState `json:"state,omitempty"`
	Weight *int                 `json:"weight,omitempty"`
}

// PolicyOps holds a policy's epoch, which only rises, and its gray position.
type PolicyOps struct {
	Epoch uint32 `json:"epoch,omitempty"`
	Share *int   `json:"share,omitempty"`
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
