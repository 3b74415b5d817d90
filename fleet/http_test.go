package fleet

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/release"
)

// A release goes to every replica, and the next question acknowledges it.
func TestReleaseReachesAReplicaAndIsAcknowledged(t *testing.T) {
	t.Parallel()
	b, c := newBank(t, 10_000), newControl(t, nil)
	r := b.replica(t, "r1", func(o *FollowerOptions) {
		o.Describe = func(r *Report) { r.Errors = 7 }
	})
	r.Use([]Source{c.source("control a")})
	run(t, r.Run)
	c.offer(t, b, b.now())
	r.serves(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if ack := c.roster.Await(ctx, 1, "r1"); ack.Replicas != 1 || ack.Of != 1 || ack.Lagging != nil {
		t.Fatalf("acknowledged %+v", ack)
	}
	began := time.Now()
	c.offer(t, b, b.next(nil))
	ack := c.roster.Await(ctx, 2, "")
	if took := time.Since(began); ack.Replicas != 1 || took > 2*time.Second || ack.After > took.Seconds() {
		t.Errorf("acknowledged %+v after %v: an open question was not answered at once", ack, took)
	}
	m := c.member("r1")
	if m.State != Current || m.Errors != 7 || m.Source != "control a" || m.Digest != r.keeper.Current().Digest ||
		len(m.Sources) != 1 || !m.Sources[0].OK || m.Format != release.Format {
		t.Errorf("the roster has %+v", m)
	}
}

// Only changed chunks are fetched, and none twice, not even for the copy on disk.
func TestOnlyWhatChangedIsFetched(t *testing.T) {
	t.Parallel()
	b, c := newBank(t, 40_000), newControl(t, nil)
	fetched := &countingBlobs{Blobs: b.blobs}
	r := b.replica(t, "r1", nil)
	r.Use([]Source{c.source("a")})
	run(t, r.Run)
	if err := c.board.Offer(t.Context(), Offer{All: b.now()}, fetched); err != nil {
		t.Fatal(err)
	}
	r.serves(t, 1)
	eventually(t, 10*time.Second, func() bool { return slices.Contains(copies(t, r.disk), 1) })
	if n, all := fetched.n.Load(), int64(len(b.blobs)); n != all || all < 10 {
		t.Errorf("fetched %d blobs, the release has %d", n, all)
	}
	before := len(b.blobs)
	second := b.next(func(c *release.Change) {
		c.Lists = map[string]release.Digest{"staff-devices": b.list(40_001)}
	})
	fetched.n.Store(0)
	if err := c.board.Offer(t.Context(), Offer{All: second}, fetched); err != nil {
		t.Fatal(err)
	}
	r.serves(t, 2)
	eventually(t, 10*time.Second, func() bool { return slices.Contains(copies(t, r.disk), 2) })
	if n, changed := fetched.n.Load(), int64(len(b.blobs)-before); n != changed || changed != 2 {
		t.Errorf("fetched %d blobs, %d changed", n, changed)
	}
}

type countingBlobs struct {
	release.Blobs
	n atomic.Int64
}

func (c *countingBlobs) Blob(ctx context.Context, d release.Digest) ([]byte, error) {
	c.n.Add(1)
	return c.Blobs.Blob(ctx, d)
}

// copies are the numbers on disk, newest first.
func copies(tb testing.TB, disk *release.Disk) (numbers []uint64) {
	tb.Helper()
	_ = disk.Restore(tb.Context(), func(_ context.Context, s release.Signed, _ release.Blobs) error {
		numbers = append(numbers, s.Number)
		return context.Canceled // look at the next one too
	})
	return numbers
}

// The canary has another release than the rest, until it is everybody's.
func TestCanaryIsOfferedAnotherRelease(t *testing.T) {
	t.Parallel()
	b, c := newBank(t, 10), newControl(t, nil)
	canary, other := b.replica(t, "r1", nil), b.replica(t, "r2", nil)
	for _, r := range []*replica{canary, other} {
		r.Use([]Source{c.source("a")})
		run(t, r.Run)
	}
	first := b.now()
	c.offer(t, b, first)
	canary.serves(t, 1)
	other.serves(t, 1)
	second := b.next(nil)
	if err := c.board.Offer(t.Context(), Offer{All: first, Canary: second, Replica: "r1"}, b.blobs); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if ack := c.roster.Await(ctx, 2, "r1"); ack.Replicas != 1 || ack.Of != 1 {
		t.Fatalf("the canary: %+v", ack)
	}
	if c.member("r1").State != Current || c.member("r2").State != Current || other.keeper.Status().Number != 1 {
		t.Errorf("the canary is %s, the other %s with %d", c.member("r1").State, c.member("r2").State, other.keeper.Status().Number)
	}
	c.offer(t, b, second)
	if ack := c.roster.Await(ctx, 2, ""); ack.Replicas != 2 || ack.Of != 2 {
		t.Errorf("all: %+v", ack)
	}
}

// A refusal is known to the control node at once, and the release is neither sent
// nor compiled again at every poll.
func TestRefusalIsAcknowledgedAndNotRepeated(t *testing.T) {
	t.Parallel()
	b, c := newBank(t, 10), newControl(t, nil)
	r := b.replica(t, "r1", nil)
	r.Use([]Source{c.source("a")})
	run(t, r.Run)
	c.offer(t, b, b.now())
	r.serves(t, 1)
	bad := b.next(nil)
	bad.Signature = b.now().Signature[:20]
	c.offer(t, b, bad)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ack := c.roster.Await(ctx, 2, "")
	if ctx.Err() != nil || ack.Replicas != 0 || len(ack.Lagging) != 1 || !strings.Contains(ack.Lagging[0].Why, "bad_signature") {
		t.Fatalf("acknowledged %+v", ack)
	}
	if m := c.member("r1"); m.State != Refusing || m.Number != 1 {
		t.Errorf("the roster has %+v", m)
	}
	// Another question that goes unanswered shows that it was not sent again.
	asked := c.member("r1").Seen
	eventually(t, 15*time.Second, func() bool { return c.member("r1").Seen.After(asked) })
	if n := r.keeper.Status().Refused["bad_signature"]; n != 1 {
		t.Errorf("refused %d times", n)
	}
	c.offer(t, b, b.next(nil))
	r.serves(t, 3)
	eventually(t, 10*time.Second, func() bool { return c.member("r1").State == Current })
}

// A forgery from one source must not keep the release of that number from coming
// from another one.
func TestForgeryFromOneSourceDoesNotBlockAnother(t *testing.T) {
	t.Parallel()
	b, c := newBank(t, 10), newControl(t, nil)
	forged := b.now()
	forged.Signature = "e30..x"
	forger := &scripted{name: "redis", Blobs: b.blobs, next: func(ctx context.Context, r Report) (*release.Signed, error) {
		if r.Number < 1 {
			return &forged, nil
		}
		return waits(ctx)
	}}
	r := b.replica(t, "r1", nil)
	r.Use([]Source{forger})
	run(t, r.Run)
	eventually(t, 10*time.Second, func() bool { return r.keeper.Status().Refused["bad_signature"] == 1 })
	r.Use([]Source{forger, c.source("a")})
	c.offer(t, b, b.now())
	r.serves(t, 1)
}

// A database that went back: the replica's release comes to the control node,
// which verifies it and gets the blobs that it lacks.
func TestReplicaThatIsAheadSendsItsRelease(t *testing.T) {
	t.Parallel()
	b := newBank(t, 40_000)
	first := b.now()
	disk := newDisk(t)
	keeper := b.keeper(disk)
	if err := keeper.Accept(t.Context(), first, b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	c := newControl(t, func(o *ServerOptions) {
		o.Disk = disk
		o.Known = func() uint64 { return keeper.Status().Number }
		o.Accept = func(ctx context.Context, s release.Signed, blobs release.Blobs) error {
			return keeper.Accept(ctx, s, blobs, "fleet")
		}
	})
	if err := c.board.Offer(t.Context(), Offer{All: first}, disk); err != nil {
		t.Fatal(err)
	}
	r := b.replica(t, "r1", nil)
	ahead := b.next(func(c *release.Change) {
		c.Lists = map[string]release.Digest{"staff-devices": b.list(50_000)}
	})
	if err := r.keeper.Accept(t.Context(), ahead, b.blobs, "another control node"); err != nil {
		t.Fatal(err)
	}
	r.Use([]Source{c.source("a")})
	run(t, r.Run)
	eventually(t, 20*time.Second, func() bool { return keeper.Status().Number == 2 })
	eventually(t, 10*time.Second, func() bool { return slices.Contains(copies(t, disk), 2) })
	if s := keeper.Status(); s.Source != "fleet" || s.DiskErr != "" || s.Digest != release.DigestOf(ahead.Manifest) {
		t.Errorf("the control node has %+v", s)
	}
	if m := c.member("r1"); m.State != Ahead {
		t.Errorf("the replica is %s", m.State)
	}
	eventually(t, 10*time.Second, func() bool { return r.States()[0].OK })
}

// A release that nobody trusts is not accepted from a replica, and not asked for at every poll.
func TestForgedReleaseOfAReplicaIsNotAccepted(t *testing.T) {
	t.Parallel()
	b, stranger := newBank(t, 10), newBank(t, 10)
	keeper := b.keeper(nil)
	var offered atomic.Int64
	c := newControl(t, func(o *ServerOptions) {
		o.Disk = newDisk(t)
		o.Accept = func(ctx context.Context, s release.Signed, blobs release.Blobs) error {
			offered.Add(1)
			return keeper.Accept(ctx, s, blobs, "fleet")
		}
	})
	r := stranger.replica(t, "r1", nil)
	if err := r.keeper.Accept(t.Context(), stranger.now(), stranger.blobs, "stranger"); err != nil {
		t.Fatal(err)
	}
	r.Use([]Source{c.source("a")})
	run(t, r.Run)
	eventually(t, 10*time.Second, func() bool { return strings.Contains(r.States()[0].Problem, "not_accepted") })
	eventually(t, 10*time.Second, func() bool { return r.States()[0].OK })
	if keeper.Current() != nil || offered.Load() != 1 || keeper.Status().Refused["unknown_key"] != 1 {
		t.Errorf("offered %d times, %+v", offered.Load(), keeper.Status())
	}
}

// Control nodes come and go; a source that stays keeps its question.
func TestReplicaMovesBetweenControlNodes(t *testing.T) {
	t.Parallel()
	b := newBank(t, 10)
	one, two, three := newControl(t, nil), newControl(t, nil), newControl(t, nil)
	r := b.replica(t, "r1", nil)
	r.Use([]Source{one.source("one"), two.source("two")})
	run(t, r.Run)
	one.offer(t, b, b.now())
	r.serves(t, 1)
	eventually(t, 10*time.Second, func() bool { return two.member("r1").Number == 1 }) // which brought nothing
	kept := r.all()[1]
	r.Use([]Source{two.source("two"), three.source("three")})
	if r.all()[1] != kept {
		t.Error("the source that stayed was begun anew")
	}
	three.offer(t, b, b.next(nil))
	r.serves(t, 2)
	left := one.member("r1").Seen
	eventually(t, 20*time.Second, func() bool { return two.member("r1").Number == 2 && three.member("r1").Number == 2 })
	if again := one.member("r1").Seen; again != left {
		t.Error("a control node that was taken out is still asked")
	}
}

// A control node that restarts knows its replicas again within a poll.
func TestControlNodeRestarts(t *testing.T) {
	t.Parallel()
	b, c := newBank(t, 10), newControl(t, nil)
	r := b.replica(t, "r1", nil)
	r.Use([]Source{c.source("a")})
	run(t, r.Run)
	c.offer(t, b, b.now())
	r.serves(t, 1)
	address := c.http.Listener.Addr().String()
	c.close()
	eventually(t, 10*time.Second, func() bool { return !r.States()[0].OK })
	if r.keeper.Status().Number != 1 {
		t.Error("what was served is gone")
	}
	again := newControl(t, nil)
	serveAt(t, address, again.server)
	again.offer(t, b, b.next(nil))
	r.serves(t, 2)
	eventually(t, 7*time.Second, func() bool { return again.member("r1").State == Current && r.States()[0].OK })
}

// What is not a question of ours is a problem with a code.
func TestServerRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	long := strings.Repeat("x", maxReport)
	for name, q := range map[string]struct {
		method, path, body string
		status             int
		code               string
	}{
		"no wait":         {"POST", watchPath, `{"id":"a","boot":"b"}`, 422, "bad_wait"},
		"a negative wait": {"POST", watchPath + "?wait=-5s", `{"id":"a","boot":"b"}`, 422, "bad_wait"},
		"no json":         {"POST", watchPath + "?wait=0s", `{`, 422, "bad_report"},
		"no id":           {"POST", watchPath + "?wait=0s", `{"boot":"b"}`, 422, "bad_report"},
		"an unprintable":  {"POST", watchPath + "?wait=0s", `{"id":"a\u0007","boot":"b"}`, 422, "bad_report"},
		"a long report":   {"POST", watchPath + "?wait=0s", `{"id":"a","boot":"b","disk_error":"` + long + `"}`, 413, "report_too_large"},
		"a long rest":     {"POST", watchPath + "?wait=0s", `{"id":"a","boot":"b","release":{"Number":1},"disk_error":"` + long + `"}`, 413, "report_too_large"},
		"no digest":       {"GET", blobsPath + "abc", "", 422, "bad_digest"},
		"no such blob":    {"GET", blobsPath + release.DigestOf([]byte("?")).String(), "", 404, codeNoBlob},
		"another page":    {"GET", "/", "", 404, "no_route"},
		"another method":  {"DELETE", watchPath, "", 404, "no_route"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := ask(t, c, q.method, q.path, q.body)
			if status != q.status || !strings.Contains(body, `"code":"`+q.code+`"`) {
				t.Errorf("%d %s, want %d %s", status, body, q.status, q.code)
			}
		})
	}
	if members := c.roster.Members(c.offered); len(members) != 0 {
		t.Errorf("the roster lists %v", members)
	}
}

