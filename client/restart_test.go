package client_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/client"
)

// stored is a store as a client left it that got this answer.
func stored(t *testing.T, body any) *disk {
	t.Helper()
	d := &disk{}
	opt := both(says(body)).options()
	opt.Store = d
	c := newClient(t, opt)
	equal(t, "source", c.Route(background()).Source, client.Fresh)
	c.Close()
	return d
}

func start(t *testing.T, b *bank, d client.Store) *client.Client {
	t.Helper()
	opt := b.options()
	opt.Store = d
	return newClient(t, opt)
}

func TestALastGoodAnswerStartsTheAppAtOnceAndRefreshesBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := stored(t, signedAt(time.Now(), claims()))
		time.Sleep(100 * time.Second)
		b := both(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(700 * time.Millisecond)
			says(signedAt(time.Now(), claims().with("domain", "wapcdst.b.com.cn").with("region", "hf")))(w, r)
		})
		c := start(t, b, d)
		began := time.Now()
		got := c.Route(background())
		equal(t, "time", time.Since(began), time.Duration(0))
		equal(t, "domain", got.Domain, "wapabst.a.com.cn")
		equal(t, "source", got.Source, client.Cached)

		time.Sleep(time.Second)
		equal(t, "domain after the refresh", c.Route(background()).Domain, "wapcdst.b.com.cn")
		equal(t, "requests", len(b.requests()), 1)
	})
}

func TestAFailedRefreshBehindIsTriedAgainAndIsNoFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := stored(t, signedAt(time.Now(), claims()))
		b := both(breaks)
		c := start(t, b, d)
		equal(t, "source", c.Route(background()).Source, client.Cached)
		synctest.Wait()
		got := c.Route(background())
		equal(t, "source", got.Source, client.Cached)
		equal(t, "reason", got.Reason, client.Unreachable)
		time.Sleep(2 * time.Second)
		b.set(says(signedAt(time.Now(), claims())), wap1, wap2)
		c.Route(background())
		synctest.Wait()
		got = c.Route(background())
		equal(t, "reason", got.Reason, client.Reason(""))
		equal(t, "reported", b.last().Header.Get("X-Fallback-Reason"), "")
		c.Close()
	})
}

func TestWithoutTTLLeftTheAppAsksFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := stored(t, signedAt(time.Now(), claims()))
		time.Sleep(1200 * time.Second)
		b := both(hangs)
		c := start(t, b, d)
		began := time.Now()
		got := c.Route(background())
		equal(t, "time", time.Since(began), 2*time.Second)
		equal(t, "domain", got.Domain, "wapabst.a.com.cn")
		equal(t, "source", got.Source, client.LastGood)
		equal(t, "reason", got.Reason, client.Timeout)
	})
}

// The last good answer has no time limit as a fallback. Once its record is over it vouches
// for its own domain only.
func TestTheLastGoodDomainIsKeptForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := stored(t, signedAt(time.Now(), claims()))
		time.Sleep(365 * 24 * time.Hour)
		got := start(t, both(breaks), d).Route(background())
		equal(t, "source", got.Source, client.LastGood)
		equal(t, "domains", got.Domains(), []string{"wapabst.a.com.cn", "wap.bank.example"})
	})
}

func TestAWallJumpNeitherExpiresNorRevives(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-365 * 24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := both(says(signedAt(time.Now(), claims())))
				c := newClient(t, b.options())
				c.Route(background())
				c.SetWall(func() time.Time { return time.Now().Add(jump) })
				time.Sleep(1199 * time.Second)
				equal(t, "before the ttl ends", c.Route(background()).Source, client.Cached)
				b.set(breaks, wap1, wap2)
				time.Sleep(2 * time.Second)
				equal(t, "after it", c.Route(background()).Source, client.LastGood)
			})
		})
	}
}

