package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

// What nobody can follow is not believed: a number far above would lock all callers
// out of rules, for they take no such jump.
func TestNumbersThatWereMadeUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, board := newBook("consul"), newBoard()
		book.write("orders", many("orders", 3)...)
		board.post(7)
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, board)
		settle()
		for _, c := range []struct{ says, heard uint64 }{{5, 5}, {1 << 60, 5}, {7 + maxAhead + 1, 5}, {9, 9}, {8, 9}, {7 + maxAhead, 7 + maxAhead}} {
			ask(t, s, wire.Ask{Number: c.says})
			if s.Heard() != c.heard {
				t.Errorf("after a caller says %d, %d were heard of, want %d", c.says, s.Heard(), c.heard)
			}
		}
	})
}

// Before the rules were read, none is not "there are none".
func TestUnreadRulesAreSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, board := newBook("consul"), newBoard()
		book.write("orders", many("orders", 3)...)
		board.unread = true
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, board)
		settle()
		if got := ask(t, s, wire.Ask{}); !got.Unread || got.Rules != nil || len(got.Services) != 1 {
			t.Errorf("unread: %+v", got)
		}
		board.mu.Lock()
		board.unread = false
		board.mu.Unlock()
		if got := ask(t, s, wire.Ask{}); got.Unread {
			t.Errorf("read: %+v", got)
		}
	})
}

// A28: the first question is answered at once and in full, with the rules.
func TestFirstAnswerIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, board := newBook("consul"), newBoard()
		book.write("orders", many("orders", 3)...)
		book.write("pay", at("pay", 1))
		board.post(7)
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, board)
		settle()
		asked := time.Now()
		got := ask(t, s, wire.Ask{})
		if time.Since(asked) > 0 || !got.Full || len(got.Services) != 2 || len(got.Services["orders"].Instances) != 3 || got.Epoch == "" {
			t.Errorf("after %s: %+v", time.Since(asked), got)
		}
		if s.Heard() != 0 {
			t.Errorf("before anybody follows rules, %d were heard of", s.Heard())
		}
		if got.Rules == nil || got.Rules.Number != 7 || string(got.Rules.Manifest) != "manifest 7" {
			t.Errorf("rules %+v", got.Rules)
		}
		for name, a := range map[string]wire.Ask{
			"another epoch":        {Epoch: "before", Version: got.Version, Number: 7},
			"a version to come":    {Epoch: got.Epoch, Version: got.Version + 1, Number: 7},
			"another epoch, named": {Epoch: "before", Services: []string{"orders", "orders", "unknown"}, Number: 7},
		} {
			asked := time.Now()
			again := ask(t, s, a)
			want := 2 - len(a.Services)/3
			if time.Since(asked) > 0 || !again.Full || len(again.Services) != want || again.Rules != nil {
				t.Errorf("%s, after %s: %+v", name, time.Since(asked), again)
			}
		}
		if s.Heard() != 7 {
			t.Errorf("callers follow 7, %d were heard of", s.Heard())
		}
	})
}

