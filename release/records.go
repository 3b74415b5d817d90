package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

const (
	// RecordLife is how long a record is believed. Renewal is daily, so a
	// publisher may be down for six days before clients fall back, and a replayed
	// answer is worthless after seven.
	RecordLife = 7 * 24 * time.Hour
	// MaxAlternates bounds the other domains of an answer.
	MaxAlternates = 3
)

// Record is what a client believes: the payload of a JWS of typ dispatch-record.
type Record struct {
	Issuer     string   `json:"iss"` // the deployment
	App        string   `json:"aud"`
	Region     string   `json:"region"`   // empty: the app's fallback
	Endpoint   string   `json:"endpoint"` // empty with Region
	Domain     string   `json:"domain"`
	Alternates []string `json:"alternates"`
	Fallback   string   `json:"fallback"`
	Release    uint64   `json:"release"`
	Issued     int64    `json:"iat"` // seconds since 1970
	Expires    int64    `json:"exp"`
}

// recordBook is the content of RecordSet.Bytes. Each list of records has one for
// each of Keys, in that order.
type recordBook struct {
	Deployment string                `json:"deployment"`
	Stream     string                `json:"stream"`
	Release    uint64                `json:"release"`
	Seq        uint64                `json:"seq"`
	Manifest   Digest                `json:"manifest"` // which content the number stands for
	Issued     int64                 `json:"iat"`
	Expires    int64                 `json:"exp"`
	Keys       []string              `json:"keys"` // kids, current first
	Apps       map[string]appRecords `json:"apps"`
}

type appRecords struct {
	Fallback  []string            `json:"fallback"`
	Endpoints map[string][]string `json:"endpoints"` // by REGION/ENDPOINT; standby ones included, closed ones not
}

// under are the signed copies of a record, none if it is not there.
func (a appRecords) under(r Record) []string {
	if r.Region == "" {
		return a.Fallback
	}
	return a.Endpoints[endpointKey(r.Region, r.Endpoint)]
}

// signRecords makes the records of a manifest under every record key.
func signRecords(m *Manifest, digest Digest, keys signed.Keys, at recordTime) (RecordSet, error) {
	book := recordBook{Deployment: m.Deployment, Stream: m.Stream, Release: m.Number, Seq: at.seq, Manifest: digest,
		Issued: at.issued.Unix(), Expires: at.issued.Add(RecordLife).Unix(), Keys: keys.IDs(), Apps: map[string]appRecords{}}
	for _, app := range Apply(&m.Document, m.Operational) {
		records := appRecords{Endpoints: map[string][]string{}}
		for _, r := range book.recordsOf(&app) {
			under, err := signUnder(keys, r)
			if err != nil {
				return RecordSet{}, fmt.Errorf("sign record of %s/%s/%s: %w", r.App, r.Region, r.Endpoint, err)
			}
			if r.Region == "" {
				records.Fallback = under
			} else {
				records.Endpoints[endpointKey(r.Region, r.Endpoint)] = under
			}
		}
		book.Apps[app.Key] = records
	}
	data, err := json.Marshal(book)
	if err != nil {
		return RecordSet{}, fmt.Errorf("encode records of release %d: %w", m.Number, err)
	}
	sig, err := keys.Current().SignDetached(signed.TypRecords, data)
	if err != nil {
		return RecordSet{}, err
	}
	return RecordSet{Release: m.Number, Seq: at.seq, Bytes: data, Signature: sig}, nil
}

// recordTime is when a set is made, and its place among the sets of its release.
type recordTime struct {
	seq    uint64
	issued time.Time
}

func signUnder(keys signed.Keys, r Record) ([]string, error) {
	payload, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var under []string
	for _, key := range keys.All() {
		jws, err := key.Sign(signed.TypRecord, payload)
		if err != nil {
			return nil, err
		}
		under = append(under, jws)
	}
	return under, nil
}

// recordsOf are the records that an app needs: one for every endpoint that
// serves or stands by, and one for the fallback. Operational state is applied to app.
func (b *recordBook) recordsOf(app *App) []Record {
	record := Record{Issuer: b.Deployment, App: app.Key, Domain: app.Fallback, Fallback: app.Fallback,
		Release: b.Release, Issued: b.Issued, Expires: b.Expires}
	record.Alternates = alternates(app, nil, app.Fallback)
	records := []Record{record}
	for i := range app.Regions {
		region := &app.Regions[i]
		for j := range region.Endpoints {
			e := &region.Endpoints[j]
			if e.State == domain.Closed {
				continue
			}
			record.Region, record.Endpoint, record.Domain = region.Key, e.Key, e.Domain
			record.Alternates = alternates(app, region, e.Domain)
			records = append(records, record)
		}
	}
	return records
}

