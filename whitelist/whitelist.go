// Package whitelist answers which lists hold an id, for lists of millions.
//
// An id takes one way through the package:
//
//	raw id ─ Normalizer ─► normal form ─ Key.Hash ─► 16-byte hash ─ Index.Lookup ─► Lists
//
// The control side turns ids into content: Build and Import make a Content, and
// Stored, which is a list as the store keeps it, makes a Patch of a few ids.
// Content is an IndexBlob and its chunks, named by SHA-256: a list's distinct
// hashes, sorted and split by their top bits into chunks of about 2,048. Beside
// each chunk stand its raw ids in the same order, which the store seals and
// edges never see.
//
// The edge side keeps one Index for all lists of a release. It is immutable, so
// that readers take no lock and see one release or another, never a mix; With
// makes the next Index and shares every partition in which nothing changed. A
// partition is a sorted array of (hash, number of a set of lists), so one
// look-up answers for every list; it needs no chunk in memory. An id costs about
// 19 bytes: 16 of hash, 2 of set, the rest directory and rounding.
//
// Nothing here starts a goroutine, reads a clock or keeps state between calls.
// Bad input is a *fault.Error that lists what is wrong. Content that contradicts
// its digests or its order is refused whole: the caller keeps the Index it had.
package whitelist

// Of says which of a request's ids a list holds.
type Of string

// The kinds of id.
const (
	Device Of = "device"
	User   Of = "user"
)

// Valid says whether this is one of the kinds above.
func (o Of) Valid() bool { return o == Device || o == User }
