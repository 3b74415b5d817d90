package domain

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

type hostVector struct {
	Host, Normal, Error, Note string
	Allowed                   bool
}

func hostVectors(t testing.TB) (suffixes []string, hosts []hostVector) {
	t.Helper()
	text, err := os.ReadFile("../client/vectors/hosts.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		About    string
		Suffixes []string
		Hosts    []hostVector
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Hosts) < 60 {
		t.Fatalf("%d vectors, want 60 at least", len(file.Hosts))
	}
	return file.Suffixes, file.Hosts
}

// e57 and the table of attack SEC2: each host is normalised or refused with its own code.
func TestHostVectors(t *testing.T) {
	t.Parallel()
	entries, hosts := hostVectors(t)
	suffixes, err := NewSuffixes(entries)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range hosts {
		host, err := NormalHost(v.Host)
		code := ""
		if err != nil {
			code = fault.CodeOf(err)
		}
		if host != v.Normal || code != v.Error {
			t.Errorf("NormalHost(%+q) = %q, %q; want %q, %q (%s)", v.Host, host, code, v.Normal, v.Error, v.Note)
		}
		if got := suffixes.Allows(host); got != v.Allowed {
			t.Errorf("%+q: allowed = %v, want %v (%s)", v.Host, got, v.Allowed, v.Note)
		}
	}
}

func TestRefusedHostsSayWhatToDo(t *testing.T) {
	t.Parallel()
	_, hosts := hostVectors(t)
	for _, v := range hosts {
		_, err := NormalHost(v.Host)
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || e.Kind != fault.Invalid || e.Detail == "" || e.Hint == "" {
			t.Errorf("NormalHost(%+q): %#v lacks a kind, a detail or a hint", v.Host, err)
		}
		if strings.ContainsAny(e.Detail, "\n\r\x00\u200b\u202e") {
			t.Errorf("NormalHost(%+q): the detail carries raw control characters: %q", v.Host, e.Detail)
		}
	}
}

func TestInvalidUTF8IsRefused(t *testing.T) { // JSON cannot carry these, so they are no vectors
	t.Parallel()
	for _, raw := range []string{"ba\xffnk.example", "\xc0\xaf.example", "bank.example\xe2\x80"} {
		if host, err := NormalHost(raw); fault.CodeOf(err) != "host_character" {
			t.Errorf("NormalHost(%q) = %q, %v; want host_character", raw, host, err)
		}
	}
}

func FuzzNormalHost(f *testing.F) {
	_, hosts := hostVectors(f)
	for _, v := range hosts {
		f.Add(v.Host)
	}
	f.Add("ba\xffnk.example")
	f.Fuzz(func(t *testing.T, raw string) {
		host, err := NormalHost(raw)
		if err != nil {
			if host != "" || fault.KindOf(err) != fault.Invalid {
				t.Errorf("NormalHost(%q) = %q, %v", raw, host, err)
			}
			return
		}
		if len(host) > maxHost || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
			t.Errorf("NormalHost(%q) = %q, which no resolver takes", raw, host)
		}
		if again, err := NormalHost(host); err != nil || again != host {
			t.Errorf("NormalHost(%q) = %q, but that becomes %q, %v", raw, host, again, err)
		}
	})
}

func BenchmarkNormalHost(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NormalHost("wapabst.a.com.cn"); err != nil {
			b.Fatal(err)
		}
	}
}
