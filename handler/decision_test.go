package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// logged runs requests with a decision log and returns its lines.
func logged(t *testing.T, requests func(f *fixture), with ...func(*Options)) (lines []string, f *fixture) {
	t.Helper()
	out := new(buffer)
	f = newFixture(t, append(with, func(o *Options) { o.Decisions = out })...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.handler.Run(ctx) }()
	requests(f)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !out.closed {
		t.Error("Run left the log open")
	}
	return out.lines(), f
}

func TestDecisionRecord(t *testing.T) {
	t.Parallel()
	lines, f := logged(t, func(f *fixture) {
		first := f.ask(t, "/route?platform=ios&app_version=10.3&attr.tier=gold", "X-Device-Id", "d-1001",
			"X-User-Id", "vip-1", "X-Forwarded-For", "198.51.100.77", "peer", "10.0.0.5:1")
		f.ask(t, "/route", "X-Device-Id", "d-1001", "X-Session-Token", first.Session, "peer", "[2001:db8:1:2ff::1]:9")
		f.ask(t, "/route?app_version=x&platform=ios", "X-Device-Id", "d-7")
	})
	if len(lines) != 3 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	type record struct {
		Time                                              time.Time
		ID, App, Digest, Reason, Policy, Region, Endpoint string
		Device, User, Prefix, Platform                    string
		AppVersion                                        string `json:"app_version"`
		AddrSource                                        string `json:"addr_source"`
		Release                                           uint64
		Bucket                                            int
		Candidates, Notes                                 []string
		Attrs                                             map[string]string
		Session                                           map[string]any
		Replica                                           policy.Replica
		Databases                                         policy.GeoDigests
	}
	var got [3]record
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &got[i]); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	device, user := f.key.Hash(whitelist.Device, "d-1001").String(), f.key.Hash(whitelist.User, "vip-1").String()
	a := got[0]
	if a.App != "mobile" || a.Reason != "POLICY" || a.Policy != "staff" || a.Region != "sh" || a.Endpoint != "sh-main" ||
		a.Device != device || a.User != user || a.Prefix != "198.51.100.0/24" || a.AddrSource != "x-forwarded-for" || a.Release != 412 || len(a.ID) != 32 ||
		a.Platform != "ios" || a.AppVersion != "10.3" || len(a.Attrs["tier"]) != 32 || len(a.Candidates) != 1 ||
		a.Candidates[0] != "sh" || a.Replica.Region != "sh" || a.Databases.City != "c17" ||
		a.Digest != f.current.Current().Digest.String() || !a.Time.Equal(testNow) || a.Session != nil {
		t.Errorf("first record %+v", a)
	}
	if b := got[1]; b.Reason != "STICKY" || b.Session["region"] != "sh" || b.Session["bound"] != "device" ||
		b.Prefix != "2001:db8:1:200::/56" || b.AddrSource != "peer" || b.ID == a.ID {
		t.Errorf("sticky record %+v", b)
	}
	if c := got[2]; c.Reason != "DEFAULT" || c.Bucket < 0 || c.Policy != "" || !strings.Contains(strings.Join(c.Notes, " "), "bad_version") {
		t.Errorf("default record %+v", c)
	}
}

// TestTheRecordSaysWhichAddressWon is e44: of all that names an address in a
// request, the record says which one was believed.
func TestTheRecordSaysWhichAddressWon(t *testing.T) {
	t.Parallel()
	all := []string{"X-Forwarded-For", "198.51.100.7", "Forwarded", "for=192.0.2.7", "X-Real-Ip", "192.0.2.8"}
	const peer, proxy = "203.0.113.9:1", "10.0.0.5:1"
	cases := []struct {
		headers []string
		want    string
	}{
		{append(all, "peer", peer), `"prefix":"203.0.113.0/24","addr_source":"peer"`},
		{append(all, "peer", proxy), `"prefix":"198.51.100.0/24","addr_source":"x-forwarded-for"`},
		{append(all[2:], "peer", proxy), `"prefix":"192.0.2.0/24","addr_source":"forwarded"`},
		{append(all[4:], "peer", proxy), `"prefix":"10.0.0.0/24","addr_source":"peer"`},
		{append(all, "peer", "@"), ""}, // a Unix socket has none
	}
	lines, _ := logged(t, func(f *fixture) {
		for _, tc := range cases {
			f.ask(t, "/route?ip=192.0.2.9&device_id=d-1001", tc.headers...)
		}
	})
	for i, tc := range cases {
		if !strings.Contains(lines[i], tc.want) || (tc.want == "") == strings.Contains(lines[i], "addr_source") {
			t.Errorf("%v: %s, want %s", tc.headers, lines[i], tc.want)
		}
	}
}

