package release

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/policy"
)

// breakGlass is an override of four hours from now.
func breakGlass(actions ...OverrideAction) *Override {
	now := time.Now().UTC().Truncate(time.Second)
	return &Override{ID: "o-1", Actions: actions, By: "ops", Reason: "city is dark", Created: now, Until: now.Add(4 * time.Hour)}
}

func swapAction() OverrideAction {
	return OverrideAction{Swap: &Swap{App: "mobile", Region: "sh", From: "sh-main", To: "sh-spare"}}
}

func regionAction(region string, state domain.RegionState) OverrideAction {
	return OverrideAction{Region: &SetRegion{App: "mobile", Region: region, State: state}}
}

// serving is a keeper that serves the bank's first release.
func (b *bank) serving(tb testing.TB, disk *Disk) *Keeper {
	tb.Helper()
	k := b.keeper(disk)
	b.accept(tb, k, b.first)
	return k
}

func (b *bank) accept(tb testing.TB, k *Keeper, m *Manifest) {
	tb.Helper()
	if err := k.Accept(tb.Context(), b.sign(m), b.blobs, "publisher"); err != nil {
		tb.Fatal(err)
	}
}

func (b *bank) override(tb testing.TB, k *Keeper, actions ...OverrideAction) {
	tb.Helper()
	if err := k.Override(tb.Context(), breakGlass(actions...)); err != nil {
		tb.Fatal(err)
	}
}

// domainOf is what a device that goes to Shanghai is told, as the handler reads it.
func domainOf(s *Snapshot, req *policy.Request) string {
	app := s.Apps["mobile"]
	d := app.Table.Decide(req)
	if d.Region < 0 {
		return app.App.Fallback
	}
	return app.App.Regions[d.Region].Endpoints[d.Endpoint].Domain
}

func staff() *policy.Request { return &policy.Request{Now: madeAt(), Device: "d-1001"} }

func TestOverrideIsLaidOverTheRelease(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.serving(t, nil)
	base := k.Current()
	changed := k.Changed()
	b.override(t, k, swapAction())
	cur := k.Current()
	if domainOf(base, staff()) != "wapabst.a.com.cn" || domainOf(cur, staff()) != "wapabst2.a.com.cn" {
		t.Errorf("from %s to %s", domainOf(base, staff()), domainOf(cur, staff()))
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was woken")
	}
	if cur.Number != base.Number || cur.Digest != base.Digest || cur.Manifest != base.Manifest || cur.Override == nil || base.Override != nil {
		t.Error("an override is no release")
	}
	if s, ok := k.Signed(); !ok || !bytes.Equal(s.Manifest, b.sign(b.first).Manifest) || s.Records.Seq != 1 {
		t.Error("the signed release is lost")
	}
	was, is := base.Apps["mobile"], cur.Apps["mobile"]
	if &was.Answer[0][0] != &is.Answer[0][0] || cur.Apps["corporate"].Table != base.Apps["corporate"].Table || cur.Lists != base.Lists {
		t.Error("answers, lists or an app that nobody named were made anew")
	}
	if o := k.Status().Override; o == nil || o.Over != 1 || len(o.Unfit) != 0 || o.Reason != "city is dark" {
		t.Errorf("status says %+v", o)
	}
	b.override(t, k, regionAction("sh", domain.Off)) // takes the place of the swap
	if got := domainOf(k.Current(), staff()); got != "wapcdst.b.com.cn" {
		t.Errorf("with Shanghai off: %s", got)
	}
	if err := k.Override(t.Context(), nil); err != nil || k.Current() != base || k.Status().Override != nil {
		t.Errorf("taken away: %v", err)
	}
	if k.Override(t.Context(), nil) != nil {
		t.Error("there is none to take away, and that is no error")
	}
}