// The JSON is put together out of parts; it must be what encoding/json writes.
func TestAnswerIsWireTables(t *testing.T) {
	t.Parallel()
	name, when := "odd \"name\" <&>", at("x", 1)
	five := 5.0
	when.Labels = map[string]string{"a": `"instances":null`}
	entries := []entry{{Instance: when, json: plain(when)}}
	tab := &table{name: name, list: newList(entries, 10), scale: map[string]route.Scale{"x": {Why: "isolated"}},
		load: map[string]wire.Load{"x": {Load: discovery.Load{CPU: &five}, Heard: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)}}, bodies: &bodies{}, changed: 3, loaded: 3}
	gone := &table{name: "gone", gone: true, bodies: &bodies{}, changed: 3, loaded: 3}
	loaded := &table{name: "loaded", list: tab.list, load: tab.load, bodies: &bodies{}, changed: 1, loaded: 3}
	var text bytes.Buffer
	for _, part := range newAnswer("e", span{from: 2, to: 3}, []*table{tab, gone, loaded}).with(map[string]string{"nacos": "away"}).parts([]byte(`{"number":9,"manifest":null,"signature":""}`)) {
		text.Write(part)
	}
	var got wire.Tables
	if err := json.Unmarshal(text.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, &text)
	}
	want := wire.Tables{Epoch: "e", Version: 3, Partial: map[string]string{"nacos": "away"}, Loads: map[string]map[string]wire.Load{"loaded": tab.load},
		Services: map[string]wire.Service{name: {Digest: tab.list.digest, Instances: []discovery.Instance{when}, Scale: tab.scale, Load: tab.load},
			"gone": {Gone: true, Instances: []discovery.Instance{}}}}
	rules := got.Rules
	if got.Rules = nil; !reflect.DeepEqual(got, want) || rules == nil || rules.Number != 9 {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// waiting sends an Ask and returns a function that says whether it was answered, and
// with what.
func waiting(t *testing.T, s *Server, a wire.Ask) func() (wire.Tables, bool) {
	var done atomic.Bool
	var got wire.Tables
	go func() {
		got = ask(t, s, a)
		done.Store(true)
	}()
	synctest.Wait()
	return func() (wire.Tables, bool) {
		synctest.Wait()
		return got, done.Load()
	}
}

// A30: a change of one service wakes those who asked for it, or for all, alone.
func TestChangeWakesItsWatchersOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, board := newBook("consul"), newBoard()
		book.write("orders", at("orders", 1))
		book.write("pay", at("pay", 1))
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, board)
		settle()
		first := ask(t, s, wire.Ask{})
		orders, pay, all := waiting(t, s, after(first, "orders")), waiting(t, s, after(first, "pay", "unknown")), waiting(t, s, after(first))
		of := d.tables.join([]string{"pay"})
		defer d.tables.leave(of)

		book.write("orders", at("orders", 1), at("orders", 2))
		time.Sleep(2 * buildPace)
		for name, answered := range map[string]func() (wire.Tables, bool){"orders": orders, "all": all} {
			got, done := answered()
			if !done || got.Full || len(got.Services) != 1 || len(got.Services["orders"].Instances) != 2 || got.Version <= first.Version {
				t.Errorf("who asked for %s: answered %v, %+v", name, done, got)
			}
		}
		if _, done := pay(); done || len(of.news) != 0 {
			t.Error("a change of orders woke those who asked for pay")
		}
		book.write("unknown", at("unknown", 1))
		settle()
		got, done := pay()
		if done && got.Services == nil { // names are read each 1.5 to 2.5 s: that wait may have ended before
			got = ask(t, s, after(got, "pay", "unknown"))
		}
		if !done || len(got.Services) != 1 || len(got.Services["unknown"].Instances) != 1 {
			t.Errorf("a service that appeared: answered %v, %+v", done, got)
		}
		time.Sleep(wire.HoldFor)
	})
}

func TestRulesWakeEverybody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, board := newBook("consul"), newBoard()
		book.write("orders", at("orders", 1))
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, board)
		settle()
		first := ask(t, s, wire.Ask{})
		orders, all := waiting(t, s, after(first, "orders")), waiting(t, s, after(first))
		board.post(1)
		for name, answered := range map[string]func() (wire.Tables, bool){"orders": orders, "all": all} {
			if got, done := answered(); !done || got.Rules == nil || got.Rules.Number != 1 || got.Services != nil {
				t.Errorf("who asked for %s: answered %v, %+v", name, done, got)
			}
		}
		next := after(first)
		next.Number = 1
		asked := time.Now()
		if got := ask(t, s, next); time.Since(asked) != wire.HoldFor || got.Rules != nil || got.Services != nil || got.Full || got.Version != first.Version {
			t.Errorf("after %s without news: %+v", time.Since(asked), got)
		}
	})
}

func TestServiceThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		book.write("pay", at("pay", 1))
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		first := ask(t, s, wire.Ask{})
		book.write("pay")
		settle()
		if got := ask(t, s, after(first, "pay")); got.Services["pay"].Gone || got.Services["pay"].Digest == "" {
			t.Errorf("a service without instances: %+v", got)
		}
		book.tear("pay")
		settle()
		settle()
		for _, a := range []wire.Ask{after(first), after(first, "pay", "orders")} {
			if got := ask(t, s, a); got.Full || len(got.Services) != 1 || !got.Services["pay"].Gone {
				t.Errorf("a service that is gone: %+v", got)
			}
		}
		if got := ask(t, s, wire.Ask{}); len(got.Services) != 1 {
			t.Errorf("a full answer names %+v", got.Services)
		}
		time.Sleep(goneFor + buryEvery + time.Second)
		if got := ask(t, s, after(first)); !got.Full || len(got.Services) != 1 {
			t.Errorf("who was away for long: %+v", got)
		}
		if d.tables.by["pay"] != nil {
			t.Error("a service that is gone is kept")
		}
	})
}

// Nobody gets an incomplete list as a full one while a registry is still being read.
func TestFirstQuestionWaitsForTheRegistries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(consul *book)
		within  time.Duration
		partial string
		orders  int
	}{
		"all are heard":      {func(*book) {}, time.Second, "", 2},
		"one is away":        {func(b *book) { b.problem = errors.New("connection refused") }, lookAgain, "connection refused", 1},
		"one is away midway": {func(b *book) { b.problems["orders"] = errors.New("no leader") }, 2 * lookAgain, "1 of 1 services cannot be confirmed; orders: no leader", 1},
		"a list hangs":       {func(b *book) { b.silent = true }, wire.HoldFor, "its services are still being read", 1},
		"one hangs":          {func(b *book) { b.hangs = true }, wire.HoldFor, "it has not answered yet", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				consul, static := newBook("consul"), newBook("static")
				consul.write("orders", at("orders", 1))
				static.write("orders", at("orders", 2))
				c.prepare(consul)
				d, end := follow(t, nil, consul, static)
				defer end()
				asked := time.Now()
				got := ask(t, serve(t, d, nil), wire.Ask{})
				if took := time.Since(asked); took > c.within || !got.Full || len(got.Services["orders"].Instances) != c.orders || got.Partial["consul"] != c.partial {
					t.Errorf("after %s: %+v", took, got)
				}
			})
		})
	}
}

// An instance that is isolated is so from the first answer of a node on.
func TestFirstAnswerKnowsVerdicts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		book.write("orders", at("orders", 1))
		memory.verdicts = []Verdict{{Fingerprint: Fingerprint{ID: at("orders", 1).ID}, Service: "orders", Isolate: true}}
		d, end := follow(t, slowShelf{memory}, book)
		defer end()
		if got := ask(t, serve(t, d, nil), wire.Ask{}); got.Services["orders"].Scale[at("orders", 1).ID].Why != "isolated" {
			t.Errorf("%+v", got)
		}
	})
}

// A database that is away holds nobody up.
func TestFirstAnswerWithoutMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		book.write("orders", at("orders", 1))
		memory.problem = errors.New("away")
		d, end := follow(t, memory, book)
		defer end()
		asked := time.Now()
		if got := ask(t, serve(t, d, nil), wire.Ask{}); time.Since(asked) > lookAgain || len(got.Services) != 1 {
			t.Errorf("after %s: %+v", time.Since(asked), got)
		}
	})
}

// slowShelf takes a second for verdicts.
type slowShelf struct{ *shelf }

func (s slowShelf) Verdicts(ctx context.Context) ([]Verdict, error) {
	pause(ctx, time.Second)
	return s.shelf.Verdicts(ctx)
}

func TestStopAnswersWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		first := ask(t, s, wire.Ask{})
		answered := waiting(t, s, after(first))
		s.Stop()
		s.Stop()
		if got, done := answered(); !done || got.Version != first.Version {
			t.Errorf("answered %v: %+v", done, got)
		}
		if w := send(s, wire.TablesPath, wire.Ask{Caller: "c", Home: home()}); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("a new question: %d", w.Code)
		}
	})
}

func TestCallerThatLeavesIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		first := ask(t, s, wire.Ask{})
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for _, a := range []wire.Ask{after(first), after(first, "orders", "x")} {
			a.Caller, a.Home = "c", home()
			all.Go(func() { sendIn(ctx, s, wire.TablesPath, a) })
		}
		synctest.Wait()
		if len(d.tables.everyone) != 1 || len(d.tables.waiting) != 2 {
			t.Fatalf("%d and %d wait", len(d.tables.everyone), len(d.tables.waiting))
		}
		cancel()
		all.Wait()
		if len(d.tables.everyone)+len(d.tables.waiting) != 0 {
			t.Error("who left is still waited for")
		}
	})
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		far := home()
		far.Region = "cn-shanghai"
		report := reportOf(at("orders", 1))
		over := 101.0
		busy := report
		busy.Load.CPU = &over
		long := strings.Repeat("x", maxName+1)
		for name, c := range map[string]struct {
			path   string
			body   any
			status int
			code   string
			says   string
		}{
			"no JSON":             {wire.TablesPath, "{", 422, "bad_json", "unexpected end"},
			"no caller":           {wire.TablesPath, wire.Ask{Home: home()}, 422, "bad_ask", "caller"},
			"no region":           {wire.TablesPath, wire.Ask{Caller: "c"}, 422, "bad_ask", "home.region"},
			"another region":      {wire.TablesPath, wire.Ask{Caller: "c", Home: far}, 409, "other_region", "keeps the services of cn-hangzhou, not of cn-shanghai"},
			"a name of no length": {wire.TablesPath, wire.Ask{Caller: "c", Home: home(), Services: []string{""}}, 422, "bad_ask", "services[0]"},
			"a name that is long": {wire.TablesPath, wire.Ask{Caller: "c", Home: home(), Services: []string{long}}, 422, "bad_ask", "services[0]"},
			"too many names":      {wire.TablesPath, wire.Ask{Caller: "c", Home: home(), Services: make([]string, maxAsked+1)}, 422, "bad_ask", "at most 2000"},
			"too large":           {wire.TablesPath, strings.Repeat(" ", maxAsk+1), 413, "body_too_large", "524288"},
			"a report of nobody":  {wire.ReportsPath, []wire.Report{{Address: report.Address}}, 422, "bad_report", "[0]"},
			"more than all CPU":   {wire.ReportsPath, []wire.Report{report, busy}, 422, "bad_report", "[1].load.cpu"},
			"an odd address":      {wire.ReportsPath, `[{"id":"x","service":"y","address":"10.0.0.1"}]`, 422, "bad_json", "not host:port"},
			"too many reports":    {wire.ReportsPath, "[" + strings.Repeat("{},", maxReports) + "{}]", 413, "too_many_reports", "1001"},
			"a batch of nobody":   {wire.RecordsPath, wire.Batch{}, 422, "bad_batch", "caller"},
			"too many records":    {wire.RecordsPath, `{"caller":"c","records":[` + strings.Repeat("{},", maxRecords) + "{}]}", 413, "batch_too_large", "10001"},
			"no such path":        {"/discovery/other", wire.Ask{}, 404, "no_route", "/discovery/other"},
			"wrong method":        {wire.PrometheusPath, wire.Ask{}, 404, "no_route", "POST"},
		} {
			w := send(s, c.path, c.body)
			var body fault.Body
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != c.status || body.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
		if _, known := d.reports.of("orders", registered{id: report.ID}); known {
			t.Error("a report was taken out of a list that was refused")
		}
	})
}

