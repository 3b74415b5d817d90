package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/e2e/topology"
	"dispatch.example/dispatch/internal/signed"
)

// P5, P24: a control node that is killed at any moment of a publish leaves the old
// release or the new one, whole, with its audit row, and every edge arrives there.
func TestP05KilledPublisherTearsNothing(t *testing.T) {
	top := start(t, topology.Options{Controls: 2, NoProxy: true})
	first, err := top.Head(t.Context())
	must(t, err)
	document := currentDocument(t, top)
	kills := pick(50, 1000)
	publisher := top.Controls[1]
	for i := range kills {
		base, err := top.Head(t.Context())
		must(t, err)
		text := strings.Replace(document, "capacity: 60", fmt.Sprintf("capacity: %d", 61+i%2), 1)
		sent := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		go func() {
			_, err := top.PublishBy(ctx, publisher, base, []byte(text))
			sent <- err
		}()
		timer := time.NewTimer(rand.N(100 * time.Millisecond)) // a publish takes about 30 ms, more on a busy machine
		<-timer.C
		must(t, publisher.Kill())
		told := <-sent
		cancel()
		if told == nil { // the other control node hears of it within a poll
			within(t, 10*time.Second, func() error {
				head, err := top.Head(t.Context())
				if err == nil && head != base+1 {
					err = fmt.Errorf("kill %d: release %d was acknowledged, the head is %d", i, base+1, head)
				}
				return err
			})
		}
		must(t, publisher.Start(t.Context()))
		within(t, 10*time.Second, func() error { return top.Call(t.Context(), publisher, topology.Request{Path: "/me"}, nil) })
	}
	head, err := top.Head(t.Context())
	must(t, err)
	must(t, top.WaitServing(t.Context(), head))
	torn, committed := wholeFrom(t, top, first, head), int(head-first)
	figure(t, "P5", "%d kills of the publishing control node: %d releases committed, %d torn or without their one audit row", kills, committed, torn)
	if committed == 0 || committed == kills {
		t.Errorf("%d of %d publishes were committed: the kills missed the moment", committed, kills)
	}
}

// currentDocument is the newest release's document, as text to edit.
func currentDocument(t *testing.T, top *topology.Topology) string {
	t.Helper()
	text, err := topology.Document()
	must(t, err)
	// ids and tables stay as they are when they are left out
	doc := strings.Replace(string(text), "    ids: [d-1001, d-1002]\n", "", 1)
	return strings.Replace(doc, ", file: cn-prefixes.csv}", "}", 1)
}

// wholeFrom counts what is wrong with the releases first to last.
func wholeFrom(t *testing.T, top *topology.Topology, first, last uint64) (torn int) {
	t.Helper()
	trust, err := signed.ReadTrust(filepath.Join(top.Dir, "keys", "edge", "trust.jwks"))
	must(t, err)
	for n := first; n <= last; n++ {
		var r struct {
			Manifest  json.RawMessage `json:"manifest"`
			Signature string          `json:"signature"`
		}
		must(t, top.Call(t.Context(), top.Controls[0], topology.Request{Path: fmt.Sprintf("/releases/%d", n)}, &r))
		if _, err := trust.VerifyDetached(signed.TypManifest, r.Signature, r.Manifest); err != nil {
			t.Errorf("release %d is not what was signed: %v", n, err)
			torn++
		}
		var trail struct {
			Rows []struct{ Action string } `json:"rows"`
		}
		must(t, top.Call(t.Context(), top.Controls[0], topology.Request{Path: fmt.Sprintf("/audit?release=%d", n)}, &trail))
		if rows := len(trail.Rows); rows != 1 {
			t.Errorf("release %d has %d audit rows", n, rows)
			torn++
		}
	}
	must(t, top.Call(t.Context(), top.Controls[0], topology.Request{Path: "/audit/verify"}, nil))
	return torn
}
