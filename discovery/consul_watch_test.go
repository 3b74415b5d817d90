package discovery

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	some := five()
	for _, c := range []struct {
		name  string
		asked uint64
		known int
		a     answer
		want  verdict
	}{
		{"first list", 0, 0, answer{instances: some, index: 7}, believe},
		{"first list is empty", 0, 0, answer{index: 7}, believe},
		{"newer list", 7, 5, answer{instances: some[:2], index: 8}, believe},
		{"nothing new", 7, 5, answer{instances: some, index: 7}, believe},
		{"the index went back", 100, 5, answer{instances: some, index: 40}, askAgain},
		{"the index went back to 0", 100, 5, answer{instances: some}, askAgain},
		{"the index went back, empty", 100, 5, answer{index: 40}, askAgain},
		{"the index went back, nothing to lose", 100, 0, answer{index: 40}, askAgain},
		{"never an index", 1, 5, answer{instances: some}, believe},
		{"never an index, empty", 1, 5, answer{}, distrust},
		{"asked afresh, full", 0, 5, answer{instances: some, index: 3}, believe},
		{"asked afresh, no index, empty", 0, 5, answer{}, distrust},
		{"asked afresh, the index of an empty store", 0, 5, answer{index: 1}, distrust},
		{"asked afresh, empty", 0, 5, answer{index: 9}, doubt},
		{"empty with a newer index", 7, 5, answer{index: 8}, doubt},
		{"the only one left", 7, 1, answer{index: 8}, doubt},
		{"still nobody", 7, 0, answer{index: 8}, believe},
		{"all are rejected", 7, 5, answer{rejected: []Rejected{{ID: "a"}}, index: 8}, believe},
		{"the highest index", math.MaxUint64, 5, answer{instances: some, index: math.MaxUint64}, believe},
	} {
		if got := judge(c.asked, c.known, c.a); got != c.want {
			t.Errorf("%s: verdict %d, want %d", c.name, got, c.want)
		}
	}
}

// T01: after a lower index the next question has none, and its answer counts.
func TestLowerIndexIsReadAfresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		all := five()
		f.script(reply{index: "100", instances: all}, reply{index: "40", instances: all[:1]}, reply{index: "41", instances: all[:4]})
		w, end := watching(t, c, "orders")
		time.Sleep(5 * time.Second)
		s, _ := w.Current()
		if !lists("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")(s) || s.Version != 2 {
			t.Errorf("version %d with %v, want the answer that was read afresh", s.Version, addresses(s))
		}
		q := f.questions(0)
		if len(q) != 4 || q[1].index != "100" || q[2].index != "" || !q[2].consistent || q[3].index != "41" || q[3].consistent {
			t.Errorf("questions %+v", q)
		}
		if n := f.count(t, indexReset); n != 1 {
			t.Errorf("%v resets were counted, want 1", n)
		}
		_ = end()
	}))
}

// T03: an index that is 0, missing or no number makes no busy loop.
func TestNoIndexNoBusyLoop(t *testing.T) {
	t.Parallel()
	for name, index := range map[string]string{"zero": "0", "missing": "", "no number": "abc", "negative": "-1", "too large": "99999999999999999999"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
				f.set(func(question) reply { return reply{index: index, instances: five()} })
				w, end := watching(t, c, "orders")
				time.Sleep(10 * time.Second)
				if s, _ := w.Current(); len(s.Instances) != 5 || s.Version != 1 {
					t.Errorf("version %d with %v", s.Version, addresses(s))
				}
				q := f.questions(0)
				if len(q) < 2 || len(q) > 3 {
					t.Fatalf("%d questions in 10 s, want 2 or 3", len(q))
				}
				for _, later := range q[1:] {
					if later.index != "1" {
						t.Errorf("index %q was sent, want 1", later.index)
					}
				}
				_ = end()
			}))
		})
	}
}

// T04: after the last instance left, each raft write wakes the watcher for nothing.
func TestNothingNewIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		f.set(func(q question) reply {
			if q.at < time.Second {
				return reply{index: "1000", instances: five()[:1]}
			}
			return reply{index: strconv.FormatInt(1000+q.at.Milliseconds(), 10)}
		})
		w, end := watching(t, c, "orders")
		time.Sleep(10 * time.Second)
		if s, _ := w.Current(); len(s.Instances) != 0 {
			t.Errorf("the last instance is still there")
		}
		before := len(f.questions(0))
		time.Sleep(time.Minute)
		if n := len(f.questions(0)) - before; n > 60 {
			t.Errorf("%d questions in a minute, want at most one a second", n)
		}
		_ = end()
	}))
}

