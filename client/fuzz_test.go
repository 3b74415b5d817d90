package client_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/client"
)

// FuzzAnswer feeds whole bodies to the client. Whatever arrives, it names a usable domain or
// a reason, and what is refused moves no mark.
func FuzzAnswer(f *testing.F) {
	v := read(f)
	for _, row := range v.Cases {
		f.Add([]byte(row.Answer), row.Clock, uint64(411), row.LastGood)
	}
	c := judge(f, v)
	f.Fuzz(func(t *testing.T, body []byte, clock int64, release uint64, lastGood string) {
		seen := map[string]client.Mark{"k1": at(release, epoch)}
		got := c.Judge(body, time.Unix(clock, 0), seen, lastGood)
		if got.Why != "" {
			equal(t, "marks after a refusal", got.Marks, map[string]client.Mark{"k1": at(release, epoch)})
			equal(t, "domains of a refusal", len(got.Domains), 0)
			return
		}
		if len(got.Domains) == 0 {
			t.Error("accepted without a domain")
		}
		for _, d := range got.Domains {
			if !under(d, v.Suffixes) {
				t.Errorf("accepted %q", d)
			}
		}
		if got.Marks["k1"].Release < release {
			t.Errorf("the ratchet went back from %d to %d", release, got.Marks["k1"].Release)
		}
	})
}

// FuzzRecord feeds records inside an answer that fits them. Only the records that the seeds
// signed may pass: everything else would be a forgery.
func FuzzRecord(f *testing.F) {
	v := read(f)
	genuine := map[string]bool{}
	for _, kid := range []string{"k1", "k2"} {
		record := signedBy(kid, claims())["record"].(string)
		genuine[record] = true
		f.Add(record)
	}
	for _, r := range slices.Concat(headerRows(), signatureRows()) {
		if a, ok := r.answer.(object); ok {
			f.Add(a["record"].(string))
		}
	}
	c := judge(f, v)
	f.Fuzz(func(t *testing.T, record string) {
		got := c.Judge(text(answer(claims(), record)), time.Unix(epoch, 0), map[string]client.Mark{}, "")
		if accepted := got.Why == ""; accepted != genuine[record] {
			t.Errorf("accepted = %v (%s), want %v: %q", accepted, got.Why, !accepted, record)
		}
	})
}

// FuzzState starts clients from arbitrary stores. They always have a domain.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"format":1,"deployment":"bank","app":"mobile","received_ms":1,"answer":` +
		string(text(signedBy("k1", claims()))) + `,"marks":{"k1":{"release":412,"iat":1}},"fallbacks":{"timeout":2}}`))
	f.Add([]byte(`{"format":1,"deployment":"bank","app":"mobile","answer":null,"marks":null}`))
	f.Add([]byte(`{"format":1`))
	f.Fuzz(func(t *testing.T, state []byte) {
		b := both(breaks)
		opt := b.options()
		opt.Store = &disk{state: state}
		c := newClient(t, opt)
		if got := c.Refresh(background()); !under(got.Domain, opt.Suffixes) {
			t.Errorf("domain %q", got.Domain)
		}
		if report := b.last().Header.Get("X-Fallback-Reason"); strings.ContainsAny(report, "\r\n") {
			t.Errorf("report %q", report)
		}
	})
}

// under is written apart from the client's own rule.
func under(host string, suffixes []string) bool {
	for _, s := range suffixes {
		if rest, ok := strings.CutSuffix(host, s); ok && (rest == "" || strings.HasSuffix(rest, ".") && !strings.ContainsAny(rest, "/:@? ")) {
			return true
		}
	}
	return false
}
