package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
)

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

// Blobs gives list indexes, chunks and tables by digest. Every reader checks the digest.
type Blobs interface {
	Blob(ctx context.Context, d Digest) ([]byte, error)
}

// MemoryBlobs are blobs in memory, for releases that never were anywhere else.
type MemoryBlobs map[Digest][]byte

// Add adds a blob and returns its digest.
func (m MemoryBlobs) Add(data []byte) Digest {
	d := DigestOf(data)
	m[d] = data
	return d
}

// Blob is the blob, or fs.ErrNotExist.
func (m MemoryBlobs) Blob(_ context.Context, d Digest) ([]byte, error) {
	data, ok := m[d]
	if !ok {
		return nil, &fs.PathError{Op: "read blob", Path: d.String(), Err: fs.ErrNotExist}
	}
	return data, nil
}
