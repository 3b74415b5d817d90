package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/client"
)

// unusable are the answers that count as none (E11), each with the reason it is reported as.
func unusable(now time.Time) map[string]struct {
	serve http.HandlerFunc
	why   client.Reason
} {
	good := signedAt(now, claims())
	typed := func(kind string, body any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(text(body))
		}
	}
	return map[string]struct {
		serve http.HandlerFunc
		why   client.Reason
	}{
		"500":                     {status(500), client.BadStatus},
		"502 with a good body":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502); says(good)(w, r) }, client.BadStatus},
		"503":                     {status(503), client.BadStatus},
		"404":                     {status(404), client.BadStatus},
		"201 with a good body":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201); says(good)(w, r) }, client.BadStatus},
		"204":                     {status(204), client.BadStatus},
		"304":                     {status(304), client.BadStatus},
		"empty":                   {says(""), client.BadAnswer},
		"no content type":         {typed("", good), client.BadContentType},
		"HTML":                    {typed("text/html; charset=utf-8", "<html>Sign in to the Wi-Fi</html>"), client.BadContentType},
		"JSON sent as text":       {typed("text/plain", good), client.BadContentType},
		"HTML sent as JSON":       {says("<html>Sign in to the Wi-Fi</html>"), client.BadAnswer},
		"broken JSON":             {says(`{"domain":"wapabst.a.com.cn"`), client.BadAnswer},
		"too large":               {says(strings.Repeat(" ", client.MaxBody) + "{}"), client.TooLarge},
		"endless":                 {endless, client.TooLarge},
		"connection breaks":       {breaks, client.Unreachable},
		"record of another key":   {says(signedBy("thief", claims())), client.BadRecord},
		"no record":               {says(good.with("record", nil)), client.BadRecord},
		"differs from its record": {says(good.with("domain", "wapcdst.b.com.cn")), client.Mismatch},
		"outside the suffixes":    {says(signedBy("k1", claims().with("domain", "evil.com"))), client.BadDomain},
	}
}

// endless goes on for longer than anybody reads: 256 times the limit.
func endless(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for range 256 {
		if _, err := w.Write(make([]byte, client.MaxBody)); err != nil {
			return
		}
	}
}

// loopback starts two real servers that answer alike and returns options that ask them.
func loopback(t *testing.T, h http.HandlerFunc) client.Options {
	t.Helper()
	opt := options()
	opt.Bootstrap = nil
	for range 2 {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		opt.Bootstrap = append(opt.Bootstrap, s.URL)
	}
	return opt
}

func TestEveryUnusableAnswerCountsAsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, bad := range unusable(time.Now()) {
		t.Run("built-in domain after "+name, func(t *testing.T) {
			t.Parallel()
			got := newClient(t, loopback(t, bad.serve)).Route(background())
			equal(t, "route", got, client.Route{Domain: "wap.bank.example", Fallback: "wap.bank.example",
				Source: client.BuiltIn, Reason: bad.why})
		})
		t.Run("last good domain after "+name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			serve := says(signedAt(time.Now(), claims()).with("ttl", 0))
			c := newClient(t, loopback(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				h := serve
				mu.Unlock()
				h(w, r)
			}))
			equal(t, "source", c.Route(background()).Source, client.Fresh)
			mu.Lock()
			serve = bad.serve
			mu.Unlock()
			got := c.Route(background())
			equal(t, "domain", got.Domain, "wapabst.a.com.cn")
			equal(t, "source", got.Source, client.LastGood)
			equal(t, "reason", got.Reason, bad.why)
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			followed := false
			elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				followed = true
				says(signedAt(time.Now(), claims()))(w, r)
			}))
			t.Cleanup(elsewhere.Close)
			c := newClient(t, loopback(t, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL, code)
			}))
			got := c.Route(background())
			equal(t, "source", got.Source, client.BuiltIn)
			equal(t, "reason", got.Reason, client.BadStatus)
			equal(t, "followed", followed, false)
		})
	}
}

// E13 and E15: nothing listens, or packets vanish. The app is on wap within 2 s by a real clock.
func TestDeadDispatchLeavesTheAppOnWap(t *testing.T) {
	t.Parallel()
	refusing := func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return "http://" + l.Addr().String()
	}
	silent := func(t *testing.T) string { // the kernel accepts, nobody answers
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return "http://" + l.Addr().String()
	}
	for name, row := range map[string]struct {
		host func(*testing.T) string
		why  client.Reason
	}{"refused": {refusing, client.Unreachable}, "black hole": {silent, client.Timeout}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := options()
			opt.Bootstrap = []string{row.host(t), row.host(t)}
			c := newClient(t, opt)
			began := time.Now()
			got := c.Route(background())
			if took := time.Since(began); took > 2500*time.Millisecond {
				t.Errorf("took %v, want 2 s and some room for a busy machine", took)
			}
			equal(t, "domain", got.Domain, "wap.bank.example")
			equal(t, "reason", got.Reason, row.why)
		})
	}
}

