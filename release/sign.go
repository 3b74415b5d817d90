package release

import (
	"fmt"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

// Sign makes the release that edges accept: the manifest's bytes with the
// publisher's signature, and its first set of records. It refuses an app whose
// largest answer passes MaxAnswer.
func Sign(m *Manifest, keys *Keyring, now time.Time) (Signed, error) {
	data, err := m.Encode()
	if err != nil {
		return Signed{}, err
	}
	// What is signed must be what edges will read.
	if m, err = DecodeManifest(data); err != nil {
		return Signed{}, fmt.Errorf("sign release: %w", err)
	}
	sig, err := keys.Publisher.Current().SignDetached(signed.TypManifest, data)
	if err != nil {
		return Signed{}, fmt.Errorf("sign release %d: %w", m.Number, err)
	}
	if m.Rules != nil { // nothing in it is an app's answer
		return Signed{Stream: m.Stream, Number: m.Number, Manifest: data, Signature: sig}, nil
	}
	set, err := signRecords(m, DigestOf(data), keys.Record, recordTime{seq: 1, issued: now})
	if err != nil {
		return Signed{}, fmt.Errorf("sign release %d: %w", m.Number, err)
	}
	var book recordBook
	if err := decodeStrict(set.Bytes, &book); err != nil {
		return Signed{}, fmt.Errorf("sign release %d: %w", m.Number, err)
	}
	if err := checkAnswers(&book, Apply(&m.Document, m.Operational)); err != nil {
		return Signed{}, err
	}
	return Signed{Stream: m.Stream, Number: m.Number, Manifest: data, Signature: sig, Records: set}, nil
}

// openManifest verifies and reads the manifest of a release.
func openManifest(s Signed, trust *signed.Trust) (*Manifest, Digest, error) {
	if len(s.Manifest) > MaxManifest {
		return nil, Digest{}, fault.New(fault.TooLarge, "manifest_too_large", "the manifest has %d bytes, more than %d", len(s.Manifest), MaxManifest)
	}
	if _, err := trust.VerifyDetached(signed.TypManifest, s.Signature, s.Manifest); err != nil {
		return nil, Digest{}, refuseSignature(err)
	}
	m, err := DecodeManifest(s.Manifest)
	if err != nil {
		return nil, Digest{}, err
	}
	if m.Stream != s.Stream || m.Number != s.Number {
		return nil, Digest{}, fault.New(fault.Invalid, "bad_manifest", "what came as %s %d is signed as %s %d",
			s.Stream, s.Number, m.Stream, m.Number)
	}
	return m, DigestOf(s.Manifest), nil
}
