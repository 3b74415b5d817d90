package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

// MaxManifest bounds the bytes of a manifest. Lists and tables are not in it.
const MaxManifest = 16 << 20

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
	Rules       *rules.Set        `json:"rules,omitempty"` // of a stream of rules, which has no document
	Keys        KeyIDs            `json:"keys"`
	Lists       map[string]Digest `json:"lists,omitempty"`  // list key → blob of its whitelist index
	Tables      map[string]Digest `json:"tables,omitempty"` // table key → blob of its CSV
	Approved    Approved          `json:"approved,omitzero"`
	// Clears is the last release that ended all overrides made before it: a
	// replica that skipped that release must end them too.
	Clears uint64 `json:"clears_overrides,omitempty"`
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

// unchanged says whether two releases name the same keys.
func (k KeyIDs) unchanged(other KeyIDs) bool {
	return slices.Equal(k.Session, other.Session) && slices.Equal(k.List, other.List)
}

// Approved are marks for moves that an edge refuses without one. Each mark names
// the release where it was approved, so an edge that skipped releases can tell
// whether a mark is about what it has not seen.
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

// Change is what a new release does differently. What is nil stays as it is.
type Change struct {
	Document    *Document
	Operational *Operational
	Rules       *rules.Set
	Lists       map[string]Digest // all of them, if any
	Tables      map[string]Digest // all of them, if any
	Keys        *KeyIDs
	Cause       Cause
	Approve     Approval
	Clears      bool      // ends local overrides
	Created     time.Time // now
	Above       uint64    // highest number seen in fleet, Redis or disk
	Format      int       // lowest format that a replica reads; 0: they all read the newest
}

// Approval is what two people agreed to in this release.
type Approval struct {
	Hosts         []string // every host that the host register holds as approved
	BigMove       bool
	RegionRemoved bool
}

// First is the first release of a deployment's stream.
func First(deployment, stream string, c Change) (*Manifest, error) {
	return (&Manifest{Deployment: deployment, Stream: stream}).Next(c)
}

// Next is the release after m: 1 above m and above all that c has seen. It keeps
// the marks of hosts that are still used, and marks newly used approved hosts
// with its own number.
func (m *Manifest) Next(c Change) (*Manifest, error) {
	next := *m
	var err error
	if next.Format, err = formatFor(c.Format, oldestFormat, Format); err != nil {
		return nil, err
	}
	next.Number, next.Parent = max(m.Number, c.Above)+1, m.Number
	next.Created = c.Created.UTC().Truncate(time.Second)
	next.Cause = c.Cause
	if c.Clears {
		next.Clears = next.Number
	}
	if c.Document != nil {
		next.Document = *c.Document
	}
	if c.Operational != nil {
		next.Operational = *c.Operational
	}
	if c.Rules != nil {
		next.Rules = c.Rules
	}
	if c.Lists != nil {
		next.Lists = maps.Clone(c.Lists)
	}
	if c.Tables != nil {
		next.Tables = maps.Clone(c.Tables)
	}
	if c.Keys != nil {
		next.Keys = *c.Keys
	}
	next.Approved = next.marks(m.Approved, c.Approve)
	if c.Above > m.Number && c.Above-m.Number > signed.MaxJump {
		return nil, fault.New(fault.Invalid, "number_jump", "release %d would follow %d, a step of more than %d",
			next.Number, m.Number, signed.MaxJump).WithHint("find out who signed that number before going on")
	}
	if err := next.check(); err != nil {
		return nil, err
	}
	return &next, nil
}

// oldestFormat is the oldest manifest format that this program still writes.
const oldestFormat = 1

// formatFor is the newest format that a replica reads too which knows none above
// lowest, among those from oldest to newest that this program writes.
func formatFor(lowest, oldest, newest int) (int, error) {
	switch {
	case lowest == 0:
		return newest, nil
	case lowest < oldest:
		return 0, fault.New(fault.Conflict, "fleet_too_old", "a replica reads formats up to %d, this program writes none below %d", lowest, oldest).
			WithHint("upgrade that replica first, or wait 24 h after its last question if it is gone: GET /api/v1/fleet")
	}
	return min(lowest, newest), nil
}

// marks carries old marks on and adds those of this release.
func (m *Manifest) marks(old Approved, a Approval) Approved {
	marks := Approved{BigMove: old.BigMove, RegionRemoved: old.RegionRemoved}
	if a.BigMove {
		marks.BigMove = m.Number
	}
	if a.RegionRemoved {
		marks.RegionRemoved = m.Number
	}
	for host := range m.Document.Domains() {
		n, known := old.Hosts[host]
		if !known && !slices.Contains(a.Hosts, host) {
			continue
		}
		if !known {
			n = m.Number
		}
		if marks.Hosts == nil {
			marks.Hosts = map[string]uint64{}
		}
		marks.Hosts[host] = n
	}
	return marks
}