// What one replica does on its own must not decide which release it accepts, and
// a release must not end what somebody did for a reason.
func TestOverrideOutlivesReleases(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.serving(t, nil)
	b.override(t, k, regionAction("sh", domain.Off)) // moves far more than a release may without a mark
	second := next(b.first, nil)
	b.accept(t, k, second)
	if cur := k.Current(); cur.Number != 2 || domainOf(cur, staff()) != "wapcdst.b.com.cn" || !strings.Contains(string(cur.Apps["mobile"].Fallback.Bodies[0]), `"release":2,`) {
		t.Errorf("release %d sends to %s", cur.Number, domainOf(cur, staff()))
	}
	renewed := b.sign(second)
	renewed.Records = must(Renew(renewed, b.keys.Trust(), b.keys.Record, madeAt().AddDate(0, 0, 1)))
	if err := k.Accept(t.Context(), renewed, b.blobs, "publisher"); err != nil || k.Current().Seq != 2 || domainOf(k.Current(), staff()) != "wapcdst.b.com.cn" {
		t.Errorf("after a renewal: %v", err)
	}
	loader := b.loader(nil)
	if _, err := loader.Load(t.Context(), b.sign(next(second, nil)), b.blobs, k.Current()); err != nil {
		t.Errorf("compared with the override: %v", err)
	}
	big := next(second, func(_ *Document, o *Operational, _ *Change) {
		o.Apps = map[string]AppState{"mobile": {Regions: map[string]RegionOps{"hf": {State: domain.Off, Epoch: 1}}}}
	})
	wantCode(t, k.Accept(t.Context(), b.sign(big), b.blobs, "publisher"), "big_move")
	if moved := Moved(k.Current(), b.load(t, next(second, nil), nil)); moved["mobile"] != 0 {
		t.Errorf("an override counts as a move of %v", moved)
	}
}

func TestOverrideThatDoesNotFitALaterReleaseIsReported(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for name, c := range map[string]struct {
		actions []OverrideAction
		change  func(*Document, *Operational, *Change)
		unfit   string
		host    string
	}{
		"the endpoint is gone": {[]OverrideAction{swapAction()}, func(d *Document, _ *Operational, _ *Change) {
			d.Apps[0].Regions[0].Endpoints = d.Apps[0].Regions[0].Endpoints[:1]
		}, "has no endpoint", "wapabst.a.com.cn"},
		"the endpoint is off": {[]OverrideAction{swapAction()}, func(d *Document, _ *Operational, _ *Change) {
			d.Apps[0].Regions[0].Endpoints[1].State = domain.Closed
		}, "is off", "wapabst.a.com.cn"},
		"the region is gone": {[]OverrideAction{regionAction("hf", domain.Off), swapAction()}, func(d *Document, _ *Operational, c *Change) {
			d.Apps[0].Regions, d.Apps[0].Regions[0].Failover = d.Apps[0].Regions[:1], nil
			d.Apps[0].Policies, d.Apps[0].Otherwise = nil, policy.Action{Region: "sh"}
			c.Approve = Approval{RegionRemoved: true, BigMove: true}
		}, "has no region", "wapabst2.a.com.cn"}, // the rest stays in effect
		"the last region": {[]OverrideAction{regionAction("sh", domain.Off)}, func(_ *Document, o *Operational, c *Change) {
			o.Apps = map[string]AppState{"mobile": {Regions: map[string]RegionOps{"hf": {State: domain.Off, Epoch: 1}}}}
			c.Approve.BigMove = true
		}, "last usable region", "wapabst.a.com.cn"}, // P21 holds in this lane too
		"it is so already": {[]OverrideAction{swapAction()}, func(_ *Document, o *Operational, _ *Change) { *o = swapped() }, "", "wapabst2.a.com.cn"},
		"somebody turned it on and drained it": {[]OverrideAction{regionAction("sh", domain.Off)}, func(_ *Document, o *Operational, c *Change) {
			o.Apps = map[string]AppState{"mobile": {Regions: map[string]RegionOps{"sh": {State: domain.Draining}}}}
			c.Approve.BigMove = true
		}, "", "wapcdst.b.com.cn"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := b.serving(t, nil)
			b.override(t, k, c.actions...)
			m := next(b.first, c.change)
			b.accept(t, k, m)
			o := k.Status().Override
			if o == nil || (c.unfit == "") != (len(o.Unfit) == 0) || c.unfit != "" && !strings.Contains(fmt.Sprint(o.Unfit), c.unfit) {
				t.Errorf("status says %+v, want %q", o, c.unfit)
			}
			if got := domainOf(k.Current(), staff()); got != c.host || k.Current().Number != 2 {
				t.Errorf("release %d sends to %s, want %s", k.Current().Number, got, c.host)
			}
			b.accept(t, k, next(m, func(d *Document, o *Operational, c *Change) { // and back
				*d, *o = clone(b.first.Document), clone(b.first.Operational)
				c.Approve.BigMove, c.Approve.Hosts = true, b.hosts()
			}))
			if o := k.Status().Override; o == nil || len(o.Unfit) != 0 {
				t.Errorf("it fits again, and status says %+v", o)
			}
		})
	}
}

