package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"github.com/oschwald/maxminddb-golang/v2"
)

// Geo holds the address databases of a replica in the MaxMind format. It is
// immutable and needs no closing: the files are read into memory, so that what
// is answered from is exactly what the digests name.
type Geo struct {
	city, asn *maxminddb.Reader // nil: none
	digests   GeoDigests
	places    sync.Pool // of *cityRecord
	networks  sync.Pool // of *asnRecord
}

// GeoDigests are the SHA-256 of the database files in hex, empty without one.
// A decision depends on them.
type GeoDigests struct {
	City string `json:"city,omitempty"`
	ASN  string `json:"asn,omitempty"`
}

// Place is what the city database says about an address: ISO 3166-1 country and
// the part of ISO 3166-2 after the hyphen. Empty is unknown.
type Place struct{ Country, Subdivision string }

type cityRecord struct {
	Country struct {
		ISO string `maxminddb:"iso_code"`
	} `maxminddb:"country"`
	Subdivisions []struct {
		ISO string `maxminddb:"iso_code"`
	} `maxminddb:"subdivisions"`
}

type asnRecord struct {
	Number uint32 `maxminddb:"autonomous_system_number"`
}

// OpenGeo reads a city and an ASN database. Either name may be empty; without
// both there is no Geo, which is no error.
func OpenGeo(cityFile, asnFile string) (*Geo, error) {
	if cityFile == "" && asnFile == "" {
		return nil, nil
	}
	g := &Geo{
		places:   sync.Pool{New: func() any { return new(cityRecord) }},
		networks: sync.Pool{New: func() any { return new(asnRecord) }},
	}
	var err error
	if g.city, g.digests.City, err = openDatabase(cityFile); err != nil {
		return nil, err
	}
	if g.asn, g.digests.ASN, err = openDatabase(asnFile); err != nil {
		return nil, err
	}
	return g, nil
}

func openDatabase(file string) (*maxminddb.Reader, string, error) {
	if file == "" {
		return nil, "", nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, "", fmt.Errorf("open address database: %w", err)
	}
	reader, err := maxminddb.OpenBytes(content)
	if err != nil {
		return nil, "", fmt.Errorf("open address database %s: %w", file, err)
	}
	digest := sha256.Sum256(content)
	return reader, hex.EncodeToString(digest[:]), nil
}

// Digests name the files, for decision records and fleet reports.
func (g *Geo) Digests() GeoDigests {
	if g == nil {
		return GeoDigests{}
	}
	return g.digests
}

// hasCity and hasASN say which databases there are; a nil Geo has none.
func (g *Geo) hasCity() bool { return g != nil && g.city != nil }
func (g *Geo) hasASN() bool  { return g != nil && g.asn != nil }

// Place is where addr is. A record that cannot be decoded counts as unknown.
func (g *Geo) Place(addr netip.Addr) Place {
	if !g.hasCity() || !addr.IsValid() {
		return Place{}
	}
	found := g.city.Lookup(plainAddr(addr))
	if !found.Found() {
		return Place{}
	}
	record := g.places.Get().(*cityRecord)
	defer g.places.Put(record)
	record.Country.ISO = ""
	record.Subdivisions = record.Subdivisions[:0]
	if err := found.Decode(record); err != nil {
		return Place{}
	}
	place := Place{Country: record.Country.ISO}
	if len(record.Subdivisions) > 0 {
		place.Subdivision = record.Subdivisions[0].ISO // the largest comes first
	}
	return place
}

// ASN is the number of the network that announces addr, 0 if unknown.
func (g *Geo) ASN(addr netip.Addr) uint32 {
	if !g.hasASN() || !addr.IsValid() {
		return 0
	}
	found := g.asn.Lookup(plainAddr(addr))
	if !found.Found() {
		return 0
	}
	record := g.networks.Get().(*asnRecord)
	defer g.networks.Put(record)
	record.Number = 0
	if err := found.Decode(record); err != nil {
		return 0
	}
	return record.Number
}
