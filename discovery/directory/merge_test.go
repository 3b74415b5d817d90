package directory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

// B19: three registries, one list; the first that has an address counts, and all
// that have it are named.
func TestRegistriesMergeByAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		static, consul, nacos := newBook("static"), newBook("consul"), newBook("nacos")
		heavy, named := at("orders", 1), at("orders", 1)
		weight := 7
		heavy.Weight, named.ID = &weight, "10.0.0.2#8080#DEFAULT"
		static.write("orders", heavy)
		consul.write("orders", at("orders", 2), at("orders", 1))
		nacos.write("orders", named, at("orders", 3), at("orders", 2))
		d, end := follow(t, nil, static, consul, nacos)
		defer end()
		settle()
		v, _ := d.View()
		var got []string
		for _, in := range v.Services[0].Instances {
			got = append(got, fmt.Sprint(in.Address.String(), " ", in.Share(), " ", in.Source, in.Sources))
		}
		want := "10.0.0.2:8080 7 static[static consul nacos]; 10.0.0.3:8080 100 consul[consul nacos]; 10.0.0.4:8080 100 nacos[nacos]"
		if strings.Join(got, "; ") != want {
			t.Errorf("merged: %s\nwant:   %s", strings.Join(got, "; "), want)
		}
		static.write("orders")
		settle()
		if v, _ := d.View(); v.Services[0].Instances[0].Source != "consul" || v.Services[0].Instances[0].Share() != 100 {
			t.Errorf("after the file let go: %+v", v.Services[0].Instances[0])
		}
	})
}

// A15: one name in the registry may be several services, several names one.
func TestServicesAreMergedByTheirOwnName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		v2 := at("order-core", 2)
		v2.Version = "v2"
		book.write("order-core", at("order-core", 1), at("pay", 1), at("order-core", 3), at("pay", 3))
		book.write("order-core-v2", v2)
		d, end := follow(t, nil, book)
		defer end()
		settle()
		v, _ := d.View()
		if serviceNames(v) != "order-core pay" || addresses(v, "order-core") != "10.0.0.2:8080 10.0.0.3:8080 10.0.0.4:8080" || addresses(v, "pay") != "10.0.0.2:8080 10.0.0.4:8080" {
			t.Fatalf("services %q: %q and %q", serviceNames(v), addresses(v, "order-core"), addresses(v, "pay"))
		}
		book.write("order-core", at("pay", 1))
		settle()
		if v, _ := d.View(); addresses(v, "order-core") != "10.0.0.3:8080" || addresses(v, "pay") == "" {
			t.Errorf("order-core %q, pay %q", addresses(v, "order-core"), addresses(v, "pay"))
		}
	})
}

// An agent of Consul keeps its own IDs: one ID on every machine is common, and must
// not make one instance out of them.
func TestOneIDOnManyMachinesIsToldApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		all := many("orders", 3)
		for i := range all {
			all[i].ID = "orders"
		}
		six := at("orders", 9)
		six.Address = discovery.Address{Host: "2001:db8::1", Port: 8080}
		book.write("orders", append(all, six)...)
		d, end := follow(t, nil, book)
		defer end()
		settle()
		ids := func() (ids []string) {
			v, _ := d.View()
			for _, in := range v.Services[0].Instances {
				ids = append(ids, in.ID)
			}
			return ids
		}
		want := []string{"orders-10.0.0.10:8080", "orders@10.0.0.1:8080", "orders@10.0.0.2:8080", "orders@10.0.0.3:8080"}
		if got := ids(); !slices.Equal(got, want) {
			t.Errorf("IDs %q", got)
		}
		book.write("orders", all[0], six)
		settle()
		if got := ids(); !slices.Equal(got, []string{"orders", "orders-10.0.0.10:8080"}) {
			t.Errorf("alone again: %q", got)
		}
	})
}

func TestDigestIsThatOfTheJSON(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		weight := 0
		odd := at("orders", 2)
		odd.Weight, odd.Labels, odd.Started = &weight, map[string]string{"b": "<&>", "a": "é\u2028"}, time.Now().In(time.FixedZone("x", 3600))
		future := at("orders", 3)
		future.Started = time.UnixMilli(1 << 60) // a year that no JSON can say
		book.write("orders", at("orders", 1), odd, future)
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		check := func() {
			t.Helper()
			settle()
			got := ask(t, s, wire.Ask{}).Services["orders"]
			text, err := json.Marshal(got.Instances)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(text)
			if want := hex.EncodeToString(sum[:16]); got.Digest != want || len(got.Instances) == 0 {
				t.Errorf("digest %s, want %s of %s", got.Digest, want, text)
			}
			v, _ := d.View()
			for i, in := range v.Services[0].Instances {
				if !in.Instance.Equal(got.Instances[i]) {
					t.Errorf("callers get %+v, people %+v", got.Instances[i], in.Instance)
				}
			}
		}
		check()
		first := ask(t, s, wire.Ask{}).Services["orders"].Digest
		book.write("orders", at("orders", 0), odd, future, at("orders", 1)) // one more, the rest keeps its JSON
		check()
		book.write("orders", future, at("orders", 1), odd)
		check()
		if again := ask(t, s, wire.Ask{}).Services["orders"].Digest; again != first {
			t.Error("the same instances in another order have another digest")
		}
	})
}

