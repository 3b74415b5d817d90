package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.0.0.1:80":                   "10.0.0.1:80",
		"[2001:db8::1]:8080":            "[2001:db8::1]:8080",
		"[2001:DB8:0:0::1]:8080":        "[2001:db8::1]:8080",
		"[::ffff:10.0.0.1]:80":          "10.0.0.1:80",
		"Node-7.Example.:80":            "node-7.example:80",
		"localhost:65535":               "localhost:65535",
		"node_1:80":                     "node_1:80",
		"2001:db8::1:8080":              "",
		"10.0.0.1":                      "",
		"10.0.0.1:0":                    "",
		"10.0.0.1:65536":                "",
		"10.0.0.1:http":                 "",
		"10.0.0.1:+80":                  "",
		"10.0.0:80":                     "",
		"010.0.0.1:80":                  "",
		":80":                           "",
		"a b:80":                        "",
		"a/b:80":                        "",
		"user@host:80":                  "",
		"-.example..x:80":               "",
		strings.Repeat("a", 64) + ":80": "",
	} {
		a, err := ParseAddress(text)
		if got := a.String(); err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"10.0.0.1:80", "[2001:db8::1]:8080", "[fe80::1%eth0]:1", "host:1", "[::]:1", "a..b:1", "[::ffff:1.2.3.4]:5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text)
		if err != nil {
			return
		}
		again, err := ParseAddress(a.String())
		if err != nil || again != a {
			t.Errorf("%q became %v, and that %v, %v", text, a, again, err)
		}
		if _, err := netip.ParseAddrPort(a.String()); err != nil && strings.Contains(a.Host, ":") {
			t.Errorf("%q: %v", a.String(), err)
		}
	})
}

// A02, A03: each of the four missing, empty or blank is refused by its name.
func TestFourCoordinates(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cluster", "region", "env", "version"} {
		for _, value := range []string{"", " ", "\t", "\u00a0", " prod", "prod*", "*", "a\x00b", "\xff", strings.Repeat("a", 129)} {
			in := instance("orders", "10.0.0.1:80")
			part := map[string]*string{"cluster": &in.Cluster, "region": &in.Region, "env": &in.Env, "version": &in.Version}[name]
			*part = value
			e, ok := errors.AsType[*fault.Error](in.Validate())
			if !ok || e.Kind != fault.Invalid || len(e.Problems) != 1 || e.Problems[0].Path != name {
				t.Errorf("%s = %q: %v", name, value, in.Validate())
			}
		}
	}
	e, _ := errors.AsType[*fault.Error](Instance{}.Validate())
	if len(e.Problems) != 6 {
		t.Errorf("an empty instance has %d problems, want all 6: %v", len(e.Problems), e)
	}
}

// T26 and the limits of Consul: clear errors instead of a registry's riddle.
func TestMetadataLimits(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]string {
		labels := map[string]string{}
		for i := range n {
			labels[fmt.Sprint("k", i)] = ""
		}
		return labels
	}
	for _, c := range []struct {
		name   string
		labels map[string]string
		says   string // "" is fine
	}{
		{"none", nil, ""},
		{"512 bytes", map[string]string{"a": strings.Repeat("x", 512)}, ""},
		{"513 bytes", map[string]string{"a": strings.Repeat("x", 513)}, "the value has 513 bytes, at most 512"},
		{"no UTF-8", map[string]string{"a": "\xff"}, "at most 512 of UTF-8"},
		{"56 pairs", many(56), ""},
		{"65 pairs", many(65), "there are 65, at most 56"},
		{"a dot", map[string]string{"user.name": "x"}, `write "user_name"`},
		{"a colon", map[string]string{"a:b": "x"}, `write "a_b"`},
		{"a blank", map[string]string{"a b": "x"}, `write "a_b"`},
		{"empty", map[string]string{"": "x"}, "letters, digits"},
		{"not ASCII", map[string]string{"größe": "x"}, `write "gr__e"`},
		{"129 bytes", map[string]string{strings.Repeat("k", 129): "x"}, "129 bytes"},
		{"ours", map[string]string{"version": "x"}, "a field of the instance"},
		{"Consul's", map[string]string{"consul-x": "x"}, "belong to Consul"},
	} {
		in := instance("orders", "10.0.0.1:80")
		in.Labels = c.labels
		err := in.Validate()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// A57: connections of databases, caches and queues mean something from call to call.
func TestADatabaseIsNoInstance(t *testing.T) {
	t.Parallel()
	for port, whose := range map[int]string{1433: "SQL Server", 1521: "Oracle", 3306: "MySQL", 5432: "PostgreSQL", 5672: "AMQP", 6379: "Redis",
		11211: "memcached", 27017: "MongoDB", 8080: "", 9092: "", 33060: ""} {
		err := instance("orders", fmt.Sprintf("10.0.0.1:%d", port)).Validate()
		if whose == "" && err != nil || whose != "" && (err == nil || !strings.Contains(err.Error(), whose+"'s")) {
			t.Errorf("port %d: %v, want %q", port, err, whose)
		}
	}
}

// T66: absent and 0 differ, on paper and in effect.
func TestWeight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		weight *int
		share  int
		ok     bool
	}{{nil, 100, true}, {new(0), 0, true}, {new(7), 7, true}, {new(10_000), 10_000, true}, {new(-1), -1, false}, {new(10_001), 10_001, false}} {
		in := instance("orders", "10.0.0.1:80")
		in.Weight = c.weight
		if in.Share() != c.share || (in.Validate() == nil) != c.ok {
			t.Errorf("weight %v: share %d, %v", c.weight, in.Share(), in.Validate())
		}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var back Instance
		if err := json.Unmarshal(text, &back); err != nil || !back.Equal(in) {
			t.Errorf("%s came back as %+v, %v", text, back, err)
		}
	}
	a, b := instance("orders", "10.0.0.1:80"), instance("orders", "10.0.0.1:80")
	if b.Weight = new(100); a.Equal(b) {
		t.Error("absent equals 100")
	}
}

// What a registry keeps is what comes back; what others wrote there is judged.
func TestMetadata(t *testing.T) {
	t.Parallel()
	in := instance("orders", "10.0.0.1:80")
	in.Weight, in.Labels = new(0), map[string]string{"zone": "a"}
	in, err := in.filled("consul")
	if err != nil {
		t.Fatal(err)
	}
	back := Instance{ID: in.ID, Service: in.Service, Address: in.Address, Source: in.Source}
	if err := back.readMeta(in.meta()); err != nil || !back.Equal(in) {
		t.Errorf("got %+v, %v; want %+v", back, err, in)
	}
	for key, value := range map[string]string{"weight": "1e18", "started": "yesterday"} {
		if err := back.readMeta(map[string]string{key: value}); err == nil {
			t.Errorf("%s %q was taken", key, value)
		}
	}
}
