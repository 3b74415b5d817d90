package release

// The document is what people write and review: apps with their regions and
// rules, lists and tables. It makes three steps before a release serves it.
//
//	Parse   text → Document         what is written: keys, types, words, units; line and path of every mistake
//	Check   Document → warnings     what it means: names that exist, sums, hosts, dates, limits
//	Apply   Document → []App        what serves: the operational state laid over it
//
// The json tags of the types are the schema: Parse knows no other. The JSON form
// of a parsed document parses to an equal one, so a manifest carries it as JSON.
// Nothing here starts a goroutine, reads a clock or a file. Mistakes in the input
// are one *fault.Error of kind Invalid that lists all of them.
//
// Operational state stands beside the document, because it changes at night.
// Carry takes it over to the next document; Swap and SetRegionState change it;
// Diff shows what two pairs of both differ in. All are pure functions.

import (
	"cmp"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// Document is the configuration as people write and review it.
type Document struct {
	AbsentIDs []string `json:"absent_ids,omitempty"` // ids that count as absent; replaces whitelist.DefaultAbsent
	Apps      []App    `json:"apps"`
	Lists     []List   `json:"lists,omitempty"`
	Tables    []Table  `json:"tables,omitempty"`
}

// App is one system that asks for its domain.
type App struct {
	Key        string          `json:"key"`
	Default    bool            `json:"default,omitempty"`
	Name       string          `json:"name,omitempty"`
	Hosts      []string        `json:"hosts,omitempty"`
	Fallback   string          `json:"fallback"`
	SessionTTL Duration        `json:"session_ttl,omitempty"` // default 30m
	SessionMax Duration        `json:"session_max,omitempty"` // default 12h
	BucketBy   policy.BucketBy `json:"bucket_by,omitempty"`
	Identity   Identity        `json:"identity,omitzero"`
	IDCase     string          `json:"id_case,omitempty"` // exact (default) | fold
	Regions    []domain.Region `json:"regions"`
	Origins    []policy.Origin `json:"origins,omitempty"`
	Policies   []policy.Policy `json:"policies,omitempty"`
	Otherwise  policy.Action   `json:"otherwise"`
	// Salts states salts that no policy carries: otherwise, failover/REGION and
	// endpoint/REGION. One that is absent stays as it is stored.
	Salts map[string]string `json:"salts,omitempty"`
}

// What a session lives by when the document says nothing.
const (
	DefaultSessionTTL = 30 * time.Minute
	DefaultSessionMax = 12 * time.Hour
)

// Life is how long a session lives, with the defaults applied.
func (a *App) Life() policy.SessionLife {
	life := policy.SessionLife{TTL: DefaultSessionTTL, Max: DefaultSessionMax}
	if a.SessionTTL > 0 {
		life.TTL = time.Duration(a.SessionTTL)
	}
	if a.SessionMax > 0 {
		life.Max = time.Duration(a.SessionMax)
	}
	return life
}

// UserFrom says whom the app believes a user id: FromTrustedProxy or FromAnyone.
func (i Identity) UserFrom() string { return cmp.Or(i.User, FromTrustedProxy) }

// DeviceFrom says whom the app believes a device id.
func (i Identity) DeviceFrom() string { return cmp.Or(i.Device, FromAnyone) }

// Identity says from whom an id is believed: trusted_proxy or open.
type Identity struct {
	User   string `json:"user,omitempty"`   // default trusted_proxy
	Device string `json:"device,omitempty"` // default open
}

// List names a list and who answers for it. IDs nil leaves the stored ids as
// they are; present, even empty, is an import. At publish they leave the document and
// Digest and Count stay.
type List struct {
	Key     string       `json:"key"`
	Of      whitelist.Of `json:"of"`
	Owner   string       `json:"owner,omitempty"`
	Expires string       `json:"expires,omitempty"` // YYYY-MM-DD; warns, then blocks publishing; never changes an answer
	IDs     *[]string    `json:"ids,omitempty"`
	Digest  string       `json:"digest,omitempty"` // of the list's index
	Count   int          `json:"count,omitempty"`
}

// Table names an uploaded address table. File is for clients, which upload it;
// the server opens no path from a document and knows only Digest.
type Table struct {
	Key    string `json:"key"`
	File   string `json:"file,omitempty"`
	Digest string `json:"digest,omitempty"`
}