// Over a restart only the wall clock is left. An answer from the future has no ttl.
func TestAClockSetBackOverARestart(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		looks time.Duration // how old the answer looks at the start
		want  client.Source
	}{
		{1200 * time.Second, client.LastGood}, {1199 * time.Second, client.Cached}, {0, client.Cached},
		{-time.Millisecond, client.LastGood}, {-24 * time.Hour, client.LastGood},
	} {
		t.Run(row.looks.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := stored(t, signedAt(time.Now(), claims()))
				d.state = client.LaterBy(t, d.state, -row.looks)
				b := both(breaks)
				c := start(t, b, d)
				equal(t, "source", c.Route(background()).Source, row.want)
				synctest.Wait()
				if len(b.requests()) == 0 {
					t.Error("no refresh was tried")
				}
				// However young it looks, it lasts one ttl of this process at most.
				time.Sleep(1200 * time.Second)
				equal(t, "a ttl later", c.Route(background()).Source, client.LastGood)
			})
		})
	}
}

func TestFallbacksAreReportedWithTheNextSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		b := both(hangs)
		c := start(t, b, d)
		pause := func() { time.Sleep(time.Minute) } // longer than any back-off
		c.Route(background())
		pause()
		c.Route(background())
		pause()
		// A dead host and a forged answer: the forgery is what is reported.
		b.set(breaks, wap2)
		b.set(says(signedBy("thief", claims())), wap1)
		c.Route(background())
		c.Close()

		// The app is closed and opened in between.
		pause()
		b.set(status(503), wap1, wap2)
		c = start(t, b, d)
		c.Route(background())
		pause()
		b.set(says(signedAt(time.Now(), claims())), wap1, wap2)
		equal(t, "source", c.Route(background()).Source, client.Fresh)
		equal(t, "report", b.last().Header.Get("X-Fallback-Reason"), "timeout;count=2, status;count=1, bad_record;count=1")

		c.Refresh(background())
		equal(t, "reported once", b.last().Header.Get("X-Fallback-Reason"), "")
		c.Close()
		if strings.Contains(string(d.state), "fallbacks") {
			t.Errorf("still stored after the report: %s", d.state)
		}
	})
}

func TestARescueByTheOtherHostIsNoFallback(t *testing.T) {
	t.Parallel()
	b := both(says(signedAt(time.Now(), claims())))
	b.set(breaks, wap1)
	c := newClient(t, b.options())
	c.Route(background())
	c.Refresh(background())
	equal(t, "report", b.last().Header.Get("X-Fallback-Reason"), "")
}

func TestTheSessionTokenIsSentBackAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	good := signedAt(time.Now(), claims())
	b := both(says(good.with("session", "Zmlyc3Q")))
	d := &disk{}
	c := start(t, b, d)
	c.Route(background())
	equal(t, "first", b.last().Header.Get("X-Session-Token"), "")
	b.set(says(good.with("session", "c2Vjb25k")), wap1, wap2)
	c.Refresh(background())
	equal(t, "second", b.last().Header.Get("X-Session-Token"), "Zmlyc3Q")
	c.Close()
	c = start(t, b, d)
	c.Refresh(background())
	equal(t, "after a restart", b.last().Header.Get("X-Session-Token"), "c2Vjb25k")

	b.set(says(good.with("session", nil)), wap1, wap2)
	c.Refresh(background())
	c.Refresh(background())
	equal(t, "after an answer without", b.last().Header.Get("X-Session-Token"), "")
}

func TestSwitchingTheUserKeepsSessionAndDomain(t *testing.T) { // e22, e62: a login moves nobody
	t.Parallel()
	b := both(says(signedAt(time.Now(), claims())))
	c := newClient(t, b.options())
	before := c.Route(background())
	for _, user := range []string{"u-1", "", "u-2"} {
		c.SetUser(user)
		equal(t, "domain", c.Route(background()).Domain, before.Domain)
		equal(t, "requests without a refresh", len(b.requests()), 1)
	}
	c.Refresh(background())
	equal(t, "user", b.last().Header.Get("X-User-Id"), "u-2")
	equal(t, "session", b.last().Header.Get("X-Session-Token"), "c2Vzc2lvbg")
	c.SetUser("")
	c.Refresh(background())
	_, sent := b.last().Header["X-User-Id"]
	equal(t, "user after signing out", sent, false)
}

func TestAStoreThatCannotBeUsedIsNoReasonToFail(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := both(says(signedAt(time.Now(), claims())))
	opt := b.options()
	opt.Store = &disk{err: errors.New("disk on fire")}
	opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	opt.UserID = "u-secret"
	c := newClient(t, opt)
	equal(t, "source", c.Route(background()).Source, client.Fresh)
	c.Close()
	if !strings.Contains(log.String(), "disk on fire") {
		t.Errorf("the log does not say why: %s", &log)
	}
	for _, id := range []string{"d-1001", "u-secret", "c2Vzc2lvbg"} {
		if strings.Contains(log.String(), id) {
			t.Errorf("%s is in the log: %s", id, &log)
		}
	}
}