// Domains are all hosts that an answer may name and where the document names them first.
func (d *Document) Domains() map[string]string {
	hosts := map[string]string{}
	add := func(host, path string) {
		if _, ok := hosts[host]; !ok {
			hosts[host] = path
		}
	}
	for i := range d.Apps {
		app := &d.Apps[i]
		add(app.Fallback, fmt.Sprintf("apps[%d].fallback", i))
		for j := range app.Regions {
			for k := range app.Regions[j].Endpoints {
				add(app.Regions[j].Endpoints[k].Domain, fmt.Sprintf("apps[%d].regions[%d].endpoints[%d].domain", i, j, k))
			}
		}
	}
	return hosts
}

// check lists what is wrong with a manifest itself; what its document means is
// Check's and the Loader's business.
func (m *Manifest) check() error {
	var p fault.Problems
	if m.Format < 1 || m.Format > Format {
		p.Addf("format", "%d is not a format this program knows (1 to %d)", m.Format, Format)
	}
	if m.Deployment == "" {
		p.Addf("deployment", "is missing")
	}
	if m.Stream == "" {
		p.Addf("stream", "is missing")
	}
	if m.Number == 0 || m.Number > signed.MaxNumber {
		p.Addf("number", "%d is not between 1 and %d", m.Number, uint64(signed.MaxNumber))
	}
	if m.Parent >= m.Number {
		p.Addf("parent", "%d is not below the number %d", m.Parent, m.Number)
	}
	if m.Created.IsZero() {
		p.Addf("created", "is missing")
	}
	if m.Cause.Action == "" || m.Cause.By == "" {
		p.Addf("cause", "must say what was done and by whom")
	}
	if m.Clears > m.Number {
		p.Addf("clears_overrides", "%d is above the number %d", m.Clears, m.Number)
	}
	m.checkContent(&p)
	m.checkParts(&p)
	return p.Err("bad_manifest", "the release is wrong")
}

// checkContent wants a document in a stream of edges and rules in a stream of rules.
func (m *Manifest) checkContent(p *fault.Problems) {
	if rules.IsStream(m.Stream) {
		if m.Rules == nil {
			p.Addf("rules", "are missing")
		}
		if len(m.Document.Apps) > 0 {
			p.Addf("document.apps", "a release of rules has none")
		}
		return
	}
	if m.Rules != nil {
		p.Addf("rules", "belong to a stream of rules, not to %s", m.Stream)
	}
	if len(m.Document.Apps) == 0 {
		p.Addf("document.apps", "a release without apps would serve nobody")
	}
	if len(m.Keys.Session) == 0 {
		p.Addf("keys.session", "names no key")
	}
}

// checkParts compares the lists and tables of the document with their digests.
func (m *Manifest) checkParts(p *fault.Problems) {
	lists, tables := map[string]bool{}, map[string]bool{}
	for i, l := range m.Document.Lists {
		path := fmt.Sprintf("document.lists[%d]", i)
		lists[l.Key] = true
		digest, ok := m.Lists[l.Key]
		if l.IDs != nil {
			p.Addf(path+".ids", "ids of %s never travel in a release", l.Key)
		}
		if !ok || l.Digest != "" && l.Digest != digest.String() {
			p.Addf(path+".digest", "the release names no list %s with this digest", l.Key)
		}
	}
	for i, t := range m.Document.Tables {
		tables[t.Key] = true
		digest, ok := m.Tables[t.Key]
		if !ok || t.Digest != "" && t.Digest != digest.String() {
			p.Addf(fmt.Sprintf("document.tables[%d].digest", i), "the release names no table %s with this digest", t.Key)
		}
	}
	for key := range m.Lists {
		if !lists[key] {
			p.Addf("lists."+key, "the document has no such list")
		}
	}
	for key := range m.Tables {
		if !tables[key] {
			p.Addf("tables."+key, "the document has no such table")
		}
	}
	if len(m.Lists) > 0 && len(m.Keys.List) == 0 {
		p.Addf("keys.list", "names no key")
	}
}

// Encode is the manifest's bytes. Equal manifests have equal bytes.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode release %d: %w", m.Number, err)
	}
	if len(data) > MaxManifest {
		return nil, fault.New(fault.TooLarge, "manifest_too_large", "release %d has %d bytes, more than %d", m.Number, len(data), MaxManifest)
	}
	return data, nil
}

// DecodeManifest reads the bytes of a manifest. It refuses unknown fields, text
// behind the end, a format newer than Format and whatever Encode would refuse.
// It says nothing about who made them: see Loader.
func DecodeManifest(data []byte) (*Manifest, error) {
	if len(data) > MaxManifest {
		return nil, fault.New(fault.TooLarge, "manifest_too_large", "the manifest has %d bytes, more than %d", len(data), MaxManifest)
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err == nil && head.Format > Format {
		return nil, fault.New(fault.Invalid, "newer_format", "the release has format %d, this program reads up to %d", head.Format, Format).
			WithHint("upgrade this replica")
	}
	var m Manifest
	if err := decodeStrict(data, &m); err != nil {
		return nil, fault.New(fault.Invalid, "bad_manifest", "the manifest cannot be read").Because(err)
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return &m, nil
}

// decodeStrict reads exactly one JSON value without unknown fields.
func decodeStrict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text behind the end")
	}
	return nil
}