// hosts are all hosts of the first release.
func (b *bank) hosts() (hosts []string) {
	for host := range b.first.Document.Domains() {
		hosts = append(hosts, host)
	}
	return hosts
}

// P21 and SEC32: an override keeps the rules of every lane and brings no domain.
func TestOverrideRefuses(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.serving(t, nil)
	base := k.Current()
	for name, c := range map[string]struct {
		code string
		edit func(*Override)
	}{
		"no id":                    {"bad_override", func(o *Override) { o.ID = "" }},
		"nobody":                   {"bad_override", func(o *Override) { o.By = " " }},
		"no reason":                {"bad_override", func(o *Override) { o.Reason = "" }},
		"a line of a log":          {"bad_override", func(o *Override) { o.Reason = "x\n{\"level\":\"INFO\"}" }},
		"no action":                {"bad_override", func(o *Override) { o.Actions = nil }},
		"an empty action":          {"bad_override", func(o *Override) { o.Actions = []OverrideAction{{}} }},
		"two in one":               {"bad_override", func(o *Override) { o.Actions[0].Region = regionAction("sh", domain.Off).Region }},
		"too many":                 {"bad_override", func(o *Override) { o.Actions = slices.Repeat(o.Actions, 101) }},
		"longer than a day":        {"bad_override", func(o *Override) { o.Until = o.Created.Add(MaxOverride + 1) }},
		"no end":                   {"bad_override", func(o *Override) { o.Until = time.Time{} }},
		"ends before it begins":    {"bad_override", func(o *Override) { o.Until = o.Created }},
		"is over":                  {"override_over", func(o *Override) { o.Created, o.Until = o.Created.Add(-5*time.Hour), o.Until.Add(-5*time.Hour) }},
		"for others":               {"other_deployment", func(o *Override) { o.Deployment = "bank2" }},
		"a host instead of a name": {"override_unfit", func(o *Override) { o.Actions[0].Swap.To = "evil.example" }},
		"an endpoint elsewhere":    {"override_unfit", func(o *Override) { o.Actions[0].Swap.To = "hf-main" }},
		"an endpoint that is off":  {"override_unfit", func(o *Override) { o.Actions[0].Swap.To = "sh-old" }},
		"another screen":           {"override_unfit", func(o *Override) { o.Actions[0].Swap.Expect = "sh-spare" }},
		"another state": {"override_unfit", func(o *Override) {
			o.Actions = []OverrideAction{{Region: &SetRegion{"mobile", "sh", "draining", "off"}}}
		}},
		"no such state": {"override_unfit", func(o *Override) { o.Actions = []OverrideAction{regionAction("sh", "of")} }},
		"no such app":   {"override_unfit", func(o *Override) { o.Actions[0].Swap.App = "x" }},
		"the last region": {"override_unfit", func(o *Override) {
			o.Actions = []OverrideAction{regionAction("sh", domain.Off), regionAction("hf", domain.Off)}
		}},
	} {
		o := breakGlass(swapAction())
		c.edit(o)
		if err := k.Override(t.Context(), o); fault.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
		if k.Current() != base || k.Status().Override != nil {
			t.Fatalf("%s: it is in effect", name)
		}
	}
	wantCode(t, b.keeper(nil).Override(t.Context(), breakGlass(swapAction())), "no_release")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Override(ctx, breakGlass(swapAction())); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

func TestOverrideEnds(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		k := b.serving(t, must(OpenDisk(dir)))
		if !k.Expire().IsZero() {
			t.Error("there is none to end")
		}
		o := breakGlass(swapAction())
		if err := k.Override(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(k.Expire()) - time.Second)
		if k.Expire().IsZero() || k.Current().Override == nil {
			t.Fatal("it ended before its time")
		}
		time.Sleep(time.Second)
		changed := k.Changed()
		if !k.Expire().IsZero() || k.Current().Override != nil || domainOf(k.Current(), staff()) != "wapabst.a.com.cn" {
			t.Error("it did not end")
		}
		select {
		case <-changed:
		default:
			t.Error("nobody was woken")
		}
		if _, err := os.Stat(filepath.Join(dir, overrideName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its file is still there: %v", err)
		}
		b.override(t, k, swapAction())
		time.Sleep(5 * time.Hour)
		b.accept(t, k, next(b.first, nil)) // nobody called Expire
		if k.Current().Override != nil || b.keeper(must(OpenDisk(dir))).over != nil {
			t.Error("a release found it over, and left it")
		}
	})
}