// Deploy in any order: a newer caller says more than this node understands.
func TestUnknownFieldsAreLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, end := follow(t, nil, newBook("consul"))
		defer end()
		s := serve(t, d, nil)
		for path, body := range map[string]string{
			wire.TablesPath:  fmt.Sprintf(`{"caller":"c","home":{"region":%q,"floor":3},"later":[1]}`, region),
			wire.ReportsPath: `[{"id":"x","service":"y","address":"10.0.0.1:80","load":{"gpu":1},"later":{}}]`,
			wire.RecordsPath: `{"caller":"c","records":[{"id":"1","draw":"5","later":1}],"later":1}`,
		} {
			if w := send(s, path, body); w.Code >= 300 {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	})
}

// A full answer is encoded once, however many ask for it after a restart.
func TestFullAnswerIsEncodedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		for i := range 50 {
			book.write(fmt.Sprint("s", i), many(fmt.Sprint("s", i), 20)...)
		}
		d, end := follow(t, nil, book)
		defer end()
		settle()
		first := d.tables.since("", 0, nil)
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if a := d.tables.since("", 0, nil); &a.services[0] != &first.services[0] {
					t.Error("a full answer was encoded again")
				}
			})
		}
		all.Wait()
		known := d.tables.version
		book.write("s1", at("s1", 1))
		time.Sleep(2 * buildPace)
		synctest.Wait()
		change := d.tables.since(d.tables.epoch, known, nil)
		if again := d.tables.since(d.tables.epoch, known, nil); &again.services[0] != &change.services[0] {
			t.Error("a change was encoded again")
		}
		if now := d.tables.since("", 0, nil); bytes.Equal(now.services, first.services) {
			t.Error("the full answer is that of before")
		}
		for i := range 2 * maxEncoded {
			book.write("s2", at("s2", i))
			time.Sleep(2 * buildPace)
			d.tables.since(d.tables.epoch, known, nil)
		}
		change = d.tables.since(d.tables.epoch, known, nil)
		if again := d.tables.since(d.tables.epoch, known, nil); &again.services[0] != &change.services[0] || len(d.tables.encoded) > maxEncoded {
			t.Errorf("after many versions, with %d answers kept, a change was encoded again", len(d.tables.encoded))
		}
	})
}

// The map: who asked for whose instances, by services that exist.
func TestCallsAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		book.write("pay", at("pay", 1))
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		ask(t, s, wire.Ask{Service: "shop", Services: []string{"pay", "orders", "made-up"}})
		ask(t, s, wire.Ask{Service: "shop"})
		ask(t, s, wire.Ask{Services: []string{"pay"}})
		ask(t, s, wire.Ask{Service: "pay", Services: []string{"orders"}})
		_, changed := d.View()
		<-changed
		v, _ := d.View()
		var got []string
		for _, c := range v.Calls {
			got = append(got, c.From+">"+c.To+"/"+c.Env)
		}
		if strings.Join(got, " ") != "pay>orders/prod shop>orders/prod shop>pay/prod" || v.Calls[0].Last.IsZero() {
			t.Errorf("calls %+v", v.Calls)
		}
	})
}

func TestCallsExpireAndAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCalls()
		all := func(string) bool { return true }
		c.note(Call{From: "shop", Env: "prod"}, []string{"pay", "orders"}, all)
		time.Sleep(23 * time.Hour)
		c.note(Call{From: "shop", Env: "prod"}, []string{"pay"}, all)
		again := time.Now()
		time.Sleep(2 * time.Hour)
		if got, fresh := c.list(time.Now()); len(got) != 1 || got[0].To != "pay" || !got[0].Last.Equal(again) || !fresh {
			t.Errorf("a day later: %+v, fresh %v", got, fresh)
		}
		if _, fresh := c.list(time.Now()); fresh {
			t.Error("nothing came, but it is said")
		}
		for i := range maxCalls + 100 {
			c.note(Call{From: fmt.Sprint("x", i)}, []string{"pay"}, all)
		}
		if got, _ := c.list(time.Now()); len(got) != maxCalls {
			t.Errorf("%d calls are kept, want %d", len(got), maxCalls)
		}
	})
}
