package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
)

const goodDialect = `# what the teams of the old registry write
keys: {environment: env, idc: region, "app.weight": weight}
values:
  env: {production: prod, staging: pre}
  region: {hz: cn-hangzhou, sh: cn-shanghai}
absent: {cluster: production}
names:
  - '(?P<service>.+)-(?P<version>v[0-9]+)'
  - '(?P<env>pre|prod)_(?P<service>.+)'
`

// dialectOf is the one in a text.
func dialectOf(t testing.TB, text string) *Dialect {
	t.Helper()
	d, err := parseDialect("d.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A15: what teams write becomes coordinates by the table; what the table does not
// say is rejected, with the key and the value, and never guessed (A02, A03).
func TestDialect(t *testing.T) {
	t.Parallel()
	dialect, err := newTranslator(dialectOf(t, goodDialect))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string // of the service, as the registry spells it
		pairs map[string]string
		want  Instance
		why   string // rejected, and why
	}{
		{"order-core", map[string]string{"env": "prod", "idc": "hz", "version": "v1"},
			Instance{Service: "order-core", Coordinates: Coordinates{"production", "cn-hangzhou", "prod", "v1"}}, ""},
		{"order-core", map[string]string{"environment": "production", "region": "hz", "version": "v1"},
			Instance{Service: "order-core", Coordinates: Coordinates{"production", "cn-hangzhou", "prod", "v1"}}, ""},
		{"order-core-v2", map[string]string{"environment": "production", "idc": "sh"},
			Instance{Service: "order-core", Coordinates: Coordinates{"production", "cn-shanghai", "prod", "v2"}}, ""},
		{"order-core-v2", map[string]string{"env": "prod", "idc": "sh", "version": "v2", "cluster": "gray"},
			Instance{Service: "order-core", Coordinates: Coordinates{"gray", "cn-shanghai", "prod", "v2"}}, ""},
		{"prod_order-core", map[string]string{"idc": "hz", "version": "v1"},
			Instance{Service: "order-core", Coordinates: Coordinates{"production", "cn-hangzhou", "prod", "v1"}}, ""},
		{"order-core", map[string]string{"env": "prod", "environment": "production", "idc": "hz", "version": "v1", "team": "a", "app.weight": "7"},
			Instance{Service: "order-core", Coordinates: Coordinates{"production", "cn-hangzhou", "prod", "v1"}, Weight: new(7), Labels: map[string]string{"team": "a"}}, ""},

		{"order-core", map[string]string{"environment": "stagging", "idc": "hz", "version": "v1"}, Instance{}, `environment is "stagging", which the dialect maps to no env`},
		{"order-core", map[string]string{"env": "Prod", "idc": "hz", "version": "v1"}, Instance{}, `env is "Prod", which the dialect maps to no env`},
		{"order-core", map[string]string{"env": "prod", "environment": "staging", "idc": "hz", "version": "v1"}, Instance{}, `env is "prod" by env and "pre" by environment`},
		{"order-core-v2", map[string]string{"env": "prod", "idc": "hz", "version": "v3"}, Instance{}, `version is "v3" by version and "v2" by the name`},
		{"order-core", map[string]string{"idc": "hz", "version": "v1"}, Instance{}, "env: is required"},
		{"order-core", map[string]string{"env": "", "idc": "hz", "version": "v1"}, Instance{}, `env is "", which the dialect maps to no env`},
		{"order-core", map[string]string{"env": "prod", "idc": "hz"}, Instance{}, "version: is required"},
		{"order-core", map[string]string{"env": "prod", "idc": "hz", "version": "v1", "cluster": ""}, Instance{}, "cluster: is required"},
		{"order-core-v2-canary", map[string]string{"env": "prod", "idc": "hz"}, Instance{}, "version: is required"},
		{"order-core", map[string]string{"env": "nope", "idc": "nowhere", "version": "v1"}, Instance{}, "maps to no region"},
	} {
		var a answer
		newReader("consul", c.name, dialect).add(&a, entry{id: "x", host: "2001:db8::1", port: 80, pairs: c.pairs})
		if c.why != "" {
			if len(a.instances) > 0 || len(a.rejected) != 1 || !strings.Contains(a.rejected[0].Why, c.why) || a.rejected[0].Address != "[2001:db8::1]:80" {
				t.Errorf("%s %v: %+v, want rejected: %s", c.name, c.pairs, a, c.why)
			}
			continue
		}
		c.want.ID, c.want.Source, c.want.Address = "x", "consul", Address{"2001:db8::1", 80}
		if len(a.instances) != 1 || !a.instances[0].Equal(c.want) {
			t.Errorf("%s %v: %+v, want %+v", c.name, c.pairs, a, c.want)
		}
	}
}

// A key may mean another coordinate than it says.
func TestDialectExchangesKeys(t *testing.T) {
	t.Parallel()
	dialect, err := newTranslator(&Dialect{Keys: map[string]string{"cluster": "region", "region": "cluster"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := dialect.translate(map[string]string{"cluster": "a", "region": "b"}, nil)
	if err != nil || got["region"] != "a" || got["cluster"] != "b" {
		t.Errorf("%v, %v", got, err)
	}
}

// A dialect that cannot be used is refused at the start, with all that is wrong.
func TestDialectIsChecked(t *testing.T) {
	t.Parallel()
	_, err := Open("consul://a:8500", Options{Dialect: &Dialect{
		Keys:   map[string]string{"x": "zone", " ": "env"},
		Values: map[string]map[string]string{"zone": {"a": "b"}, "env": {}, "region": {"": "r", "a": " ", "b": "*"}},
		Absent: map[string]string{"weight": "1", "env": ""},
		Names:  []string{"(", "(.+)", "(?P<service>.+)(?P<zone>x)", "(?P<service>(?!x))"},
	}})
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Kind != fault.Invalid || e.Code != "invalid_dialect" {
		t.Fatalf("Open = %v", err)
	}
	for _, says := range []string{
		`keys.x: "zone" is none of cluster, region, env, version, weight`, "the key is blank", "values.zone: is none of", "values.env: is empty",
		"values.region.: the value as written is blank", "values.region.a: is required", `values.region.b: "*": there are no wildcards`,
		"absent.weight: is none of", "absent.env: is required", `names[0]: "(" is no regular expression`, `names[1]: "(.+)" has no group (?P<service>…)`,
		`names[2]: the group "zone" is none of`, `names[3]: "(?P<service>(?!x))" is no regular expression`,
	} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q is not in:\n%v", says, err)
		}
	}
	if len(e.Problems) != 13 {
		t.Errorf("%d problems, want 13:\n%v", len(e.Problems), err)
	}
	path := filepath.Join(t.TempDir(), "f.yaml")
	replaceFile(t, path, "instances: []\n")
	if _, err := Open("static:"+path, Options{Dialect: &Dialect{}}); err == nil || !strings.Contains(err.Error(), "takes no dialect") {
		t.Errorf("static with a dialect: %v", err)
	}
}

func TestReadDialect(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.yaml")
	if err := os.WriteFile(path, []byte(goodDialect), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := ReadDialect(path)
	if err != nil || d.Keys["idc"] != "region" || d.Values["env"]["production"] != "prod" || d.Absent["cluster"] != "production" || len(d.Names) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := ReadDialect(path + "x"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file: %v", err)
	}
	for text, says := range map[string]string{
		"":                                 "d.yaml:1: the file is empty",
		"keys: {a: env}":                   "d.yaml:1: the last line does not end",
		"key: {}\n":                        "d.yaml:1: key: no such key",
		"\nkeys: {a: zone}\n":              `d.yaml:2: keys.a: "zone" is none of`,
		"keys: {a: env, a: region}\n":      "written twice",
		"keys: [a]\n":                      "keys: must be keys with values",
		"values: {env: {production: 1}}\n": `must be a text; quote it: "1"`,
		"values:\n  env:\n    on: prod\n    test: \" \"\n": "d.yaml:4: values.env.test: is required",
		"values:\n  env: {}\n":                             "d.yaml:2: values.env: is empty",
		"values: {env: prod}\n":                            "values.env: must be keys with values",
		"absent: {zone: a}\n":                              "d.yaml:1: absent.zone: is none of",
		"names: x\n":                                       "names: must be a list",
		"names:\n  - 'x'\n  - '('\n":                       "d.yaml:3: names[1]:",
		"names: [1]\n":                                     "names[0]: must be a text",
		"absent: &a {env: x}\nkeys: *a\n":                  "anchors",
		"keys: {a: env}\n---\nkeys: {}\n":                  "more than one document",
	} {
		d, err := parseDialect("d.yaml", []byte(text))
		if err == nil || d != nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

func FuzzDialect(f *testing.F) {
	f.Add(goodDialect, "order-core-v2", "environment", "production")
	f.Add("values: {env: {on: prod}}\n", "a", "env", "on")
	f.Add("names: ['(?P<service>)(?P<env>.*)']\n", "x", "cluster", "")
	f.Fuzz(func(t *testing.T, text, name, key, value string) {
		d, err := parseDialect("d", []byte(text))
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		dialect, err := newTranslator(d)
		if err != nil {
			t.Fatalf("what was read is refused: %v", err)
		}
		var a answer
		newReader("consul", name, dialect).add(&a, entry{id: "x", host: "a", port: 1, pairs: map[string]string{key: value}})
		for _, in := range a.instances {
			if err := in.Validate(); err != nil {
				t.Errorf("%+v was let through: %v", in, err)
			}
			for coordinate, table := range d.Values {
				got := map[string]string{"cluster": in.Cluster, "region": in.Region, "env": in.Env, "version": in.Version}[coordinate]
				ours := got == d.Absent[coordinate]
				for _, value := range table {
					ours = ours || value == got
				}
				if !ours {
					t.Errorf("%s %q is in no table", coordinate, got)
				}
			}
		}
		if len(a.instances)+len(a.rejected) != 1 {
			t.Errorf("the entry is lost: %+v", a)
		}
	})
}

// A14: the same twenty instances, written to each registry in the words of its
// teams, are the same lists, byte for byte.
func TestSameInstancesThroughEveryRegistry(t *testing.T) {
	t.Parallel()
	agent := testenv.Consul(t)
	client, err := api.NewClient(&api.Config{Address: agent})
	if err != nil {
		t.Fatal(err)
	}
	double := newNacosDouble()
	double.silent = true
	file := &fileRegistry{path: filepath.Join(t.TempDir(), "instances.yaml")}
	var listed []Instance
	for i := range 20 {
		address := fmt.Sprintf("10.0.%d.%d:80", i%3, i)
		if i%4 == 0 {
			address = fmt.Sprintf("[2001:db8::%d]:80", i+1)
		}
		in := instance("twenty", address)
		in.Env, in.Version = []string{"dev", "test", "pre", "prod"}[i%4], fmt.Sprint("v", i%2+1)
		pairs := map[string]string{"dc": "hz", "environment": strings.ToUpper(in.Env)}
		if i%5 == 0 {
			in.Weight, in.Labels = new(i), map[string]string{"zone": fmt.Sprint("z", i)}
			pairs["zone"] = fmt.Sprint("z", i)
		}
		listed = append(listed, in)
		host := double.put("twenty-"+in.Version, in.Address.Host, int(in.Address.Port), pairs)
		if in.Weight != nil {
			*host.Weight = float64(i) / 100
		}
		meta := map[string]string{"stage": in.Env, "rev": in.Version, "region": "hangzhou-1"}
		if in.Weight != nil {
			meta["weight"], meta["zone"] = fmt.Sprint(i), fmt.Sprint("z", i)
		}
		if err := client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: in.ID, Name: "twenty", Address: in.Address.Host, Port: 80, Meta: meta}); err != nil {
			t.Fatal(err)
		}
	}
	file.set(t, listed...)
	open := func(target, dialect string) Catalog {
		opt := Options{}
		if dialect != "" {
			opt.Dialect = dialectOf(t, dialect)
		}
		s, err := Open(target, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	consul := open("consul://"+agent, "keys: {stage: env, rev: version}\nvalues: {region: {hangzhou-1: cn-hangzhou}}\nabsent: {cluster: production}\n")
	nacos := open("nacos://"+double.serving(t), "keys: {environment: env, dc: region}\nabsent: {cluster: production}\nnames: ['(?P<service>.+)-(?P<version>v.)']\n"+
		"values: {env: {DEV: dev, TEST: test, PRE: pre, PROD: prod}, region: {hz: cn-hangzhou}}\n")
	texts := map[string]string{}
	for _, from := range []struct {
		source Source
		names  []string
	}{{open("static:"+file.path, ""), []string{"twenty"}}, {consul, []string{"twenty"}}, {nacos, []string{"twenty-v1", "twenty-v2"}}} {
		var found []Instance
		for _, name := range from.names {
			w, _ := watching(t, from.source, name)
			s := await(t, w, soon, func(s Snapshot) bool { return len(s.Instances) == 20/len(from.names) && len(s.Rejected) == 0 })
			if s.Service != name || s.Source != from.source.Name() {
				t.Errorf("%s from %s, want %s from %s", s.Service, s.Source, name, from.source.Name())
			}
			found = append(found, s.Instances...)
		}
		found = tidy(found)
		for i := range found {
			if found[i].Source != from.source.Name() {
				t.Errorf("source %q, want %q", found[i].Source, from.source.Name())
			}
			found[i].Source = ""
		}
		text, err := json.Marshal(found)
		if err != nil {
			t.Fatal(err)
		}
		texts[from.source.Name()] = string(text)
	}
	if texts["consul"] != texts["static"] || texts["nacos"] != texts["static"] {
		t.Errorf("they differ:\n%s\n%s\n%s", texts["static"], texts["consul"], texts["nacos"])
	}
}