// A replica that skips the release that clears must end its override all the same.
func TestReleaseClearsOverrides(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k, late := b.serving(t, must(OpenDisk(t.TempDir()))), b.serving(t, nil)
	b.override(t, k, swapAction())
	b.override(t, late, swapAction())
	second := next(b.first, func(_ *Document, _ *Operational, c *Change) { c.Clears = true })
	third := next(second, nil)
	b.accept(t, k, second)
	if k.Current().Override != nil || k.Status().Override != nil || must(k.disk.override()) != nil {
		t.Error("the release did not clear it")
	}
	b.override(t, k, swapAction()) // made after that release
	b.accept(t, k, third)
	if k.Current().Override == nil {
		t.Error("an old mark cleared a new override")
	}
	b.accept(t, late, third)
	if late.Current().Override != nil {
		t.Error("a replica that skipped the release kept its override")
	}
}

func TestOverrideSurvivesARestart(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	dir := t.TempDir()
	b.override(t, b.serving(t, must(OpenDisk(dir))), swapAction())
	path := filepath.Join(dir, overrideName)
	if info := must(os.Stat(path)); info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	k := b.keeper(must(OpenDisk(dir)))
	if err := k.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o := k.Status().Override; o == nil || o.Over != 1 || domainOf(k.Current(), staff()) != "wapabst2.a.com.cn" {
		t.Errorf("after a restart: %+v", o)
	}
	if left := time.Until(k.Expire()); left < 3*time.Hour || left > 4*time.Hour {
		t.Errorf("%s are left of it", left)
	}
	fresh := b.keeper(must(OpenDisk(dir))) // a source is faster than the disk
	b.accept(t, fresh, next(b.first, nil))
	if fresh.Current().Override == nil {
		t.Error("the first release from a source is served without it")
	}

	data := must(os.ReadFile(path))
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 1
		if _, err := decodeOverride(bad); err == nil {
			t.Fatalf("byte %d changed, and it is believed", i)
		}
		if _, err := decodeOverride(data[:i]); err == nil {
			t.Fatalf("cut to %d bytes, and it is believed", i)
		}
	}
	for name, damage := range map[string]func(path string){
		"one byte":      func(path string) { overwrite(t, path, append(slices.Clone(data[:len(data)-1]), 'x')) },
		"empty":         func(path string) { overwrite(t, path, nil) },
		"too long":      func(path string) { overwrite(t, path, forged(`"until":"2099-01-01T00:00:00Z"`, data)) },
		"unknown field": func(path string) { overwrite(t, path, forged(`"more":1,"until":"2027-01-01T00:00:00Z"`, data)) },
		"open to all": func(path string) {
			if err := os.Chmod(overwrite(t, path, data), 0o644); err != nil {
				t.Fatal(err)
			}
		},
	} {
		_, dir := written(t, 1)
		path := filepath.Join(dir, overrideName)
		damage(path)
		k := b.keeper(must(OpenDisk(dir)))
		b.accept(t, k, b.first)
		if s := k.Status(); k.Current().Override != nil || s.OverrideErr == "" || s.DiskBad != 1 {
			t.Errorf("%s: %+v", name, s)
		}
		if _, err := os.Stat(path + badExt); err != nil {
			t.Errorf("%s: not kept for a look: %v", name, err)
		}
		b.override(t, k, swapAction())
		if s := k.Status(); s.OverrideErr != "" {
			t.Errorf("%s: a good one is kept, and status says %s", name, s.OverrideErr)
		}
	}
}

