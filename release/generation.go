package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A generation file is one header line and a body:
//
//	dispatch-release format=1 number=412 seq=1 created=2027-03-01T02:30:00Z length=8123 sha256=9f86d0…
//	{"stream":"edge","manifest":"eyJ…", …}
//
// The checksum covers the header line in front of it and the body. The header
// line stays the same in every format, so that an older program can tell a newer
// release from a damaged one.
const (
	generationMagic = "dispatch-release"
	// generationFormat is the newest body this program writes and reads.
	generationFormat = 1
)

// header is what a generation says about itself.
type header struct {
	Format  int
	Number  uint64
	Seq     uint64
	Created time.Time
	Length  int
}

// generation is the body.
type generation struct {
	Stream    string    `json:"stream"`
	Manifest  []byte    `json:"manifest"`
	Signature string    `json:"signature"`
	Records   recordSet `json:"records"`
	Blobs     []Digest  `json:"blobs"` // all that a load of this release reads
}

type recordSet struct {
	Bytes     []byte `json:"bytes"`
	Signature string `json:"signature"`
}

var (
	errDamaged = errors.New("damaged")
	errNewer   = errors.New("written by a newer program")
)

func (h header) line() string {
	return fmt.Sprintf("%s format=%d number=%d seq=%d created=%s length=%d", generationMagic, h.Format, h.Number, h.Seq,
		h.Created.UTC().Format(time.RFC3339), h.Length)
}

// encodeGeneration is the content of a generation file.
func encodeGeneration(s Signed, created time.Time, blobs []Digest) ([]byte, error) {
	body, err := json.Marshal(generation{Stream: s.Stream, Manifest: s.Manifest, Signature: s.Signature,
		Records: recordSet{Bytes: s.Records.Bytes, Signature: s.Records.Signature}, Blobs: blobs})
	if err != nil {
		return nil, fmt.Errorf("encode release %d: %w", s.Number, err)
	}
	line := header{Format: generationFormat, Number: s.Number, Seq: s.Records.Seq, Created: created, Length: len(body)}.line()
	return append(fmt.Appendf(nil, "%s sha256=%s\n", line, checksum(line, body)), body...), nil
}

// decodeGeneration reads a generation file. errNewer means that the checksum
// holds and the format is one to come; any other failure is errDamaged.
func decodeGeneration(data []byte) (Signed, []Digest, error) {
	line, body, _ := bytes.Cut(data, []byte("\n"))
	head, sum, ok := strings.Cut(string(line), " sha256=")
	if !ok || len(line) > 512 {
		return Signed{}, nil, fmt.Errorf("%w: no header", errDamaged)
	}
	if checksum(head, body) != sum {
		return Signed{}, nil, fmt.Errorf("%w: the checksum does not hold", errDamaged)
	}
	h, err := parseHeader(head)
	if err != nil || h.Length != len(body) {
		return Signed{}, nil, fmt.Errorf("%w: the header cannot be read", errDamaged)
	}
	if h.Format > generationFormat {
		return Signed{}, nil, errNewer
	}
	var g generation
	if err := decodeStrict(body, &g); err != nil {
		return Signed{}, nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return Signed{Stream: g.Stream, Number: h.Number, Manifest: g.Manifest, Signature: g.Signature,
		Records: RecordSet{Release: h.Number, Seq: h.Seq, Bytes: g.Records.Bytes, Signature: g.Records.Signature}}, g.Blobs, nil
}

// parseHeader accepts only the one spelling that line makes.
func parseHeader(text string) (header, error) {
	var h header
	fields := strings.Split(text, " ")
	if len(fields) != 6 || fields[0] != generationMagic {
		return h, errDamaged
	}
	var errs []error
	value := func(i int, name string) string {
		v, ok := strings.CutPrefix(fields[i], name+"=")
		if !ok {
			errs = append(errs, errDamaged)
		}
		return v
	}
	var err error
	h.Format, err = strconv.Atoi(value(1, "format"))
	errs = append(errs, err)
	h.Number, err = strconv.ParseUint(value(2, "number"), 10, 64)
	errs = append(errs, err)
	h.Seq, err = strconv.ParseUint(value(3, "seq"), 10, 64)
	errs = append(errs, err)
	h.Created, err = time.Parse(time.RFC3339, value(4, "created"))
	errs = append(errs, err)
	h.Length, err = strconv.Atoi(value(5, "length"))
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return h, err
	}
	if h.line() != text {
		return h, errDamaged
	}
	return h, nil
}

func checksum(line string, body []byte) string {
	sum := sha256.New()
	sum.Write([]byte(line))
	sum.Write([]byte{'\n'})
	sum.Write(body)
	return fmt.Sprintf("%x", sum.Sum(nil))
}