func TestDecisionRecordOfFailover(t *testing.T) {
	t.Parallel()
	lines, _ := logged(t, func(f *fixture) {
		f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) { d.Apps[0].Regions[0].State = domain.Off }))
		f.ask(t, "/route", "X-Device-Id", "d-1001")
		f.current.Store(f.snapshotOf(t, 414, func(d *release.Document) {
			d.Apps[0].Regions[0].State, d.Apps[0].Regions[0].Failover = domain.Off, nil
		}))
		f.ask(t, "/route", "X-Device-Id", "d-1001")
	})
	for i, want := range []string{
		`"reason":"FAILOVER","policy":"staff","bucket":`,
		`"reason":"FALLBACK","policy":"staff","bucket":-1,"candidates":["sh"],"notes":`,
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d: %s lacks %s", i, lines[i], want)
		}
	}
	if !strings.Contains(lines[0], `"candidates":["sh","hf"],"region":"hf","endpoint":"hf-main"`) {
		t.Errorf("failover: %s", lines[0])
	}
}

// TestNoRawIDIsWritten is SEC23 for this listener: 1,000 ids in every place where
// one may stand, and not one of them in the log, the metrics or the decision records.
func TestNoRawIDIsWritten(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	lines, f := logged(t, func(f *fixture) {
		for i := range 1000 {
			id := fmt.Sprintf("secret-%d", i)
			f.get("/route?device_id="+id+"&attr.phone="+id, "X-User-Id", id, "peer", "10.0.0.5:1")
			f.do("POST", "/route", `{"user_id":"`+id+`"`)
			f.get("/route?app=" + id)
			f.get("/" + id)
		}
	}, func(o *Options) {
		o.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	if len(lines) != 1000 || log.String() == "" {
		t.Fatalf("%d records, log %d bytes", len(lines), len(log.String()))
	}
	for name, text := range map[string]string{"records": strings.Join(lines, "\n"), "metrics": f.exposition(t), "log": log.String()} {
		if i := strings.Index(text, "secret-"); i >= 0 {
			t.Errorf("%s hold an id: %.200s", name, text[max(0, i-100):])
		}
	}
}

// An id or any other input that breaks lines stays in its own, escaped.
func TestSEC22ControlCharactersStayInTheirLine(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	lines, _ := logged(t, func(f *fixture) {
		f.ask(t, "/route?device_id=x%0A%7B%22level%22:%22INFO%22%7D&platform=a%0D%0A%1B%5B31m%22%5C%00%E2%80%A8%F0%9F%98%80%FF&attr.%0A=1")
	}, func(o *Options) {
		o.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	if len(lines) != 1 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	var r struct{ Platform string }
	if err := json.Unmarshal([]byte(lines[0]), &r); err != nil {
		t.Fatal(err)
	}
	if want := "a\r\n\x1b[31m\"\\\x00\u2028😀\ufffd"; r.Platform != want {
		t.Errorf("platform %q, want %q", r.Platform, want)
	}
	for _, text := range []string{lines[0], strings.TrimSuffix(log.String(), "\n")} {
		for _, c := range text {
			if c < ' ' || c > '~' {
				t.Errorf("raw %U in %q", c, text)
			}
		}
	}
}

// stuck is a disk that does not answer until it is let go.
type stuck struct {
	buffer
	entered chan struct{}
	let     chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.let
	return s.buffer.Write(p)
}

// TestASlowDiskNeverSlowsARequest fills the buffer behind a write that hangs:
// requests go on, what does not fit is dropped and counted, the rest is written.
func TestASlowDiskNeverSlowsARequest(t *testing.T) {
	t.Parallel()
	disk := &stuck{entered: make(chan struct{}, 1), let: make(chan struct{})}
	f := newFixture(t, func(o *Options) { o.Decisions = disk })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.handler.Run(ctx) }()
	const asked, first = 15_000, 2 * writeSize / 600 // a record has about 520 bytes
	for i := range asked {
		f.ask(t, "/route")
		if i == first {
			<-disk.entered // with little more than one write
		}
	}
	dropped := f.counter(t, "dispatch_decision_log_dropped_total")
	if dropped == 0 {
		t.Error("nothing was dropped")
	}
	close(disk.let)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := len(disk.lines()); n != asked-dropped {
		t.Errorf("%d lines written, want %d less %d dropped", n, asked, dropped)
	}
	if n := disk.text.Len(); n > maxPending+2*writeSize {
		t.Errorf("%d bytes waited, the limit is %d", n, maxPending)
	}
}

// broken fails as long as it is full.
type broken struct {
	buffer
	full bool
}

func (b *broken) Write(p []byte) (int, error) {
	if b.full {
		return 0, errors.New("no space left on device")
	}
	return b.buffer.Write(p)
}

func TestAFullDiskIsSaidOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := &broken{full: true}
		var log lockedBuffer
		f := newFixture(t, func(o *Options) {
			o.Decisions, o.Log = disk, slog.New(slog.NewTextHandler(&log, nil))
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.handler.Run(ctx) }()
		for i := range 6 {
			disk.full = i < 3
			f.ask(t, "/route")
			time.Sleep(2 * flushEvery)
			synctest.Wait()
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		f.wantMetric(t, "dispatch_decision_log_dropped_total 3")
		if n := len(disk.lines()); n != 3 {
			t.Errorf("%d lines after there was space again, want 3", n)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d log lines, want one for the failure and one for its end:\n%s", n, log.String())
		}
	})
}

func TestRotatedFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "decisions.jsonl")
	w := RotatedFile(name, 1, 2)
	line := []byte(strings.Repeat("x", 1<<16-1) + "\n")
	for range 40 {
		if _, err := w.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Size() > 1<<20 {
		t.Errorf("current file: %v, %v", info, err)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(name), "decisions-*.jsonl")); len(files) == 0 {
		t.Error("no older file")
	}
}

func TestRunWithoutALogEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.handler.Run(ctx); err != nil {
		t.Error(err)
	}
}

// FuzzLogString holds that a JSON reader gets back what was written, and that
// nothing but printable ASCII is.
func FuzzLogString(f *testing.F) {
	for _, seed := range []string{"", "a", "\n\x1b[0m", "\"\\", "\xff", "\u2028", "😀", "\x7f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := appendString(nil, s)
		var back string
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("%q: %s: %v", s, text, err)
		}
		if want := strings.ToValidUTF8(s, ""); strings.ReplaceAll(back, "\ufffd", "") != strings.ReplaceAll(want, "\ufffd", "") {
			t.Errorf("%q came back as %q", s, back)
		}
		for _, c := range text {
			if c < ' ' || c > '~' {
				t.Errorf("%q: raw byte %x", s, c)
			}
		}
	})
}

func BenchmarkDecisionRecord(b *testing.B) {
	f := newFixture(b)
	r, err := newRenderer(policy.Replica{Region: "sh"}, policy.GeoDigests{}, f.key.Hash)
	if err != nil {
		b.Fatal(err)
	}
	snap := f.current.Current()
	d := decision{snap: snap, app: snap.Apps["mobile"], out: policy.Decision{Reason: policy.Default, Policy: -1, Bucket: 77},
		req: policy.Request{Now: testNow, Device: "d-1001", Platform: "ios", AppVersion: "10.2.1", Addr: netip.MustParseAddr("203.0.113.9")}}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = r.append(buf[:0], &d)
	}
	b.ReportMetric(float64(len(buf)), "B/record")
	_, _ = io.Discard.Write(buf)
}