// forged is the file with another end and the checksum of that.
func forged(until string, data []byte) []byte {
	_, body, _ := bytes.Cut(data, []byte("\n"))
	i := bytes.Index(body, []byte(`"until":"`))
	j := i + bytes.Index(body[i:], []byte(`Z"`)) + 2
	body = slices.Concat(body[:i], []byte(until), body[j:])
	return append(fmt.Appendf(nil, "%s sha256=%s\n", overrideMagic, checksum(overrideMagic, body)), body...)
}

// P15 and P16: neither a disk that takes nothing nor a clock that was set stop or
// prolong break glass.
func TestOverrideNeedsNeitherDiskNorClock(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	dir := filepath.Join(t.TempDir(), "releases")
	k := b.serving(t, must(OpenDisk(dir)))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	b.override(t, k, swapAction())
	if s := k.Status(); s.Override == nil || !strings.Contains(s.OverrideErr, dir) || domainOf(k.Current(), staff()) != "wapabst2.a.com.cn" {
		t.Errorf("without its disk: %+v", s)
	}
	o := breakGlass(swapAction())
	for behind, want := range map[time.Duration]time.Duration{0: 4 * time.Hour, time.Hour: 4 * time.Hour, 24 * time.Hour: 4 * time.Hour, -time.Hour: 3 * time.Hour, -24 * time.Hour: -20 * time.Hour} {
		if left := o.left(o.Created.Add(-behind)); left != want {
			t.Errorf("a clock %s behind leaves it %s, want %s", behind, left, want)
		}
	}
}

// Break glass is for when nothing else answers: it waits for no source.
func TestOverrideWaitsForNoLoad(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.serving(t, nil)
	source := hungBlobs{asked: make(chan context.Context, 1)}
	slow := next(b.first, func(_ *Document, _ *Operational, c *Change) {
		c.Lists = map[string]Digest{"staff-devices": b.list(slices.Values([]string{"d-7"}))}
	})
	var accept sync.WaitGroup
	accept.Go(func() { wantCode(t, k.Accept(context.Background(), b.sign(slow), source, "slow"), "superseded") })
	load := <-source.asked
	b.override(t, k, swapAction())
	if domainOf(k.Current(), staff()) != "wapabst2.a.com.cn" {
		t.Error("not in effect")
	}
	// An emergency waits for no load either: the older release gives way to a newer
	// one, but not to a number that nobody signed.
	emergency := b.sign(next(b.first, func(_ *Document, _ *Operational, c *Change) { c.Above = 2 }))
	k.hurry(edit(emergency, func(s *Signed) { s.Signature = "" }))
	k.hurry(b.sign(next(b.first, nil)))
	if load.Err() != nil {
		t.Error("a load gave way to nothing")
	}
	if err := k.Accept(t.Context(), emergency, b.blobs, "publisher"); err != nil {
		t.Error(err)
	}
	accept.Wait()
	if s := k.Status(); s.Number != 3 || len(s.Refused) != 0 {
		t.Errorf("status %+v", s)
	}
}

// hungBlobs is a source that never answers.
type hungBlobs struct{ asked chan context.Context }

