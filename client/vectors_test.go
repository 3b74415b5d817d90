package client_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/client"
	"github.com/go-jose/go-jose/v4"
)

var update = flag.Bool("update", false, "rewrite vectors/records.json")

const vectorsFile = "vectors/records.json"

// vectors is the file that binds every SDK.
type vectors struct {
	About      string          `json:"about"`
	App        string          `json:"app"`
	Deployment string          `json:"deployment"`
	Suffixes   []string        `json:"suffixes"`
	BuiltIn    string          `json:"built_in"`
	Keys       json.RawMessage `json:"keys"`
	Cases      []vector        `json:"cases"`
}

type vector struct {
	Name     string                 `json:"name"`
	Answer   string                 `json:"answer"`
	Clock    int64                  `json:"clock"`
	Marks    map[string]client.Mark `json:"marks"`
	LastGood string                 `json:"last_good,omitempty"`
	Signed   bool                   `json:"signed"`
	Want     want                   `json:"want"`
}

type want struct {
	Refused client.Reason          `json:"refused,omitempty"`
	Domains []string               `json:"domains,omitempty"`
	Marks   map[string]client.Mark `json:"marks"`
}

func read(t testing.TB) vectors {
	t.Helper()
	raw, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// judge builds a client from the file alone, as another SDK's test would.
func judge(t testing.TB, v vectors) *client.Client {
	t.Helper()
	keys, err := client.ParseKeys(v.Keys)
	if err != nil {
		t.Fatal(err)
	}
	opt := options()
	opt.App, opt.Deployment, opt.Keys, opt.Suffixes, opt.BuiltIn = v.App, v.Deployment, keys, v.Suffixes, v.BuiltIn
	return newClient(t, opt)
}

func TestRecordVectorsAreJudgedAsWritten(t *testing.T) {
	t.Parallel()
	v := read(t)
	c := judge(t, v)
	for _, row := range v.Cases {
		t.Run(row.Name, func(t *testing.T) {
			got := c.Judge([]byte(row.Answer), time.Unix(row.Clock, 0), row.Marks, row.LastGood)
			equal(t, "refused", got.Why, row.Want.Refused)
			equal(t, "domains", got.Domains, row.Want.Domains)
			equal(t, "marks", got.Marks, row.Want.Marks)
		})
	}
}

// A second implementation of JWS agrees about every signature in the file.
func TestGoJoseAgreesAboutEverySignature(t *testing.T) {
	t.Parallel()
	v := read(t)
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(v.Keys, &set); err != nil {
		t.Fatal(err)
	}
	for _, row := range v.Cases {
		var body struct{ Record string }
		_ = json.Unmarshal([]byte(row.Answer), &body) // a broken answer has no record, so it is not signed
		equal(t, row.Name, verifies(set, body.Record), row.Signed)
		if row.Want.Refused == "" && !row.Signed {
			t.Errorf("%s: accepted without a signature", row.Name)
		}
	}
}

func verifies(set jose.JSONWebKeySet, record string) bool {
	jws, err := jose.ParseSignedCompact(record, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return false
	}
	keys := set.Key(jws.Signatures[0].Protected.KeyID)
	if len(keys) != 1 {
		return false
	}
	_, err = jws.Verify(keys[0])
	return err == nil
}

// The file is what the table in records_test.go says; -update writes it.
func TestRecordVectorsAreUpToDate(t *testing.T) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(generate(t)); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(vectorsFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, out.Bytes()) {
		t.Errorf("%s differs from its table: run go test ./client -run Vectors -update and review the difference", vectorsFile)
	}
}

// Every reason that an answer itself can give has a vector.
func TestRecordVectorsCoverEveryRefusal(t *testing.T) {
	t.Parallel()
	covered := map[client.Reason]bool{}
	names := map[string]bool{}
	for _, row := range read(t).Cases {
		covered[row.Want.Refused] = true
		if names[row.Name] {
			t.Errorf("two cases are named %q", row.Name)
		}
		names[row.Name] = true
	}
	network := []client.Reason{client.Unreachable, client.Timeout, client.BadStatus, client.BadContentType, client.TooLarge}
	for _, why := range client.Reasons() {
		if !covered[why] && !slices.Contains(network, why) {
			t.Errorf("no vector is refused as %s", why)
		}
	}
}

// bucketFiles are the SHA-256 of vectors/buckets.json by version of the algorithm.
// A released version never changes: its phones and exports are out there. A new
// algorithm is a new line here, beside policy.BucketAlgorithm.
func bucketFiles() map[int]string {
	return map[int]string{
		1: "a0b4648b8e1356286f8dda9627f15aadd56b7177fe80308fafcfb286292644db",
	}
}

// e9: no byte of the bucket vectors changes without a new version of the algorithm.
func TestBucketVectorsArePinnedToTheirAlgorithm(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("vectors/buckets.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Algorithm int }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%x", sha256.Sum256(raw)), bucketFiles()[file.Algorithm]; got != want {
		t.Errorf("vectors/buckets.json of algorithm %d has the SHA-256 %s, want %q: undo the change, or raise the algorithm", file.Algorithm, got, want)
	}
}

func generate(t *testing.T) vectors {
	t.Helper()
	v := vectors{
		About:      "answers of /route and what a client with pinned keys makes of them; see README.md",
		App:        "mobile",
		Deployment: "bank",
		Suffixes:   options().Suffixes,
		BuiltIn:    options().BuiltIn,
		Keys:       json.RawMessage(keySet("k1", "k2")),
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(v.Keys, &set); err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat(acceptedRows(), headerRows(), signatureRows(), claimRows(), domainRows(), timeRows(), mismatchRows(), bodyRows()) {
		var body struct{ Record string }
		raw := text(r.answer)
		_ = json.Unmarshal(raw, &body) // see TestGoJoseAgreesAboutEverySignature
		out := vector{Name: r.name, Answer: string(raw), Clock: epoch + 60 + r.later, Marks: r.marks,
			LastGood: r.lastGood, Signed: verifies(set, body.Record), Want: r.want}
		if out.Marks == nil {
			out.Marks = map[string]client.Mark{}
		}
		if out.Want.Marks == nil {
			out.Want.Marks = out.Marks
		}
		v.Cases = append(v.Cases, out)
	}
	return v
}

// row is a vector before it is signed and written.
type row struct {
	name     string
	answer   any   // object, or string for exact bytes
	later    int64 // seconds after the usual clock, which is a minute after signing
	marks    map[string]client.Mark
	lastGood string
	want     want
}

func refused(why client.Reason, name string, answer any) row {
	return row{name: name, answer: answer, want: want{Refused: why}}
}

func at(release uint64, issued int64) client.Mark {
	return client.Mark{Release: release, Issued: issued}
}

// flip changes one character of part number n of a record.
func flip(record string, n int) string {
	parts := strings.Split(record, ".")
	b := []byte(parts[n])
	if i := len(b) / 2; b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	parts[n] = string(b)
	return strings.Join(parts, ".")
}
