// Package whitelist is a part of dispatch.
package whitelist

// Of says which of a request's ids a list holds.
type Of string

// The kinds of id.
const (
	Device Of = "device"
	User   Of = "user"
)

// Hash is SipHash-2-4-128(list key, of ++ 0x00 ++ id).
type Hash [16]byte

// Lists is the set of lists that hold one id.
type Lists struct{}

// Has says whether list number n (see Index.Number) holds the id.
func (l Lists) Has(n int) bool { panic("unbuilt") }

// Index answers for all lists of a release at once. It is immutable.
type Index struct{}

// Number is the number of the list with this key.
func (x *Index) Number(list string) (n int, ok bool) { panic("unbuilt") }

// Of is which kind of id list n holds.
func (x *Index) Of(n int) Of { panic("unbuilt") }

// Lookup finds all lists that hold the id, which is in normal form. An empty id is in none.
// It neither allocates nor locks.
func (x *Index) Lookup(of Of, id string) Lists { panic("unbuilt") }

// Normalizer turns raw ids into their normal form.
type Normalizer struct{}

// Absence says why an id counts as absent.
type Absence uint8

// Normalize is the id's normal form, or empty and the reason why it counts as absent.
func (n *Normalizer) Normalize(raw string) (id string, why Absence) { panic("unbuilt") }