func TestAQuestionTakesTwoSecondsInAll(t *testing.T) {
	t.Parallel()
	slowBody := func(w http.ResponseWriter, r *http.Request) {
		says(`{"app":`)(w, r)
		<-r.Context().Done()
	}
	for name, h := range map[string]http.HandlerFunc{"no answer": hangs, "half an answer": slowBody} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := both(h)
				c := newClient(t, b.options())
				began := time.Now()
				got := c.Route(background())
				equal(t, "time", time.Since(began), 2*time.Second)
				equal(t, "domain", got.Domain, "wap.bank.example")
				equal(t, "reason", got.Reason, client.Timeout)
				equal(t, "requests", len(b.requests()), 2)
			})
		})
	}
}

type deaf struct{ until chan struct{} }

func (d deaf) RoundTrip(*http.Request) (*http.Response, error) {
	<-d.until
	return nil, io.ErrUnexpectedEOF
}

func TestATransportThatIgnoresItsContextIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opt := options()
		d := deaf{make(chan struct{})}
		opt.Transport = d
		c := newClient(t, opt)
		began := time.Now()
		got := c.Route(background())
		equal(t, "time", time.Since(began), 2*time.Second)
		equal(t, "reason", got.Reason, client.Timeout)
		close(d.until)
	})
}

func TestRetriesOnceOnAnotherHost(t *testing.T) {
	t.Parallel()
	for name, bad := range unusable(time.Now()) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := both(says(signedAt(time.Now(), claims())))
				b.set(bad.serve, wap1)
				got := newClient(t, b.options()).Route(background())
				equal(t, "source", got.Source, client.Fresh)
				equal(t, "domain", got.Domain, "wapabst.a.com.cn")
				var hosts []string
				for _, req := range b.requests() {
					hosts = append(hosts, req.URL.Host)
				}
				equal(t, "asked", hosts, []string{wap1, wap2})
			})
		})
	}
}

func TestASilentHostLeavesTimeForTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := both(hangs)
		b.set(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(900 * time.Millisecond)
			says(signedAt(time.Now(), claims()))(w, r)
		}, wap2)
		c := newClient(t, b.options())
		began := time.Now()
		equal(t, "source", c.Route(background()).Source, client.Fresh)
		equal(t, "time", time.Since(began), 1900*time.Millisecond)

		// The host that answered is asked first from now on.
		c.Refresh(background())
		equal(t, "host", b.last().URL.Host, wap2)
		equal(t, "requests", len(b.requests()), 3)
	})
}

func TestEveryHostGetsItsTurn(t *testing.T) {
	t.Parallel()
	b := both(breaks)
	b.set(says(signedAt(time.Now(), claims())), "wap3.bank.example")
	opt := b.options()
	opt.Bootstrap = append(opt.Bootstrap, "https://wap3.bank.example")
	c := newClient(t, opt)
	equal(t, "first question", c.Route(background()).Source, client.BuiltIn)
	equal(t, "second question", c.Refresh(background()).Source, client.Fresh)
}

func TestAnswerWithTTLLeftIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := both(says(signedAt(time.Now(), claims())))
		c := newClient(t, b.options())
		equal(t, "source", c.Route(background()).Source, client.Fresh)
		time.Sleep(1199 * time.Second)
		equal(t, "source", c.Route(background()).Source, client.Cached)
		equal(t, "requests", len(b.requests()), 1)
		time.Sleep(time.Second)
		equal(t, "source", c.Route(background()).Source, client.Fresh)
		equal(t, "requests", len(b.requests()), 2)
	})
}

func TestTTLIsTheServersButAtMostADay(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		ttl  any
		want time.Duration
	}{{0, 0}, {1, time.Second}, {1200, 1200 * time.Second}, {86400, 24 * time.Hour}, {86401, 24 * time.Hour}, {uint64(1<<63 - 1), 24 * time.Hour}} {
		t.Run(fmt.Sprint(row.ttl), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := both(func(w http.ResponseWriter, r *http.Request) {
					says(signedAt(time.Now(), claims()).with("ttl", row.ttl))(w, r)
				})
				c := newClient(t, b.options())
				c.Route(background())
				if row.want > 0 {
					time.Sleep(row.want - 1)
					equal(t, "just before", c.Route(background()).Source, client.Cached)
					time.Sleep(time.Nanosecond)
				}
				equal(t, "at the end", c.Route(background()).Source, client.Fresh)
			})
		})
	}
}

func TestTTLCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := both(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(900 * time.Millisecond) // the server may have decided right at the start of these
			says(signedAt(time.Now(), claims()).with("ttl", 10))(w, r)
		})
		c := newClient(t, b.options())
		c.Route(background())
		time.Sleep(9099 * time.Millisecond)
		equal(t, "10 s after the request, less 1 ms", c.Route(background()).Source, client.Cached)
		time.Sleep(time.Millisecond)
		equal(t, "10 s after the request", c.Route(background()).Source, client.Fresh)
	})
}

