package fleet

import (
	"errors"
	"io/fs"
	"testing"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

func TestBoard(t *testing.T) {
	t.Parallel()
	b, board := newBank(t, 10), NewBoard()
	first := b.now()
	second := b.next(nil)
	third := b.next(nil)
	renewed := second
	renewed.Records.Seq++
	if s, _ := board.For("a"); s.Number != 0 || board.Head() != 0 {
		t.Errorf("an empty board offers %d", s.Number)
	}
	if _, err := board.Blob(t.Context(), release.Digest{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a blob of an empty board: %v", err)
	}
	for _, c := range []struct {
		name         string
		offer        Offer
		a, seq, rest uint64
		wakes        bool
		code         string
	}{
		{"nothing", Offer{}, 0, 0, 0, false, "internal"},
		{"the first", Offer{All: first}, 1, 1, 1, true, ""},
		{"the same again", Offer{All: first}, 1, 1, 1, false, ""},
		{"a canary", Offer{All: first, Canary: second, Replica: "a"}, 2, 1, 1, true, ""},
		{"a canary of an older one is none", Offer{All: second, Canary: first, Replica: "a"}, 2, 1, 2, true, ""},
		{"new records", Offer{All: renewed}, 2, 2, 2, true, ""},
		{"old records", Offer{All: second}, 2, 2, 2, false, codeStale},
		{"an older one", Offer{All: first}, 2, 2, 2, false, codeStale},
		{"another canary", Offer{All: renewed, Canary: third, Replica: "z"}, 2, 2, 2, true, ""},
	} {
		_, changed := board.For("a")
		err := board.Offer(t.Context(), c.offer, b.blobs)
		if (err != nil) != (c.code != "") || err != nil && fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v", c.name, err)
		}
		woken := false
		select {
		case <-changed:
			woken = true
		default:
		}
		a, _ := board.For("a")
		rest, _ := board.For("b")
		if a.Number != c.a || a.Records.Seq != c.seq || rest.Number != c.rest || woken != c.wakes {
			t.Errorf("%s: a has %d/%d, the rest %d, woken %v", c.name, a.Number, a.Records.Seq, rest.Number, woken)
		}
	}
	if board.Head() != 3 {
		t.Errorf("the head is %d", board.Head())
	}
}
