package trace

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Outsiders name a trace, and have no more than a few recorded.
func TestADoorPassesFewFlags(t *testing.T) {
	t.Parallel()
	unmarked := strings.TrimSuffix(valid, "01") + "00"
	synctest.Test(t, func(t *testing.T) {
		door := NewDoor()
		pass := func(n int) (marked int) {
			for range n {
				switch got := door.Pass(valid); got {
				case valid:
					marked++
				case unmarked:
				default:
					t.Fatalf("%s became %s", valid, got)
				}
			}
			return marked
		}
		if n := pass(5 * MaxAsked); n != MaxAsked {
			t.Errorf("%d of %d at once were let in marked", n, 5*MaxAsked)
		}
		time.Sleep(time.Second / 2)
		if n := pass(5 * MaxAsked); n != MaxAsked/2 {
			t.Errorf("%d were let in marked half a second later", n)
		}
		for in, want := range map[string]string{"": "", strings.ToUpper(valid): "", valid + "," + valid: "", unmarked: unmarked,
			valid[:53] + "03": valid[:53] + "02", "cc" + valid[2:] + "-more": unmarked} {
			if got := door.Pass(in); got != want {
				t.Errorf("%q became %q, want %q", in, got, want)
			}
		}
		if n := pass(1); n != 0 {
			t.Error("what was not marked took from the limit, or gave to it")
		}
	})
}
