package discovery

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// emptied is a script: a list, and an empty one with these headers from second 2 on.
func emptied(list []Instance, index string) func(question) reply {
	return func(q question) reply {
		switch {
		case q.at < 2*time.Second && q.index == "":
			return reply{index: "100", instances: list}
		case q.at < 2*time.Second:
			return reply{index: index, delay: 2*time.Second - q.at}
		case q.index == index:
			return reply{index: index, delay: blockFor}
		}
		return reply{index: index}
	}
}

// TestP23: whatever a broken Consul says, the control nodes that live stay known.
func TestP23ControlNodesStayKnown(t *testing.T) {
	t.Parallel()
	nodes := five()[:3]
	for name, broken := range map[string]struct {
		list []Instance
		says func(question) reply
	}{
		"empty, T29":                   {nodes, emptied(nodes, "101")},
		"empty with the same index":    {nodes, emptied(nodes, "100")},
		"index reset to 0 and empty":   {nodes, emptied(nodes, "0")},
		"index reset to 1 and empty":   {nodes, emptied(nodes, "1")},
		"index reset to 7 and empty":   {nodes, emptied(nodes, "7")},
		"the only node, index reset":   {nodes[:1], emptied(nodes[:1], "7")},
		"the only node, index 0":       {nodes[:1], emptied(nodes[:1], "0")},
		"the only node, index missing": {nodes[:1], emptied(nodes[:1], "")},
		"leaderless": {nodes, func(q question) reply {
			if q.at < time.Second {
				return reply{index: "100", instances: nodes}
			}
			return reply{status: 500, body: "No cluster leader"}
		}},
		"leaderless and empty": {nodes, func(q question) reply {
			if q.at < time.Second {
				return reply{index: "100", instances: nodes}
			}
			return reply{index: "101", headers: map[string]string{"X-Consul-Knownleader": "false"}}
		}},
		"one thing after the other": {nodes, func(q question) reply {
			switch {
			case q.at < time.Second:
				return reply{index: "100", instances: nodes}
			case q.at < 2*time.Minute:
				return reply{status: 500, body: "No cluster leader"}
			case q.at < 4*time.Minute:
				return reply{index: "0"}
			default:
				return reply{index: "5"}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
				f.live(broken.list...)
				f.set(broken.says)
				w, end := watching(t, c, "orders")
				time.Sleep(time.Second)
				before, changed := w.Current()
				if len(before.Instances) != len(broken.list) {
					t.Fatalf("at first: %v", addresses(before))
				}
				select {
				case <-changed:
					after, _ := w.Current()
					t.Errorf("the list became %v", addresses(after))
				case <-time.After(10 * time.Minute):
				}
				if state := w.State(); state.Problem == nil || state.Age < 9*time.Minute {
					t.Errorf("state %+v, want a problem and its age", state)
				}
				_ = end()
			}))
		})
	}
}

// The other side of protection, T31: what has gone must go from the list too.
func TestEmptyListIsBelievedInTheEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		list   []Instance
		index  string
		alive  []Instance
		within time.Duration
	}{
		{"the only one, T31", five()[:1], "101", nil, time.Second},
		{"the only one, although its port answers", five()[:1], "101", five(), time.Second},
		{"all five are dead", five(), "101", nil, 2 * time.Second},
		{"dead, and Consul was restored from a backup", five(), "7", nil, holdFor + 2*doubtPace},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, source *consul) {
				f.live(c.alive...)
				f.set(emptied(c.list, c.index))
				w, end := watching(t, source, "orders")
				time.Sleep(2*time.Second - time.Millisecond)
				if s, _ := w.Current(); len(s.Instances) != len(c.list) || s.Version != 1 {
					t.Fatalf("at first: %v", addresses(s))
				}
				time.Sleep(c.within)
				if s, _ := w.Current(); len(s.Instances) != 0 || s.Version != 2 || w.State().Problem != nil {
					t.Errorf("%s later: version %d with %v, problem %v", c.within, s.Version, addresses(s), w.State().Problem)
				}
				time.Sleep(time.Minute)
				if s, _ := w.Current(); s.Version != 2 {
					t.Errorf("the empty list was told %d times", s.Version-1)
				}
				_ = end()
			}))
		})
	}
}