// Nothing in the store is believed that a server could not have said.
func TestATamperedStoreGivesNoDomain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	whole := string(stored(t, signedAt(now, claims())).state)
	other := string(stored(t, signedAt(now, claims().with("domain", "wapcdst.b.com.cn"))).state)
	for name, state := range map[string]string{
		"another domain":      strings.Replace(whole, `"domain":"wapabst.a.com.cn"`, `"domain":"wapcdst.b.com.cn"`, 1),
		"another signature":   strings.Replace(whole, whole[strings.Index(whole, `"record":"`)+300:][:8], "AAAAAAAA", 1),
		"another app":         strings.Replace(whole, `"app":"mobile"`, `"app":"corporate"`, 1),
		"another deployment":  strings.Replace(whole, `"deployment":"bank"`, `"deployment":"other"`, 1),
		"another format":      strings.Replace(whole, `"format":1`, `"format":2`, 1),
		"cut":                 whole[:len(whole)/2],
		"empty":               "",
		"zeros":               strings.Repeat("\x00", 512),
		"null":                "null",
		"absurd counters":     `{"format":1,"deployment":"bank","app":"mobile","fallbacks":{"timeout":-5,"evil\r\nX: y":3}}`,
		"marks of other keys": `{"format":1,"deployment":"bank","app":"mobile","marks":{"k9":{"release":99,"iat":9999999999}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if state == whole || state == other {
				t.Fatal("nothing was changed")
			}
			b := both(breaks)
			c := start(t, b, &disk{state: []byte(state)})
			equal(t, "domain", c.Route(background()).Domain, "wap.bank.example")
			b.set(says(signedAt(now, claims())), wap1, wap2)
			equal(t, "source", c.Refresh(background()).Source, client.Fresh)
			equal(t, "report", b.last().Header.Get("X-Fallback-Reason"), "unreachable;count=1")
		})
	}
}

func TestAnAppUpdateWithNarrowerSuffixesDropsTheLastGoodDomain(t *testing.T) {
	t.Parallel()
	d := stored(t, signedAt(time.Now(), claims()))
	opt := both(breaks).options()
	opt.Store, opt.Suffixes = d, []string{"bank.example"}
	equal(t, "domain", newClient(t, opt).Route(background()).Domain, "wap.bank.example")
}

func TestFileStoreKeepsTheOldStateOrTheNewOne(t *testing.T) {
	t.Parallel()
	f := client.FileStore{Path: filepath.Join(t.TempDir(), "route")}
	got, err := f.Load()
	if got != nil || err != nil {
		t.Fatalf("Load of nothing = %q, %v", got, err)
	}
	states := []string{strings.Repeat("a", 4000), strings.Repeat("b", 9000)}
	if err := f.Save([]byte(states[0])); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	done := make(chan struct{})
	writers.Go(func() {
		defer close(done)
		for i := range 200 {
			if err := f.Save([]byte(states[i%2])); err != nil {
				t.Error(err)
			}
		}
	})
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		got, err := f.Load()
		if err != nil || string(got) != states[0] && string(got) != states[1] {
			t.Fatalf("Load = %d bytes, %v: neither state", len(got), err)
		}
	}
	writers.Wait()

	info, err := os.Stat(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "mode", info.Mode().Perm(), os.FileMode(0o600))
	left, err := os.ReadDir(filepath.Dir(f.Path))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "files", len(left), 1)
}

func TestFileStoreThatCannotWriteLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := client.FileStore{Path: filepath.Join(dir, "route")}
	if err := os.Mkdir(f.Path, 0o700); err != nil { // a folder where the file should go
		t.Fatal(err)
	}
	if f.Save([]byte("x")) == nil {
		t.Error("Save over a folder worked")
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "entries", len(left), 1)
	if (client.FileStore{Path: filepath.Join(dir, "absent", "route")}).Save([]byte("x")) == nil {
		t.Error("Save into an absent folder worked")
	}
}