// T06: one answer may stand for several changes, and is one event.
func TestSeveralChangesAreOneEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		all := five()
		more := append([]Instance{instance("orders", "10.0.1.1:80"), instance("orders", "10.0.1.2:80"), instance("orders", "10.0.1.3:80")}, all[2:]...)
		f.script(reply{index: "10", instances: all}, reply{index: "15", instances: more, delay: time.Second})
		w, end := watching(t, c, "orders")
		time.Sleep(3 * time.Second)
		if s, _ := w.Current(); s.Version != 2 || len(s.Instances) != 6 || len(s.LastResort) != 0 {
			t.Errorf("version %d with %v and %v", s.Version, addresses(s), s.LastResort)
		}
		_ = end()
	}))
}

// T07: a question that no change wakes, or that nobody ever answers, is asked
// again in time.
func TestLostWakeUp(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"until it is over": blockFor + blockFor/16, "for ever": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
				f.set(func(q question) reply {
					r := reply{index: "10", instances: five()[:2]}
					if q.index != "" {
						r = reply{index: "10", instances: five()[:2], delay: delay}
						if delay < time.Hour { // the answer shows what is true when it is sent
							r = reply{index: "11", instances: five(), delay: delay}
						}
					} else if q.at > time.Second {
						r = reply{index: "11", instances: five()}
					}
					return r
				})
				w, end := watching(t, c, "orders")
				time.Sleep(10 * time.Second)
				if s, _ := w.Current(); len(s.Instances) != 5 {
					t.Errorf("after 10 s: %v", addresses(s))
				}
				if q := f.questions(0); q[1].wait != "8000ms" {
					t.Errorf("wait %q, want it under 10 s", q[1].wait)
				}
				_ = end()
			}))
		})
	}
}

// T08 and T10: what is no answer changes nothing, and another agent is asked.
func TestNoAnswerKeepsTheList(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]reply{
		"no leader":            {status: 500, body: "No cluster leader"},
		"status 500":           {status: 500, body: "rpc error"},
		"status 403":           {status: 403, body: "Permission denied"},
		"status 429":           {status: 429, body: "slow down"},
		"leaderless 200":       {index: "200", headers: map[string]string{"X-Consul-Knownleader": "false"}},
		"filtered by ACL":      {index: "200", headers: map[string]string{"X-Consul-Results-Filtered-By-ACLs": "true"}},
		"filtered, some left":  {index: "200", instances: five()[:1], headers: map[string]string{"X-Consul-Results-Filtered-By-ACLs": "true"}},
		"filtered, no index":   {index: "x", headers: map[string]string{"X-Consul-Results-Filtered-By-ACLs": "true"}},
		"no JSON":              {index: "200", body: "<html>"},
		"half of the JSON":     {index: "200", body: `[{"Node":{"Address":"10.0.0.1"`},
		"a redirect":           {status: 302, headers: map[string]string{"Location": "http://b:8500/v1/health/service/orders"}},
		"empty body":           {index: "200", body: " "},
		"index 0, empty":       {index: "0", body: "[]"},
		"index 1, empty (T11)": {index: "1", body: "[]"},
		"no index, empty":      {body: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, asking("a:8500,b:8500", func(t *testing.T, f *fakeConsul, c *consul) {
				var broken, healed atomic.Bool
				f.set(func(q question) reply {
					switch {
					case broken.Load() && !healed.Load() || broken.Load() && q.host == "a:8500":
						return bad
					case broken.Load():
						return reply{index: "9999", instances: five()[:4]}
					case q.index != "":
						return reply{index: "9999", instances: five(), delay: time.Second}
					}
					return reply{index: "9999", instances: five()}
				})
				w, end := watching(t, c, "orders")
				time.Sleep(2500 * time.Millisecond)
				broken.Store(true)
				time.Sleep(10 * time.Minute)
				if s, _ := w.Current(); len(s.Instances) != 5 || s.Version != 1 {
					t.Errorf("version %d with %v, want the list unchanged", s.Version, addresses(s))
				}
				if state := w.State(); state.Problem == nil || state.Age < 9*time.Minute {
					t.Errorf("state %+v, want a problem and its age", state)
				}
				hosts := map[string]bool{}
				for _, q := range f.questions(5 * time.Second) {
					hosts[q.host] = true
				}
				if len(hosts) != 2 {
					t.Errorf("asked %v, want both agents", hosts)
				}
				if n := len(f.questions(0)); n > 10+600/3 {
					t.Errorf("%d questions in ten minutes", n)
				}
				healed.Store(true)
				time.Sleep(40 * time.Second)
				if s, _ := w.Current(); len(s.Instances) != 4 || w.State().Problem != nil {
					t.Errorf("after it healed: %v, problem %v", addresses(s), w.State().Problem)
				}
				_ = end()
			}))
		})
	}
}