// An empty list that was held ends when the instances do.
func TestHeldListEndsWithItsInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		f.live(five()[4])
		f.set(emptied(five(), "101"))
		w, end := watching(t, c, "orders")
		time.Sleep(time.Minute)
		if s, _ := w.Current(); len(s.Instances) != 5 {
			t.Fatalf("with one alive: %v", addresses(s))
		}
		if n := f.count(t, emptyHeld); n < 5 {
			t.Errorf("%v alarms in a minute", n)
		}
		if n := len(f.questions(10 * time.Second)); n > 15 {
			t.Errorf("%d questions in 50 s", n)
		}
		f.live()
		time.Sleep(2 * doubtPace)
		if s, _ := w.Current(); len(s.Instances) != 0 {
			t.Errorf("with none alive: %v", addresses(s))
		}
		_ = end()
	}))
}

// What nobody can probe from here is decided by asking again, not by guessing.
func TestProbesThatCannotBeMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		c.probe = prober{noNetwork{f}}
		f.set(emptied(five(), "101"))
		w, end := watching(t, c, "orders")
		time.Sleep(2*time.Second + holdFor - time.Second)
		if s, _ := w.Current(); len(s.Instances) != 5 {
			t.Errorf("before the hold is over: %v", addresses(s))
		}
		time.Sleep(2 * doubtPace)
		if s, _ := w.Current(); len(s.Instances) != 0 {
			t.Errorf("after it: %v", addresses(s))
		}
		_ = end()
	}))
}

// More than half at once: believed, but those that live stay as a last resort.
func TestMassDrop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		all := five()
		f.live(all[:3]...)
		f.script(reply{index: "10", instances: all}, reply{index: "11", instances: all[:2], delay: time.Second})
		w, end := watching(t, c, "orders")
		time.Sleep(2 * time.Second)
		s, _ := w.Current()
		if len(s.Instances) != 2 || len(s.LastResort) != 1 || s.LastResort[0].Address != all[2].Address {
			t.Errorf("instances %v, last resort %v; want the one that lives", addresses(s), s.LastResort)
		}
		if n := f.count(t, massDrop); n != 1 {
			t.Errorf("%v alarms, want 1", n)
		}
		f.live(all[:2]...)
		time.Sleep(2 * blockFor)
		if s, _ = w.Current(); len(s.Instances) != 2 || len(s.LastResort) != 0 {
			t.Errorf("after it died: last resort %v", s.LastResort)
		}
		_ = end()
	}))
}

// An instance of the last resort that is listed again is no last resort.
func TestLastResortComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		all := five()
		f.live(all...)
		f.script(reply{index: "10", instances: all}, reply{index: "11", instances: all[:2], delay: time.Second},
			reply{index: "12", instances: all[:3], delay: time.Second})
		w, end := watching(t, c, "orders")
		time.Sleep(4 * time.Second)
		if s, _ := w.Current(); len(s.Instances) != 3 || len(s.LastResort) != 2 {
			t.Errorf("instances %v, last resort %v", addresses(s), s.LastResort)
		}
		_ = end()
	}))
}

// An empty answer that the leader denies changes nothing, whether one instance was
// known or many; nor does it make the next one more believable.
func TestLeaderDeniesTheEmptyList(t *testing.T) {
	t.Parallel()
	for _, list := range [][]Instance{five()[:1], five()} {
		synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
			n := 100
			f.set(func(q question) reply {
				if q.index == "" {
					return reply{index: strconv.Itoa(n), instances: list}
				}
				n++
				return reply{index: strconv.Itoa(n), delay: time.Second}
			})
			w, end := watching(t, c, "orders")
			time.Sleep(time.Minute)
			if s, _ := w.Current(); s.Version != 1 || len(s.Instances) != len(list) {
				t.Errorf("version %d with %v, want the list of %d unchanged", s.Version, addresses(s), len(list))
			}
			_ = end()
		}))
	}
}

// Each doubt begins anew: what was dead an hour ago is no evidence.
func TestDoubtsAreSeparate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		empty := func(at time.Duration) bool {
			return at > 10*time.Second && at < 20*time.Second || at > time.Hour && at < time.Hour+10*time.Second
		}
		f.set(func(q question) reply {
			r := reply{index: "100", instances: five()}
			if empty(q.at) {
				return reply{index: "50"}
			}
			if q.index != "" {
				r.delay = time.Second
			}
			return r
		})
		w, end := watching(t, c, "orders")
		time.Sleep(2 * time.Hour)
		if s, _ := w.Current(); s.Version != 1 || len(s.Instances) != 5 {
			t.Errorf("version %d with %v, want two short doubts to change nothing", s.Version, addresses(s))
		}
		_ = end()
	}))
}
