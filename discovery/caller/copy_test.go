package caller

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/signed"
)

// withCopy runs a caller against a node until its copy is written, and takes the
// node down.
func withCopy(t *testing.T, n *node, dir string) *Caller {
	t.Helper()
	opt := options(n)
	opt.Dir = dir
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	c.transport = one(n)
	end := run(t, c)
	ready(t, c)
	time.Sleep(time.Second)
	end()
	n.change(func() { n.down = true })
	return c
}

// A start with everything down picks from the disk, and as before.
func TestStartFromDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, dir := newNode(t), t.TempDir()
		gray := rule("orders", "v1")
		gray.Strategy.Weight, gray.Fallback = 70, &rules.Fallback{Version: "v2", Weight: 30}
		all := append(instances(20, "orders", "prod", "v1"), instance("orders", "10.9.0.1:80", "prod", "v2"), instance("orders", "10.9.0.2:80", "prod", "v2"))
		all[3].Weight = new(7)
		n.publish(5, gray)
		n.change(func() {
			n.put("orders", wire.Service{Instances: all, Scale: map[string]route.Scale{all[0].ID: {Why: route.Isolated}}})
		})
		before := withCopy(t, n, dir)

		opt := options(n)
		opt.Dir = dir
		after := started(t, one(n), opt)
		ready(t, after)
		was, is := (*before.slots.Load())["orders"].now.Load().table, (*after.slots.Load())["orders"].now.Load().table
		for draw := range uint64(10_000) {
			draw *= 0x9e3779b97f4a7c15
			a, errA := was.Pick(route.Query{}, draw)
			b, errB := is.Pick(route.Query{}, draw)
			if errA != nil || errB != nil || a.Instance.Address != b.Instance.Address || a.Reason != b.Reason {
				t.Fatalf("draw %d: %v by %s (%v), from disk %v by %s (%v)", draw, a.Instance, a.Reason, errA, b.Instance, b.Reason, errB)
			}
		}
		if p, err := after.Pick(t.Context(), "orders"); err != nil || p.Number != 5 {
			t.Errorf("%+v, %v", p, err)
		}

		n.publish(6, rule("orders", "v2")) // control comes back with other rules
		n.change(func() { n.down = false })
		time.Sleep(30 * time.Second)
		if got := among(picks(t.Context(), after, "orders", 1000)); got != "10.9.0.1:80 10.9.0.2:80" {
			t.Errorf("with control again picks went to %s", got)
		}
	})
}

// A control node that was set back cannot bring rules that are older than the copy.
func TestCopyKeepsTheNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, dir := newNode(t), t.TempDir()
		n.list("orders", mixed()...)
		n.publish(9, rule("orders", "v2"))
		withCopy(t, n, dir)
		older := n.sign(3, rules.Set{Rules: []rules.Rule{rule("orders", "v1")}})
		n.change(func() { n.down, n.epoch, n.rules = false, "e2", older })
		log := &logged{}
		opt := options(n)
		opt.Dir, opt.Log = dir, log.logger()
		c := started(t, one(n), opt)
		ready(t, c)
		if got := among(picks(t.Context(), c, "orders", 1000)); got != "10.0.0.2:80" {
			t.Errorf("picks went to %s", got)
		}
		if !strings.Contains(log.String(), signed.ErrStale.Error()) {
			t.Errorf("log:\n%s", log)
		}
	})
}

// A damaged copy is set aside, the one before it counts; with none, a start is as
// one without a folder.
func TestDamagedCopies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		damage func(t *testing.T, path string)
		bad    bool
	}{
		{"a bit flipped", func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { b[len(b)/2] ^= 4; return b }) }, true},
		{"cut short", func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { return b[:len(b)/2] }) }, true},
		{"empty", func(t *testing.T, path string) { edit(t, path, func([]byte) []byte { return nil }) }, true},
		{"no JSON", func(t *testing.T, path string) { edit(t, path, func([]byte) []byte { return sealed([]byte("{")) }) }, true},
		{"rules of a stranger", func(t *testing.T, path string) {
			edit(t, path, func(b []byte) []byte {
				_, body, _ := bytes.Cut(b, []byte("\n"))
				return sealed(bytes.Replace(body, []byte(`"signature":"`), []byte(`"signature":"x`), 1))
			})
		}, true},
		{"of another region", func(t *testing.T, path string) {
			edit(t, path, func(b []byte) []byte {
				_, body, _ := bytes.Cut(b, []byte("\n"))
				return sealed(bytes.Replace(body, []byte(`"region":"cn-hangzhou","services"`), []byte(`"region":"cn-shanghai","services"`), 1))
			})
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, dir := newNode(t), t.TempDir()
				n.list("orders", mixed()...)
				n.publish(1, rule("orders", "v2"))
				withCopy(t, n, dir)
				n.change(func() { n.down, n.epoch = false, "e2" })
				n.publish(2, rule("orders", "v1"))
				withCopy(t, n, dir) // now there are two
				path := filepath.Join(dir, copyName)
				opt := options(n)
				opt.Dir = dir
				row.damage(t, path)
				c := started(t, one(n), opt)
				ready(t, c)
				if got := among(picks(t.Context(), c, "orders", 100)); got != "10.0.0.2:80" {
					t.Errorf("from the former copy picks went to %s", got)
				}
				if _, err := os.Stat(path + badExt); (err == nil) != row.bad {
					t.Errorf("set aside: %v, want %v", err == nil, row.bad)
				}
				row.damage(t, filepath.Join(dir, formerName))
				log := &logged{}
				opt.Log = log.logger()
				source, err := discovery.Open("static:"+registryFile(t, mixed()...), discovery.Options{})
				if err != nil {
					t.Fatal(err)
				}
				opt.Registry, opt.Services = source, []string{"orders"}
				c = started(t, one(n), opt)
				ready(t, c)
				if got := among(picks(t.Context(), c, "orders", 1000)); got != direct {
					t.Errorf("without a copy picks went to %s", got)
				}
			})
		})
	}
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func sealed(body []byte) []byte { return append([]byte("sha256="+checksum(body)+"\n"), body...) }

// A folder that cannot be written costs the copy and nothing else.
func TestUnwritableCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, log := newNode(t), &logged{}
		n.list("orders", mixed()...)
		opt := options(n)
		opt.Dir, opt.Log = filepath.Join(t.TempDir(), "file", "below"), log.logger()
		if err := os.WriteFile(filepath.Dir(opt.Dir), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		c := started(t, one(n), opt)
		ready(t, c)
		for i := range 5 {
			n.list("orders", mixed()[:1+i%3]...)
			time.Sleep(10 * time.Second)
		}
		if _, err := c.Pick(t.Context(), "orders"); err != nil {
			t.Error(err)
		}
		if text := log.String(); strings.Count(text, "kind=copy") != 1 {
			t.Errorf("log:\n%s", text)
		}
	})
}

// An answer of control that comes while the copy is being used counts.
func TestCopyComesTooLate(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{}, rules.Set{}, mixed())
	c.heard.control = time.Now()
	if c.use(&copied{Services: map[string]wire.Service{"orders": {}}}) || len(c.lists["orders"].instances) != len(mixed()) {
		t.Error("the copy replaced what control told")
	}
}
