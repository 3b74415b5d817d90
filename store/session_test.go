package store

import (
	"fmt"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

func TestSessionsRunOut(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			save := func(hash, data string, life time.Duration) {
				t.Helper()
				must(t, s.SaveSession(t.Context(), hash, []byte(data), clock.now().Add(life)))
			}
			is := func(hash, want string) {
				t.Helper()
				data, found, err := s.Session(t.Context(), hash)
				must(t, err)
				if found != (want != "none") || found && string(data) != want {
					t.Errorf("session %s = %q, %v, want %s", hash, data, found, want)
				}
			}
			save("a", "one\x00", time.Hour)
			save("A", "other", time.Hour) // hashes differ by case
			save("a", "two\xff", 2*time.Hour)
			is("a", "two\xff")
			is("A", "other")
			is("b", "none")
			must(t, s.EndSession(t.Context(), "A"))
			must(t, s.EndSession(t.Context(), "A")) // twice is no mistake
			is("A", "none")
			save("short", "", time.Minute)
			is("short", "")
			clock.advance(time.Minute)
			is("short", "none")
			is("a", "two\xff")
			clock.advance(2 * time.Hour)
			is("a", "none")
			want(t, s.SaveSession(t.Context(), "", nil, clock.now()), fault.Invalid, "bad_session")

			for i := range sessionsSwept + 10 {
				save(fmt.Sprintf("old-%d", i), "x", time.Second)
			}
			clock.advance(time.Minute)
			left := func() (n int64) { must(t, s.reader.Model(&sessionRow{}).Count(&n).Error); return n }
			for _, want := range []int64{11, 1, 1} { // with the new one
				if save("new", "x", time.Hour); left() != want {
					t.Errorf("%d sessions are kept, want %d", left(), want)
				}
			}
			if verify(t, s).Head.Seq != 0 {
				t.Error("a session wrote an audit row")
			}
		})
	}
}