func TestNothingChangesWhenNothingDid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", many("orders", 3)...)
		d, end := follow(t, nil, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		first := ask(t, s, wire.Ask{})
		v, changed := d.View()
		book.write("orders", many("orders", 3)...) // the registry says so, but it is no news
		time.Sleep(10 * time.Second)
		second := ask(t, s, after(first))
		if second.Full || second.Services != nil || second.Version != first.Version {
			t.Errorf("answer %+v", second)
		}
		later, _ := d.View()
		if later == v || !later.At.After(v.At) || later.Registries[0].Age > 3*time.Second {
			t.Errorf("the view stayed at %s with age %s", later.At, later.Registries[0].Age)
		}
		select {
		case <-changed:
			t.Error("a view was announced that says nothing new")
		default:
		}
	})
}

func TestViewAnswersLint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		other, drained, out := at("orders", 2), at("orders", 3), at("orders", 4)
		other.Cluster, other.Version = "k2", "v2"
		zero := 0
		drained.Version, drained.Weight = "v3", &zero
		out.Version = "v4"
		book.write("orders", at("orders", 1), other, drained, out, at("orders", 5))
		book.write("passport.rpc", at("passport.rpc", 1))
		book.write("passport.control", at("passport.control", 1))
		memory.verdicts = []Verdict{{Fingerprint: Fingerprint{ID: out.ID}, Service: "orders", Isolate: true}}
		d, end := follow(t, memory, book)
		defer end()
		settle()
		v, _ := d.View()
		for coordinate, want := range map[string]string{"cluster": "k2 production", "region": region, "env": "prod", "version": "v1 v2 v3", "other": ""} {
			if got := strings.TrimSpace(strings.Join(v.Values(coordinate), " ")); got != want {
				t.Errorf("values of %s: %q, want %q", coordinate, got, want)
			}
		}
		here := rules.Selector{Cluster: "production", Region: region, Env: "prod"}
		for version, want := range map[string]int{"v1": 2, "v2": 0, "v3": 1, "v4": 0, "v5": 0} {
			if got := v.Match("orders", here, version); got != want {
				t.Errorf("%d instances match %s, want %d", got, version, want)
			}
		}
		if v.Match("pay", here, "v1") != 0 {
			t.Error("a service that is not there matches")
		}
		for name, want := range map[string]string{"orders": "true[orders passport.control passport.rpc]", "rpc": "false[passport.rpc]",
			"passport": "false[passport.control passport.rpc]", "order": "false[orders passport.control passport.rpc]"} {
			if known, names := v.Service(name); fmt.Sprintf("%v%v", known, names) != want {
				t.Errorf("service %s: %v%v, want %s", name, known, names, want)
			}
		}
	})
}

// At most 20 views a second, and the last state is always published.
func TestViewsAreCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		d, end := follow(t, nil, book)
		defer end()
		settle()
		start, views := time.Now(), 0
		stop, counted := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(counted)
			for {
				_, changed := d.View()
				select {
				case <-changed:
					views++
				case <-stop:
					return
				}
			}
		}()
		for i := range 1000 {
			in := at("orders", 1)
			in.Labels = map[string]string{"n": fmt.Sprint(i)}
			book.write("orders", in)
			time.Sleep(2 * time.Millisecond)
		}
		took := time.Since(start)
		time.Sleep(100 * time.Millisecond)
		close(stop)
		<-counted
		if most := int(took/buildPace) + 3; views > most || views < most/2 {
			t.Errorf("%d views in %s, want at most %d", views, took, most)
		}
		if v, _ := d.View(); v.Services[0].Instances[0].Labels["n"] != "999" {
			t.Errorf("the last view has change %s, want 999", v.Services[0].Instances[0].Labels["n"])
		}
	})
}

func TestChangeIsInTheViewAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := newBook("consul")
		book.write("orders", at("orders", 1))
		d, end := follow(t, nil, book)
		defer end()
		settle()
		for n := range 20 {
			time.Sleep(time.Duration(n) * 137 * time.Millisecond)
			_, changed := d.View()
			start := time.Now()
			book.write("orders", at("orders", n+2))
			<-changed
			if took := time.Since(start); took > buildPace {
				t.Errorf("a change was in the view after %s, want within %s", took, buildPace)
			}
			if v, _ := d.View(); addresses(v, "orders") != at("orders", n+2).Address.String() {
				t.Errorf("the new view has %q", addresses(v, "orders"))
			}
		}
	})
}
