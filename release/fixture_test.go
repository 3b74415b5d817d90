package release

import (
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("RELEASE_TEST_WRITER"); dir != "" {
		os.Exit(writeUntilKilled(dir))
	}
	goleak.VerifyTestMain(m)
}

const bankDocument = `
apps:
  - key: mobile
    default: true
    hosts: [mobile.bank.example]
    fallback: wap.bank.example
    regions:
      - key: sh
        capacity: 60
        failover: [hf]
        endpoints:
          - {key: sh-main, domain: wapabst.a.com.cn, cluster: k1}
          - {key: sh-spare, domain: wapabst2.a.com.cn, cluster: k2, state: standby}
          - {key: sh-old, domain: wapabst3.a.com.cn, cluster: k2, state: off}
      - key: hf
        capacity: 40
        failover: [sh]
        endpoints: [{key: hf-main, domain: wapcdst.b.com.cn, cluster: k1}]
    origins: [hint, {table: cn-prefixes}, replica]
    policies:
      - key: staff
        when: {in_list: staff-devices}
        then: {region: sh}
      - key: gray-10-2
        when: {platform: [ios], app_version: ">=10.2, <11"}
        bucket_by: user
        then: {share: {region: hf, of: 500}}
      - key: home
        when: {origin: [sh]}
        then: {region: sh}
    otherwise: {split: [{region: sh, of: 6000}, {region: hf, of: 4000}]}
  - key: corporate
    fallback: corp.bank.example
    regions:
      - key: bj
        endpoints: [{key: bj-main, domain: corp-bj.bank.example}]
      - key: gz
        failover: [bj]
        endpoints: [{key: gz-main, domain: corp-gz.bank.example}]
    otherwise: {split: [{region: bj, of: 5000}, {region: gz, of: 5000}]}
lists:
  - {key: staff-devices, of: device, owner: release-team, expires: 2099-06-30, ids: [d-1001, d-1002]}
tables:
  - {key: cn-prefixes, file: prefixes.csv}
`

// madeAt is when the first release of every test is made.
func madeAt() time.Time { return time.Date(2027, 3, 1, 2, 30, 0, 0, time.UTC) }

// must is for set-up that cannot fail unless the test itself is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// bank is a deployment: its keys, its blobs and its first manifest.
type bank struct {
	keys  *Keyring
	blobs MemoryBlobs
	first *Manifest
}

func newBank(tb testing.TB) *bank { return newBankIn(tb, tb.TempDir()) }

// newBankIn has its key files in a folder.
func newBankIn(tb testing.TB, dir string) *bank {
	tb.Helper()
	keys, err := LoadKeys(KeyFilesIn(dir), true)
	if err != nil {
		tb.Fatal(err)
	}
	b := &bank{keys: keys, blobs: MemoryBlobs{}}
	doc := must(Parse("bank.yaml", []byte(bankDocument)))
	ids := *doc.Lists[0].IDs
	doc.Lists[0].IDs = nil
	keyIDs := keys.IDs()
	b.first, err = First("bank", StreamEdge, Change{
		Document:    doc,
		Operational: &Operational{},
		Lists:       map[string]Digest{"staff-devices": b.list(slices.Values(ids))},
		Tables:      map[string]Digest{"cn-prefixes": b.blobs.Add([]byte("192.0.2.0/24,sh\n2001:db8::/32,hf\n"))},
		Keys:        &keyIDs,
		Cause:       Cause{Action: "publish", By: "ops"},
		Approve:     Approval{Hosts: slices.Collect(maps.Keys(doc.Domains()))},
		Created:     madeAt(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// list adds the blobs of a list of devices and returns the digest of its index.
func (b *bank) list(ids iter.Seq[string]) Digest {
	key := b.keys.List.Current()
	content := must(whitelist.Build(must(whitelist.NewKey(key.ID(), key.Secret())), whitelist.Device, ids))
	for chunk := range content.Blobs() {
		b.blobs.Add(chunk.Bytes)
	}
	return b.blobs.Add(content.Index().Bytes())
}

// loader is a Loader of the deployment, changed by change.
func (b *bank) loader(change func(*LoaderOptions)) *Loader {
	opt := LoaderOptions{Deployment: "bank", Trust: b.keys.Trust(), Keys: b.keys, Replica: policy.Replica{Region: "sh"},
		Suffixes: must(domain.NewSuffixes([]string{"bank.example", "a.com.cn", "b.com.cn"}))}
	if change != nil {
		change(&opt)
	}
	return must(NewLoader(opt))
}

func (b *bank) keeper(disk *Disk) *Keeper { return must(NewKeeper(b.loader(nil), disk)) }

func (b *bank) sign(m *Manifest) Signed { return must(Sign(m, b.keys, m.Created)) }

// next is the release after m with a copy of its document and state changed.
func next(m *Manifest, change func(*Document, *Operational, *Change)) *Manifest {
	doc, ops := clone(m.Document), clone(m.Operational)
	c := Change{Document: &doc, Operational: &ops, Cause: Cause{Action: "publish", By: "ops"}, Created: m.Created.Add(time.Minute)}
	if change != nil {
		change(&doc, &ops, &c)
	}
	return must(m.Next(c))
}

func clone[T any](v T) T {
	var out T
	if err := json.Unmarshal(must(json.Marshal(v)), &out); err != nil {
		panic(err)
	}
	return out
}

// load loads what must load.
func (b *bank) load(tb testing.TB, m *Manifest, cur *Snapshot) *Snapshot {
	tb.Helper()
	snap, err := b.loader(nil).Load(tb.Context(), b.sign(m), b.blobs, cur)
	if err != nil {
		tb.Fatal(err)
	}
	return snap
}

// decide is the region that a device is sent to.
func decide(s *Snapshot, app, device string) string {
	d := s.Apps[app].Table.Decide(&policy.Request{Now: madeAt(), Device: device})
	if d.Region < 0 {
		return ""
	}
	return s.Apps[app].App.Regions[d.Region].Key
}

func wantCode(tb testing.TB, err error, code string) {
	tb.Helper()
	if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != code {
		tb.Errorf("got %v, want the code %s", err, code)
	}
}

// swapped is the state in which the spare endpoint of Shanghai serves.
func swapped() Operational {
	return Operational{Apps: map[string]AppState{"mobile": {Endpoints: map[string]EndpointOps{
		"sh/sh-main": {State: domain.Standby}, "sh/sh-spare": {State: domain.Serving}}}}}
}

// longestPiece bounds what splice puts in, so that a fuzzer has little to minimise.
const longestPiece = 64

// splice is text with cut bytes from at on replaced by piece. Fuzz targets make
// their input so: most of it stays near a text that is accepted, and a piece
// takes a moment to minimise where a whole text takes a minute.
func splice(text []byte, at, cut uint16, piece []byte) []byte {
	from := min(int(at), len(text))
	to := min(from+int(cut), len(text))
	return slices.Concat(text[:from], piece, text[to:])
}
