package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

const (
	// format is the newest format of manifests that Verify reads.
	format = 1
	// maxManifest bounds the bytes of a manifest, as the publisher does.
	maxManifest = 16 << 20
)

// Signed is a release of rules as it travels: exact bytes and their signature.
type Signed struct {
	Number    uint64 `json:"number"`
	Manifest  []byte `json:"manifest"`
	Signature string `json:"signature"`
}

// head is the part of a manifest that callers need. The rest of it is about edges.
type head struct {
	Format     int             `json:"format"`
	Deployment string          `json:"deployment"`
	Stream     string          `json:"stream"`
	Number     uint64          `json:"number"`
	Rules      json.RawMessage `json:"rules"`
}

// Verify reads the set of a release after checking signature, deployment and
// stream, and puts its grays into the rules. Whether its number is newer is the
// caller's to check. Every failure is a *fault.Error with the code that an edge would
// give it.
func Verify(s Signed, trust *signed.Trust, deployment, region string) (Set, error) {
	if len(s.Manifest) > maxManifest {
		return Set{}, fault.New(fault.TooLarge, "manifest_too_large", "the manifest has %d bytes, more than %d", len(s.Manifest), maxManifest)
	}
	if _, err := trust.VerifyDetached(signed.TypManifest, s.Signature, s.Manifest); err != nil {
		return Set{}, refuseSignature(err)
	}
	var h head
	if err := json.Unmarshal(s.Manifest, &h); err != nil {
		return Set{}, fault.New(fault.Invalid, "bad_manifest", "the manifest cannot be read").Because(err)
	}
	switch {
	case h.Format > format:
		return Set{}, fault.New(fault.Invalid, "newer_format", "the release has format %d, this program reads up to %d", h.Format, format).
			WithHint("build this program with a newer discovery package")
	case h.Deployment != deployment || h.Stream != Stream(region):
		return Set{}, fault.New(fault.Invalid, "other_deployment", "release %d is of %s/%s, this process follows %s/%s",
			h.Number, h.Deployment, h.Stream, deployment, Stream(region)).WithHint("check deployment and region, and whom it asks")
	case h.Format < 1 || h.Number != s.Number || h.Number == 0 || h.Number > signed.MaxNumber:
		return Set{}, fault.New(fault.Invalid, "bad_manifest", "what came as release %d is signed as %d, format %d", s.Number, h.Number, h.Format)
	}
	set, err := decodeSet(h.Rules)
	if err != nil {
		return Set{}, fault.New(fault.Invalid, "bad_manifest", "the rules of release %d cannot be read", h.Number).
			WithHint("they may say what this program is too old to know, such as a gray: build it with a newer discovery package").Because(err)
	}
	if err := set.check(); err != nil {
		return Set{}, err
	}
	return set.Effective(), nil
}

// decodeSet is strict: a key that this program does not know could narrow a rule,
// and a rule that is followed without it would reach more than its author wrote.
func decodeSet(text []byte) (Set, error) {
	if len(text) == 0 || string(text) == "null" {
		return Set{}, errors.New("it holds none")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var set Set
	if err := dec.Decode(&set); err != nil {
		return Set{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Set{}, errors.New("text behind the end")
	}
	return set.sorted(), nil
}

func refuseSignature(err error) error {
	if errors.Is(err, signed.ErrUnknownKey) {
		return fault.New(fault.Invalid, "unknown_key", "the release is signed by a key that this process does not trust").
			WithHint("bring the publisher's public keys: dispatch keys export --publisher-key-file FILE").Because(err)
	}
	return fault.New(fault.Invalid, "bad_signature", "the signature does not hold").Because(err)
}