// alternates are where a client may turn that cannot reach host: serving
// endpoints of active regions, those of the failover list first, then the
// region's own, then the others in the order of the document. Region nil is the
// fallback. The result is never nil, because clients read a list.
func alternates(app *App, region *domain.Region, host string) []string {
	hosts := make([]string, 0, MaxAlternates)
	add := func(r *domain.Region) {
		if r == nil || r.Condition() != domain.Active {
			return
		}
		for i := range r.Endpoints {
			e := &r.Endpoints[i]
			if e.Serves() && e.Domain != host && len(hosts) < MaxAlternates && !slices.Contains(hosts, e.Domain) {
				hosts = append(hosts, e.Domain)
			}
		}
	}
	if region != nil {
		for _, key := range region.Failover {
			add(app.region(key))
		}
		add(region)
	}
	for i := range app.Regions {
		add(&app.Regions[i])
	}
	return hosts
}

// Renew signs the records of a release anew: same number, next seq, valid again
// for RecordLife. It needs the record key and public keys, and no database. It
// believes nothing unverified: a manifest changed on a disk or in Redis would
// otherwise get its domains signed.
func Renew(s Signed, trust *signed.Trust, keys signed.Keys, now time.Time) (RecordSet, error) {
	m, digest, err := openManifest(s, trust)
	if err != nil {
		return RecordSet{}, fmt.Errorf("renew records of release %d: %w", s.Number, err)
	}
	old, err := openBook(s.Records, trust)
	if err != nil {
		return RecordSet{}, fmt.Errorf("renew records of release %d: %w", s.Number, err)
	}
	if err := old.matches(m, digest); err != nil {
		return RecordSet{}, fmt.Errorf("renew records of release %d: %w", s.Number, err)
	}
	return signRecords(m, digest, keys, recordTime{seq: old.Seq + 1, issued: now})
}

// openBook verifies the set's signature and reads it.
func openBook(set RecordSet, trust *signed.Trust) (*recordBook, error) {
	if _, err := trust.VerifyDetached(signed.TypRecords, set.Signature, set.Bytes); err != nil {
		return nil, refuseSignature(err)
	}
	var b recordBook
	if err := decodeStrict(set.Bytes, &b); err != nil {
		return nil, badRecords("the records cannot be read").Because(err)
	}
	if b.Release != set.Release || b.Seq != set.Seq {
		return nil, badRecords("the records are those of release %d (%d), not of %d (%d)", b.Release, b.Seq, set.Release, set.Seq)
	}
	return &b, nil
}

// matches says whether the book was made for this manifest.
func (b *recordBook) matches(m *Manifest, digest Digest) error {
	switch {
	case b.Deployment != m.Deployment || b.Stream != m.Stream || b.Release != m.Number || b.Manifest != digest:
		return badRecords("the records were made for release %d of %s/%s with other content", b.Release, b.Deployment, b.Stream)
	case len(b.Keys) == 0:
		return badRecords("the records are signed by no key")
	case b.Seq == 0 || b.Seq > signed.MaxNumber:
		return badRecords("the records have no usable sequence: %d", b.Seq)
	case b.Issued <= 0 || b.Expires != b.Issued+int64(RecordLife/time.Second):
		return badRecords("the records are valid from %d to %d, not for %s", b.Issued, b.Expires, RecordLife)
	}
	return nil
}

// take verifies that the book holds exactly the records that app needs, and
// returns them in the order of recordsOf, each under every key.
func (b *recordBook) take(app *App, trust *signed.Trust) ([]Record, [][]string, error) {
	have, ok := b.Apps[app.Key]
	if !ok {
		return nil, nil, badRecords("app %s has no records", app.Key)
	}
	want := b.recordsOf(app)
	if len(have.Endpoints) != len(want)-1 {
		return nil, nil, badRecords("app %s has %d records of endpoints, not %d", app.Key, len(have.Endpoints), len(want)-1)
	}
	under := make([][]string, len(want))
	for i, r := range want {
		under[i] = have.under(r)
		if err := b.verify(r, under[i], trust); err != nil {
			return nil, nil, err
		}
	}
	return want, under, nil
}

// verify compares a record's copies with what they must say.
func (b *recordBook) verify(want Record, under []string, trust *signed.Trust) error {
	name := want.App + "/" + want.Region + "/" + want.Endpoint
	payload, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("encode record %s: %w", name, err)
	}
	if len(under) != len(b.Keys) {
		return badRecords("%s has %d records for %d keys", name, len(under), len(b.Keys))
	}
	for i, jws := range under {
		got, kid, err := trust.Verify(signed.TypRecord, jws)
		if err != nil {
			return refuseSignature(fmt.Errorf("record of %s: %w", name, err))
		}
		if kid != b.Keys[i] || string(got) != string(payload) {
			return badRecords("the record of %s does not say what the release says", name)
		}
	}
	return nil
}

func badRecords(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "bad_records", format, args...)
}

// refuseSignature gives a failed verification its code.
func refuseSignature(err error) *fault.Error {
	if errors.Is(err, signed.ErrUnknownKey) {
		return fault.New(fault.Invalid, "unknown_key", "the release is signed by a key that this process does not trust").
			WithHint("bring the key files of whoever signed it: --publisher-key-file, --record-key-file").Because(err)
	}
	return fault.New(fault.Invalid, "bad_signature", "the signature does not hold").Because(err)
}
