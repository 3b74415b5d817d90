package directory

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

func TestNewListsWhatIsMissing(t *testing.T) {
	t.Parallel()
	book := newBook("a")
	_, err := New(Options{Registries: []Registry{{"a", book}, {"a", nil}, {"", book}}})
	if fault.KindOf(err) != fault.Invalid {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"region: is required", `registries[1].name: "a"`, "registries[1].source", `registries[2].name: ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := New(Options{Region: region}); err == nil {
		t.Error("a directory without registries was made")
	}
}

func TestViewBeforeRunSaysThatNobodyAnswered(t *testing.T) {
	t.Parallel()
	d, err := New(Options{Region: region, Registries: []Registry{{"a", newBook("consul")}}})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := d.View()
	text := string(plain(v))
	if s := v.Registries[0]; s.OK || s.Problem == "" || s.Kind != "consul" || strings.Contains(text, "null") {
		t.Errorf("view %s", text)
	}
}

// A18's other side, T29, T31: a name that the catalogue lost keeps its list until the
// registry says, and is believed, that nobody is left.
func TestNamesComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		d, end := follow(t, nil, book)
		defer end()
		settle()
		book.write("pay", at("pay", 1))
		settle()
		v, _ := d.View()
		if got := serviceNames(v); got != "orders pay" {
			t.Fatalf("services %q", got)
		}
		book.change(func() { book.hidden["orders"] = true })
		settle()
		if v, _ := d.View(); addresses(v, "orders") != "10.0.0.2:8080" {
			t.Error("a list went with its name in the catalogue, although its instances are there")
		}
		book.change(func() { book.problems["orders"] = errors.New("no leader") })
		book.write("orders")
		settle()
		if v, _ := d.View(); addresses(v, "orders") == "" {
			t.Error("a list went that nobody confirmed to be empty")
		}
		book.change(func() { delete(book.problems, "orders") })
		settle()
		settle()
		if v, _ := d.View(); serviceNames(v) != "pay" || book.watches != 1 {
			t.Errorf("services %q with %d watches, want pay alone", serviceNames(v), book.watches)
		}
		book.change(func() { delete(book.hidden, "orders") })
		book.write("orders", at("orders", 7))
		settle()
		if v, _ := d.View(); addresses(v, "orders") != "10.0.0.8:8080" {
			t.Errorf("a name that came back has %q", addresses(v, "orders"))
		}
	})
}

func TestServiceStaysWithoutInstancesWhileTheCatalogueHasIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		one := at("order-core", 1)
		book.write("order-core-v2", one) // a dialect took the version out of the name
		book.write("idle")
		d, end := follow(t, nil, book)
		defer end()
		settle()
		book.write("order-core-v2")
		settle()
		if v, _ := d.View(); serviceNames(v) != "idle order-core" || addresses(v, "order-core") != "" {
			t.Errorf("services %q", serviceNames(v))
		}
	})
}

// An empty list that was read before the name left confirms nothing.
func TestEmptyListIsConfirmedAfterItsNameLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold func(*book)
		want string
	}{
		"confirmed":        {func(*book) {}, ""},
		"not believed":     {func(b *book) { b.problems["idle"] = errors.New("no leader") }, "idle"},
		"not looked again": {func(b *book) { b.silent = true }, "idle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book := newBook("consul")
				book.write("idle")
				d, end := follow(t, nil, book)
				defer end()
				settle()
				book.change(func() { c.hold(book) })
				book.change(func() { book.hidden["idle"] = true })
				time.Sleep(4 * namesEvery)
				synctest.Wait()
				if v, _ := d.View(); serviceNames(v) != c.want {
					t.Errorf("services %q, want %q", serviceNames(v), c.want)
				}
			})
		})
	}
}

// B22, A17: what a registry said last stays, and everybody is told.
func TestAwayRegistryKeepsItsLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		consul, nacos := newBook("consul"), newBook("nacos")
		consul.write("orders", at("orders", 1))
		nacos.write("orders", at("orders", 2))
		d, end := follow(t, nil, consul, nacos)
		defer end()
		s := serve(t, d, nil)
		settle()
		full := ask(t, s, wire.Ask{})
		if full.Partial != nil {
			t.Fatalf("partial %v with both registries there", full.Partial)
		}
		_, changed := d.View()
		nacos.fail(errors.New("connection refused"))
		settle()
		select {
		case <-changed:
		default:
			t.Error("nobody was told that a registry went away")
		}
		time.Sleep(10 * time.Second)
		v, _ := d.View()
		if got := addresses(v, "orders"); got != "10.0.0.2:8080 10.0.0.3:8080" {
			t.Errorf("orders are %q after a registry went away", got)
		}
		if s := v.Registries[1]; s.OK || s.Problem != "connection refused" || s.Age < 10*time.Second || s.Age > 16*time.Second || !v.Registries[0].OK {
			t.Errorf("states %+v", v.Registries)
		}
		got := ask(t, s, wire.Ask{})
		if !got.Full || len(got.Services["orders"].Instances) != 2 || got.Partial["nacos"] != "connection refused" || len(got.Partial) != 1 {
			t.Errorf("tables %+v", got)
		}
		nacos.fail(nil)
		settle()
		if v, _ := d.View(); !v.Registries[1].OK || v.Registries[1].Age > 3*time.Second || v.Registries[1].Problem != "" {
			t.Errorf("after it is back: %+v", v.Registries[1])
		}
	})
}

// A17: a catalogue that hangs ages, and does not hold up the others.
func TestHangingCatalogueAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow, quick := newBook("slow"), newBook("quick")
		slow.write("orders", at("orders", 1))
		d, end := follow(t, nil, slow, quick)
		defer end()
		settle()
		slow.change(func() { slow.hangs = true })
		quick.write("pay", at("pay", 1))
		time.Sleep(12 * time.Second)
		synctest.Wait()
		v, _ := d.View()
		if s := v.Registries[0]; s.OK || s.Age < 10*time.Second || !strings.Contains(s.Problem, "deadline") {
			t.Errorf("state %+v", s)
		}
		if serviceNames(v) != "orders pay" {
			t.Errorf("services %q", serviceNames(v))
		}
	})
}

func TestMostListsUnconfirmedIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		for i := range 3 {
			book.write(fmt.Sprint("s", i), at(fmt.Sprint("s", i), 1))
		}
		d, end := follow(t, nil, book)
		defer end()
		settle()
		book.change(func() { book.problems["s1"] = errors.New("filtered") })
		settle()
		if v, _ := d.View(); !v.Registries[0].OK || v.Registries[0].Problem != "1 of 3 services cannot be confirmed; s1: filtered" {
			t.Errorf("one of three: %+v", v.Registries[0])
		}
		book.change(func() { book.problems["s0"] = errors.New("filtered") })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if v, _ := d.View(); v.Registries[0].OK || v.Registries[0].Age < 20*time.Second {
			t.Errorf("two of three: %+v", v.Registries[0])
		}
	})
}

// A03, A15: what a registry could not map is shown with its reason and takes no
// traffic; entries of other regions are neither.
func TestSuspiciousAndElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		far := at("orders", 2)
		far.Region = "cn-shanghai"
		book.write("orders", at("orders", 1), far)
		book.reject("orders", discovery.Rejected{ID: "o9", Address: "10.0.0.9:80", Why: "env: is required"}, discovery.Rejected{ID: "o8", Address: "bad host", Why: "no address"})
		book.write("not a name")
		d, end := follow(t, nil, book)
		defer end()
		settle()
		v, _ := d.View()
		if addresses(v, "orders") != "10.0.0.2:8080" || v.Registries[0].Elsewhere != 1 {
			t.Errorf("orders %q, states %+v", addresses(v, "orders"), v.Registries)
		}
		if len(v.Suspicious) != 3 {
			t.Fatalf("suspicious %+v", v.Suspicious)
		}
		unnamed, bad, missing := v.Suspicious[0], v.Suspicious[1], v.Suspicious[2]
		if unnamed.Service != "not a name" || !strings.Contains(unnamed.Why, "is not NAME") {
			t.Errorf("name that cannot be watched: %+v", unnamed)
		}
		if bad.ID != "o8" || bad.Address.Host != "bad host" || missing.Registry != "consul" || missing.Why != "env: is required" || missing.Address.Port != 80 {
			t.Errorf("rejected: %+v, %+v", bad, missing)
		}
		time.Sleep(3 * time.Minute)
		book.reject("orders", discovery.Rejected{ID: "o9", Address: "10.0.0.9:80", Why: "env: is required"}, discovery.Rejected{ID: "o7", Address: "10.0.0.7:80", Why: "x"})
		settle()
		later, _ := d.View()
		if s := later.Suspicious; len(s) != 3 || !s[0].Since.Equal(unnamed.Since) || s[1].ID != "o7" || !s[2].Since.Equal(missing.Since) || !s[1].Since.After(missing.Since) {
			t.Errorf("later: %+v", s)
		}
		book.reject("orders")
		book.tear("not a name")
		settle()
		if v, _ := d.View(); len(v.Suspicious) != 0 || len(later.Suspicious) != 3 {
			t.Errorf("mended: %+v; the view before has %d", v.Suspicious, len(later.Suspicious))
		}
	})
}

// T47: a watch that failed is not the last one on its name.
func TestRefusedWatchIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		book.refused["pay"] = errors.New("permission denied")
		book.write("pay", at("pay", 1))
		d, end := follow(t, nil, book)
		defer end()
		settle()
		v, _ := d.View()
		if len(v.Suspicious) != 1 || v.Suspicious[0].Service != "pay" || !strings.Contains(v.Suspicious[0].Why, "permission denied") || !v.Registries[0].OK {
			t.Fatalf("suspicious %+v, states %+v", v.Suspicious, v.Registries)
		}
		since := v.Suspicious[0].Since
		time.Sleep(3 * refusedAgain)
		if v, _ := d.View(); len(v.Suspicious) != 1 || !v.Suspicious[0].Since.Equal(since) {
			t.Errorf("after some attempts: %+v, first %s", v.Suspicious, since)
		}
		book.change(func() { clear(book.refused) })
		book.change(func() { book.refused["orders"] = errors.New("permission denied") })
		time.Sleep(refusedAgain + 2*namesEvery)
		book.write("orders")
		time.Sleep(refusedAgain / 2)
		synctest.Wait()
		if v, _ := d.View(); len(v.Suspicious) != 1 || v.Suspicious[0].Service != "orders" || addresses(v, "pay") == "" || addresses(v, "orders") == "" {
			t.Errorf("pay %q, orders %q, suspicious %+v", addresses(v, "pay"), addresses(v, "orders"), v.Suspicious)
		}
	})
}

// A17: one registry's list that comes 5 s late changes 5 s late, and only then.
func TestDelayedListIsTakenWhenItComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", many("orders", 2)...)
		d, end := follow(t, nil, book)
		defer end()
		settle()
		time.AfterFunc(5*time.Second, func() { book.write("orders", at("orders", 1)) })
		time.Sleep(4 * time.Second)
		if v, _ := d.View(); len(v.Services[0].Instances) != 2 {
			t.Error("the list changed before the registry did")
		}
		time.Sleep(1100 * time.Millisecond)
		if v, _ := d.View(); addresses(v, "orders") != "10.0.0.2:8080" {
			t.Errorf("orders %q", addresses(v, "orders"))
		}
	})
}