// T47: a first look that fails is no verdict for those that come later.
func TestFirstLookFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		f.script(reply{status: http.StatusInternalServerError}, reply{index: "5", instances: five()})
		w, end := watching(t, c, "orders")
		synctest.Wait()
		if s, _ := w.Current(); s.Version != 0 || w.State().Problem == nil {
			t.Errorf("version %d, problem %v", s.Version, w.State().Problem)
		}
		second, end2 := watching(t, c, "orders")
		time.Sleep(20 * time.Second)
		for _, w := range []*Watcher{w, second} {
			if s, _ := w.Current(); len(s.Instances) != 5 {
				t.Errorf("list %v", addresses(s))
			}
		}
		_, _ = end(), end2()
	}))
}

// T49: when a registry restarts, those that watch come back spread over seconds.
func TestHerdComesBackSpread(t *testing.T) {
	t.Parallel()
	const clients = 1000
	for name, outage := range map[string]time.Duration{"at once": time.Millisecond, "after 3 s": 3 * time.Second, "after a minute": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeConsul()
				f.script(reply{index: "10", instances: five()[:1]})
				var ends []func() error
				var sources []*consul
				for range clients {
					c := f.source(t, "a:8500")
					_, end := watching(t, c, "orders")
					ends, sources = append(ends, end), append(sources, c)
				}
				time.Sleep(3 * time.Second)
				f.crash()
				time.Sleep(outage)
				f.restart()
				back := time.Since(f.started)
				time.Sleep(maxBackoff + time.Second)
				f.mu.Lock()
				var perSecond [30]int
				for _, at := range f.dials {
					if at >= back {
						perSecond[min(int((at-back).Seconds()), 29)]++
					}
				}
				f.mu.Unlock()
				sum := 0
				for second, n := range perSecond {
					if sum += n; n > clients/5 {
						t.Errorf("%d of %d came in second %d", n, clients, second)
					}
				}
				if sum < clients {
					t.Errorf("%d of %d came back", sum, clients)
				}
				for i, end := range ends {
					_ = end()
					sources[i].Close()
				}
				f.close()
			})
		})
	}
}

// A catalogue that may lack names is an error, and the next agent is asked.
func TestConsulServicesAreWhole(t *testing.T) {
	t.Parallel()
	const all = `{"consul":[],"orders":["a","b"],"accounts-v2":[]}`
	for name, c := range map[string]struct {
		first reply
		asked int
		kind  problemKind
	}{
		"whole":            {reply{body: all}, 1, ""},
		"filtered by ACLs": {reply{body: `{"orders":[]}`, headers: map[string]string{"X-Consul-Results-Filtered-By-ACLs": "true"}}, 2, filtered},
		"leaderless":       {reply{body: `{}`, headers: map[string]string{"X-Consul-Knownleader": "false"}}, 2, noLeader},
		"no leader":        {reply{status: 500, body: "No cluster leader"}, 2, noLeader},
		"denied":           {reply{status: 403, body: "Permission denied"}, 2, refused},
		"no JSON":          {reply{body: "<html>"}, 2, unreachable},
		"nobody answers":   {reply{delay: time.Hour}, 2, unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, asking("a:8500,b:8500", func(t *testing.T, f *fakeConsul, source *consul) {
				asked := 0
				f.set(func(q question) reply {
					if asked++; q.host == "a:8500" {
						return c.first
					}
					return reply{body: all}
				})
				got, err := source.Services(t.Context())
				if err != nil || !slices.Equal(got, []string{"accounts-v2", "orders"}) || asked != c.asked {
					t.Errorf("Services = %v, %v after %d questions, want %d", got, err, asked, c.asked)
				}
				if c.kind != "" && f.count(t, c.kind) != 1 {
					t.Errorf("%v problems of kind %s", f.count(t, c.kind), c.kind)
				}
				f.set(func(question) reply { return c.first })
				if got, err := source.Services(t.Context()); c.kind != "" && (err == nil || got != nil || !strings.Contains(err.Error(), "b:8500")) {
					t.Errorf("when both say so: %v, %v", got, err)
				}
			}))
		})
	}
}