// e68: the app holds B and B is drained hard. It leaves B after the rest of the ttl and one
// call, however long that call takes.
func TestWorstCaseOfADrainIsTTLAndOneCall(t *testing.T) {
	t.Parallel()
	const ttl = 1200 * time.Second
	for _, slow := range []time.Duration{0, 300 * time.Millisecond, 1900 * time.Millisecond} {
		t.Run(slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var worst time.Duration
				// The drain comes at different moments after the answer; the app calls twice a second.
				for after := time.Millisecond; after < ttl; after += 97 * time.Second {
					b := both(says(signedAt(time.Now(), claims().with("domain", "wapcdst.b.com.cn"))))
					opt := b.options()
					c := newClient(t, opt)
					equal(t, "domain", c.Route(background()).Domain, "wapcdst.b.com.cn")
					time.Sleep(after)
					b.set(func(w http.ResponseWriter, r *http.Request) { // the first host is gone with B
						<-r.Context().Done()
					}, wap1)
					b.set(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(min(slow, 990*time.Millisecond))
						says(signedAt(time.Now(), claims()))(w, r)
					}, wap2)
					drained := time.Now()
					for c.Route(background()).Domain != "wapabst.a.com.cn" {
						time.Sleep(500 * time.Millisecond)
					}
					worst = max(worst, time.Since(drained))
					c.Close()
				}
				t.Logf("worst case %v with a ttl of %v", worst, ttl)
				if limit := ttl + 2*time.Second + 500*time.Millisecond; worst > limit {
					t.Errorf("worst case %v, want at most ttl + one call + the app's own half second = %v", worst, limit)
				}
				if worst < ttl-time.Second {
					t.Errorf("worst case %v: the drain was not tried right after an answer", worst)
				}
			})
		})
	}
}

func TestConcurrentCallersShareOneQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := both(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			says(signedAt(time.Now(), claims()))(w, r)
		})
		c := newClient(t, b.options())
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() { equal(t, "source", c.Route(background()).Source, client.Fresh) })
		}
		callers.Wait()
		equal(t, "requests", len(b.requests()), 1)
	})
}

func TestACallerWhoGivesUpDoesNotEndTheQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := both(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(500 * time.Millisecond)
			says(signedAt(time.Now(), claims()))(w, r)
		})
		c := newClient(t, b.options())
		ctx, cancel := context.WithTimeout(background(), 100*time.Millisecond)
		defer cancel()
		got := c.Route(ctx)
		equal(t, "domain", got.Domain, "wap.bank.example")
		equal(t, "reason", got.Reason, client.Canceled)
		time.Sleep(500 * time.Millisecond)
		equal(t, "source", c.Route(background()).Source, client.Cached)
		equal(t, "requests", len(b.requests()), 1)
	})
}

func TestFailuresArePausedAfterWithJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := both(breaks)
		c := newClient(t, b.options())
		const hour = 3600
		for range hour * 10 {
			equal(t, "domain", c.Route(background()).Domain, "wap.bank.example")
			time.Sleep(100 * time.Millisecond)
		}
		// Pauses of 1, 2, 4, 8, 16 s and then 30 s ± 30 %: at least hour/39 and at most hour/21 questions.
		questions := len(b.requests()) / 2
		if questions < hour/39 || questions > hour/21+6 {
			t.Errorf("%d questions in an hour, want about %d", questions, hour/30)
		}
		before := len(b.requests())
		equal(t, "reason in a pause", c.Route(background()).Reason, client.Unreachable)
		b.set(says(signedAt(time.Now(), claims())), wap1, wap2)
		equal(t, "refresh in a pause", c.Refresh(background()).Source, client.Fresh)
		equal(t, "requests", len(b.requests()), before+1)
	})
}

func TestCloseEndsTheQuestionAndRouteStillAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &disk{}
		b := both(hangs)
		opt := b.options()
		opt.Store = store
		c := newClient(t, opt)
		answered := make(chan client.Route)
		go func() { answered <- c.Route(background()) }()
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		c.Close()
		equal(t, "time to close", time.Since(began), time.Duration(0))
		got := <-answered
		equal(t, "domain", got.Domain, "wap.bank.example")
		equal(t, "reason", got.Reason, client.Closed)

		before := len(b.requests())
		got = c.Route(background())
		equal(t, "domain after Close", got.Domain, "wap.bank.example")
		equal(t, "reason after Close", got.Reason, client.Closed)
		equal(t, "requests after Close", len(b.requests()), before)
		if strings.Contains(string(store.state), "fallbacks") {
			t.Errorf("Close counts as a fallback: %s", store.state)
		}
	})
}

func TestAlternatesAreTriedInOrderAndOnce(t *testing.T) { // e67
	t.Parallel()
	r := client.Route{Domain: "a", Alternates: []string{"c", "b", "a", "c"}, Fallback: "b"}
	equal(t, "domains", r.Domains(), []string{"a", "c", "b"})
	equal(t, "alternates", r.Alternates, []string{"c", "b", "a", "c"})
}

func TestARouteIsTheCallersToChange(t *testing.T) {
	t.Parallel()
	c := newClient(t, both(says(signedAt(time.Now(), claims()))).options())
	c.Route(background()).Alternates[0] = "evil.com"
	equal(t, "alternates", c.Route(background()).Alternates, []string{"wapcdst.b.com.cn"})
}