func (h hungBlobs) Blob(ctx context.Context, _ Digest) ([]byte, error) {
	h.asked <- ctx
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestSignedOverrideIsForItsDeployment(t *testing.T) {
	t.Parallel()
	b, stranger := newBank(t), newBank(t)
	o := breakGlass(swapAction())
	_, err := SignOverride(o, b.keys.Publisher)
	wantCode(t, err, "bad_override")
	o.Deployment, o.By = "bank", "nobody"
	data := must(SignOverride(o, b.keys.Publisher))
	got, err := OpenOverride(append(data, '\n'), b.keys.Trust())
	if err != nil || got.By != b.keys.Publisher.Current().ID() || got.Reason != o.Reason || !got.Until.Equal(o.Until) || *got.Actions[0].Swap != *o.Actions[0].Swap {
		t.Fatalf("got %+v, %v", got, err)
	}
	if err := b.serving(t, nil).Override(t.Context(), got); err != nil {
		t.Error(err)
	}
	if o.By != "nobody" {
		t.Error("signing changed the override")
	}
	long := *o
	long.Until = o.Created.Add(25 * time.Hour)
	_, err = SignOverride(&long, b.keys.Publisher)
	wantCode(t, err, "bad_override")
	_, err = SignOverride(o, b.keys.Record)
	if !errors.Is(err, signed.ErrKey) {
		t.Errorf("signed with a record key: %v", err)
	}
	sign := func(payload string) []byte {
		return []byte(must(b.keys.Publisher.Current().Sign(signed.TypOverride, []byte(payload))))
	}
	payload := must(base64.RawURLEncoding.DecodeString(strings.Split(string(data), ".")[1]))
	for name, c := range map[string]struct {
		data []byte
		code string
	}{
		"a stranger's":        {must(SignOverride(o, stranger.keys.Publisher)), "unknown_key"},
		"a byte changed":      {bytes.Replace(data, []byte("."), []byte(".e"), 1), "bad_signature"},
		"cut":                 {data[:len(data)-5], "bad_signature"},
		"nothing":             {nil, "bad_signature"},
		"unsigned":            {payload, "bad_signature"},
		"a record":            {[]byte(must(b.keys.Record.Current().Sign(signed.TypRecord, payload))), "bad_signature"},
		"a manifest":          {[]byte(b.sign(b.first).Signature), "bad_signature"},
		"too large":           {make([]byte, maxOverrideText+1), "bad_override"},
		"an unknown field":    {sign(`{"host":"evil.example"}`), "bad_override"},
		"no deployment":       {sign(strings.Replace(string(payload), `"deployment":"bank",`, "", 1)), "bad_override"},
		"longer than allowed": {sign(strings.Replace(string(payload), `"created":"2`, `"created":"1`, 1)), "bad_override"},
	} {
		if got, err := OpenOverride(c.data, b.keys.Trust()); fault.CodeOf(err) != c.code || err == nil || got != nil {
			t.Errorf("%s: got %v, %v, want %s", name, got, err, c.code)
		}
	}
}

// Overrides, releases and readers at once: run with -race.
func TestOverrideBesideReleases(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.serving(t, must(OpenDisk(t.TempDir())))
	var all sync.WaitGroup
	all.Go(func() {
		m := b.first
		for range 20 {
			m = next(m, nil)
			b.accept(t, k, m)
		}
	})
	for range 2 {
		all.Go(func() {
			for n := range 20 {
				o := breakGlass(swapAction())
				if n%3 == 2 {
					o = nil
				}
				if err := k.Override(t.Context(), o); err != nil {
					t.Error(err)
				}
				k.Expire()
			}
		})
	}
	all.Go(func() {
		for range 2000 {
			cur := k.Current()
			want := "wapabst.a.com.cn"
			if cur.Override != nil {
				want = "wapabst2.a.com.cn"
			}
			if got := domainOf(cur, staff()); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
	all.Wait()
	onDisk := must(k.disk.override())
	if (onDisk != nil) != (k.Status().Override != nil) {
		t.Error("the file does not say what is in force")
	}
}
