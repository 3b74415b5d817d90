package discovery

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// T16: a health check that changes its mind each second is heard less and less, and
// the instance is back once it stays.
func TestFlappingIsDamped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		all := five()
		f.live(all...)
		f.set(func(q question) reply {
			second := int(q.at / time.Second)
			r := reply{index: strconv.Itoa(100 + min(second, 60)), instances: all}
			if second < 60 && second%2 == 1 {
				r.instances = all[:4]
			}
			return r
		})
		w, end := watching(t, c, "orders")
		events := func(during time.Duration) (n int) {
			for until := time.Now().Add(during); time.Now().Before(until); {
				_, changed := w.Current()
				select {
				case <-changed:
					n++
				case <-time.After(time.Until(until)):
				}
			}
			return n
		}
		if n := events(time.Minute); n > 12 || n < 4 {
			t.Errorf("%d events in a minute of 60 flips, want at most one in 5 s", n)
		}
		events(mostFlap + 2*blockFor)
		if s, _ := w.Current(); len(s.Instances) != 5 {
			t.Errorf("once it stays: %v", addresses(s))
		}
		_ = end()
	}))
}

// What left once comes back at once, a whole list that flaps is never held back, and
// what stayed for long is forgotten.
func TestWhoIsHeldBack(t *testing.T) {
	t.Parallel()
	all := five()
	now := time.Unix(1_000_000, 0)
	has := func(f flaps, known, answer []Instance, after time.Duration) int {
		now = now.Add(after)
		return len(f.steady(known, answer, now))
	}
	for name, c := range map[string]struct {
		few   []Instance
		leave time.Duration // between two absences
		want  []int         // sizes when it comes back, a second after it left
	}{
		"one of five":           {all[:4], time.Second, []int{5, 4, 4}},
		"seldom":                {all[:4], flapMemory + time.Second, []int{5, 5, 5}},
		"most of them":          {all[:2], time.Second, []int{5, 5, 5}},
		"an empty list and one": {nil, time.Second, []int{5, 5, 5}},
	} {
		f := flaps{}
		var got []int
		for range c.want {
			if n := has(f, all, c.few, c.leave); n != len(c.few) {
				t.Errorf("%s: after it left there are %d", name, n)
			}
			got = append(got, has(f, c.few, all, time.Second))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	f := flaps{}
	for range 3 {
		has(f, all, all[:4], time.Second)
	}
	if n := has(f, all[:4], all, 2*firstFlap); n != 5 {
		t.Errorf("after its pause there are %d", n)
	}
}