// Nobody can fill a control node's disk: a blob that no release needs is not even read.
func TestBlobThatNobodyWantsIsNotReceived(t *testing.T) {
	t.Parallel()
	disk := newDisk(t)
	c := newControl(t, func(o *ServerOptions) {
		o.Disk, o.Accept = disk, func(context.Context, release.Signed, release.Blobs) error { return nil }
	})
	blob := "nobody wants this"
	d := release.DigestOf([]byte(blob))
	status, body := ask(t, c, http.MethodPut, blobsPath+d.String(), blob)
	if status != 200 || !strings.Contains(body, `"done":true`) {
		t.Errorf("%d %s", status, body)
	}
	if _, err := disk.Blob(t.Context(), d); err == nil {
		t.Error("it is on the disk")
	}
}

func TestStoppedServerAnswersAtOnce(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	answered := make(chan int, 1)
	go func() {
		status, _ := ask(t, c, http.MethodPost, watchPath+"?wait=8s", `{"id":"a","boot":"b"}`)
		answered <- status
	}()
	eventually(t, 5*time.Second, func() bool { return c.member("a").ID != "" })
	began := time.Now()
	c.server.Stop()
	if status := <-answered; status != 503 || time.Since(began) > 3*time.Second {
		t.Errorf("%d after %v", status, time.Since(began))
	}
}

func TestNewHTTPRefusesWhatIsNoFleetListener(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"http://127.0.0.1:8083": true, "http://[::1]:8083": true, "http://localhost:8083": true, "https://10.1.0.7:8083": true,
		"https://control.bank.example:8083/": true,
		"http://10.1.0.7:8083":               false, // plain text beyond this machine
		"10.1.0.7:8083":                      false, "": false, "ftp://127.0.0.1": false, "https://u:p@10.1.0.7": false,
		"https://10.1.0.7/x": false, "https://10.1.0.7?x=1": false,
	} {
		if _, err := NewHTTP(HTTPOptions{URL: url}); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
	if name := must(NewHTTP(HTTPOptions{URL: "https://10.1.0.7:8083"})).Name(); name != "control 10.1.0.7:8083" {
		t.Errorf("it is called %q", name)
	}
}
