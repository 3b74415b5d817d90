package fleet

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The Disk of the product is the Disk of a Follower.
var _ Disk = (*release.Disk)(nil)

const bankDocument = `
apps:
  - key: mobile
    default: true
    fallback: wap.bank.example
    regions:
      - key: sh
        failover: [hf]
        endpoints: [{key: sh-main, domain: sh.bank.example}]
      - key: hf
        failover: [sh]
        endpoints: [{key: hf-main, domain: hf.bank.example}]
    origins: [{table: cn-prefixes}]
    policies:
      - key: staff
        when: {in_list: staff-devices}
        then: {region: sh}
    otherwise: {split: [{region: sh, of: 6000}, {region: hf, of: 4000}]}
lists:
  - {key: staff-devices, of: device, owner: release-team, expires: 2099-06-30, ids: []}
tables:
  - {key: cn-prefixes, file: prefixes.csv}
`

// must is for set-up that cannot fail unless the test itself is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// bank is a deployment: its keys, its blobs and its releases so far.
type bank struct {
	keys  *release.Keyring
	blobs release.MemoryBlobs
	last  *release.Manifest
}

// newBank has made release 1, with a list of so many devices.
func newBank(tb testing.TB, devices int) *bank {
	tb.Helper()
	b := &bank{keys: must(release.LoadKeys(release.KeyFilesIn(tb.TempDir()), true)), blobs: release.MemoryBlobs{}}
	doc := must(release.Parse("bank.yaml", []byte(bankDocument)))
	doc.Lists[0].IDs = nil
	ids := b.keys.IDs()
	b.last = must(release.First("bank", release.StreamEdge, release.Change{
		Document: doc, Operational: &release.Operational{}, Keys: &ids,
		Lists:   map[string]release.Digest{"staff-devices": b.list(devices)},
		Tables:  map[string]release.Digest{"cn-prefixes": b.blobs.Add([]byte("192.0.2.0/24,sh\n"))},
		Cause:   release.Cause{Action: "publish", By: "ops"},
		Approve: release.Approval{Hosts: slices.Collect(maps.Keys(doc.Domains()))},
		Created: time.Date(2027, 3, 1, 2, 30, 0, 0, time.UTC),
	}))
	return b
}

// list adds the blobs of a list of n devices and returns the digest of its index.
func (b *bank) list(n int) release.Digest {
	key := b.keys.List.Current()
	content := must(whitelist.Build(must(whitelist.NewKey(key.ID(), key.Secret())), whitelist.Device, func(yield func(string) bool) {
		for i := range n {
			if !yield("device-" + time.Duration(i).String()) {
				return
			}
		}
	}))
	for chunk := range content.Blobs() {
		b.blobs.Add(chunk.Bytes)
	}
	return b.blobs.Add(content.Index().Bytes())
}

// now is the newest release, signed.
func (b *bank) now() release.Signed { return must(release.Sign(b.last, b.keys, b.last.Created)) }

// next makes the release after it.
func (b *bank) next(change func(*release.Change)) release.Signed {
	c := release.Change{Cause: release.Cause{Action: "publish", By: "ops"}, Created: b.last.Created.Add(time.Minute)}
	if change != nil {
		change(&c)
	}
	b.last = must(b.last.Next(c))
	return b.now()
}

// keeper is one that believes this bank. disk may be nil.
func (b *bank) keeper(disk *release.Disk) *release.Keeper {
	loader := must(release.NewLoader(release.LoaderOptions{Deployment: "bank", Trust: b.keys.Trust(), Keys: b.keys,
		Suffixes: must(domain.NewSuffixes([]string{"bank.example"}))}))
	return must(release.NewKeeper(loader, disk))
}

// newDisk is an empty copy of releases.
func newDisk(tb testing.TB) *release.Disk {
	tb.Helper()
	return must(release.OpenDisk(tb.TempDir()))
}

// replica is a Keeper and its Follower.
type replica struct {
	*Follower
	keeper *release.Keeper
	disk   *release.Disk
}

func (b *bank) replica(tb testing.TB, id string, change func(*FollowerOptions)) *replica {
	tb.Helper()
	disk := newDisk(tb)
	opt := FollowerOptions{Keeper: b.keeper(disk), Disk: disk, Self: Replica{ID: id, Boot: id + "-1", Role: "edge"}}
	if change != nil {
		change(&opt)
	}
	return &replica{Follower: must(NewFollower(opt)), keeper: opt.Keeper, disk: disk}
}

// run runs something until the test ends.
func run(tb testing.TB, what func(context.Context) error) {
	tb.Helper()
	stop := start(tb, what)
	tb.Cleanup(stop)
}

// start runs something until stop is called.
func start(tb testing.TB, what func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- what(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	}
}

// serves waits until the replica serves a release.
func (r *replica) serves(tb testing.TB, number uint64) {
	tb.Helper()
	eventually(tb, 10*time.Second, func() bool { return r.keeper.Status().Number == number })
}

// eventually waits until something holds.
func eventually(tb testing.TB, within time.Duration, holds func() bool) {
	tb.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("it does not come about within %v", within)
		}
	}
}

const testToken = "of-the-fleet"

// control is a control node: its board, its roster and a real listener.
type control struct {
	board  *Board
	roster *Roster
	server *Server
	http   *httptest.Server
}

func newControl(tb testing.TB, change func(*ServerOptions)) *control {
	tb.Helper()
	c := &control{board: NewBoard(), roster: must(NewRoster(RosterOptions{}))}
	opt := ServerOptions{Board: c.board, Roster: c.roster, Token: testToken}
	if change != nil {
		change(&opt)
	}
	c.roster = opt.Roster
	c.server = must(NewServer(opt))
	c.http = httptest.NewUnstartedServer(c.server)
	c.http.Config.RegisterOnShutdown(c.server.Stop)
	c.http.Start()
	tb.Cleanup(c.close)
	return c
}

// close ends the node as a shutdown does.
func (c *control) close() {
	c.server.Stop()
	c.http.CloseClientConnections()
	c.http.Close()
}

// source asks this control node.
func (c *control) source(name string) *HTTP {
	return must(NewHTTP(HTTPOptions{URL: c.http.URL, Name: name, Token: testToken}))
}

// offered is Members' question answered from the board.
func (c *control) offered(id string) uint64 {
	s, _ := c.board.For(id)
	return s.Number
}

// offer puts a release on offer to all.
func (c *control) offer(tb testing.TB, b *bank, s release.Signed) {
	tb.Helper()
	if err := c.board.Offer(tb.Context(), Offer{All: s}, b.blobs); err != nil {
		tb.Fatal(err)
	}
}

// member is the state of a replica, empty if it is not listed.
func (c *control) member(id string) Member {
	for _, m := range c.roster.Members(c.offered) {
		if m.ID == id {
			return m
		}
	}
	return Member{}
}

// scripted is a source whose answers a test writes.
type scripted struct {
	name string
	next func(context.Context, Report) (*release.Signed, error)
	release.Blobs
}

func (s *scripted) Name() string { return s.name }

func (s *scripted) Next(ctx context.Context, r Report) (*release.Signed, error) {
	return s.next(ctx, r)
}

// waits answers nothing until the poll is over.
func waits(ctx context.Context) (*release.Signed, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(PollEvery):
		return nil, nil
	}
}

var _ http.Handler = (*Server)(nil)

// metric is the value of a gauge or counter, of the series whose only label has this value.
func metric(tb testing.TB, registry *prometheus.Registry, name, label string) float64 {
	tb.Helper()
	for _, family := range must(registry.Gather()) {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	tb.Errorf("there is no metric %s of %q", name, label)
	return -1
}
