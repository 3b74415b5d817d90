package discovery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

const goodFile = `# the control nodes
instances:
  - service: dispatch-control
    address: 10.1.0.7:8083
    cluster: production
    region: cn-hangzhou
    env: prod
    version: "2.10"
    weight: 0
    labels: {zone: a}
  - {service: dispatch-control, address: "[2001:db8::8]:8083", cluster: production, region: cn-hangzhou, env: prod, version: v2}
`

func TestFileIsRead(t *testing.T) {
	t.Parallel()
	all, err := parseFile("f", []byte(goodFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].ID != "dispatch-control-10.1.0.7-8083" || all[0].Version != "2.10" || all[0].Share() != 0 ||
		all[0].Labels["zone"] != "a" || all[1].Address.String() != "[2001:db8::8]:8083" || all[1].Weight != nil {
		t.Errorf("%+v", all)
	}
	for _, text := range []string{
		"instances: []\n",
		`{"instances": []}`,
		"{\n\t\"instances\": [\n\t\t{\"service\": \"a\", \"address\": \"10.0.0.1:80\", \"cluster\": \"c\", \"region\": \"r\", \"env\": \"e\", \"version\": \"1.10\"}\n\t]\n}",
	} {
		if _, err := parseFile("f", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestFileIsRefused(t *testing.T) {
	t.Parallel()
	const rest = ", address: a:1, cluster: c, region: r, env: e, version: v}\n"
	for _, c := range []struct{ name, text, says string }{
		{"empty", "", "f:1: the file is empty"},
		{"blank", " \n\n", "the file is empty"},
		{"comments alone", "# nothing\n", "comments alone"},
		{"no list", "instances:\n", "must be a list"},
		{"null", "instances: null\n", "must be a list"},
		{"another key", "instance: []\n", "f:1: instance: no such key"},
		{"nothing but a list", "- a\n", "must be keys with values"},
		{"no YAML", "instances: [\n", "no YAML"},
		{"two documents", "instances: []\n---\ninstances: []\n", "more than one document"},
		{"the last line does not end", "instances:\n  - {service: a" + strings.TrimSuffix(rest, "\n"), "f:2: the last line does not end"},
		{"half of a JSON", `{"instances": [{"service": "a"`, "no YAML"},
		{"unknown field", "instances:\n  - {servce: a" + rest, "f:2: instances[0].servce: no such key"},
		{"field twice", "instances:\n  - {env: x, service: a" + rest, "written twice"},
		{"a coordinate is missing", "instances:\n  - {service: a, address: a:1, cluster: c, region: r, env: e}\n", "instances[0].version: is required"},
		{"a coordinate is blank", "instances:\n  - {service: a, address: a:1, cluster: c, region: \" \", env: e, version: v}\n", "instances[0].region: is required"},
		{"negative weight", "instances:\n  - {weight: -1, service: a" + rest, "must be 0 to 10000"},
		{"weight as text", "instances:\n  - {weight: \"5\", service: a" + rest, "must be a whole number"},
		{"weight as fraction", "instances:\n  - {weight: 0.5, service: a" + rest, "must be a whole number"},
		{"weight too large", "instances:\n  - {weight: 99999999999999999999, service: a" + rest, "must be a whole number"},
		{"bad address", "instances:\n  - {service: a, address: \"2001:db8::1:80\", cluster: c, region: r, env: e, version: v}\n", "needs brackets"},
		{"no address", "instances:\n  - {service: a, cluster: c, region: r, env: e, version: v}\n", "instances[0].address: is required"},
		{"bad id", "instances:\n  - {id: a/b, service: a" + rest, `id "a/b"`},
		{"label key", "instances:\n  - {labels: {a.b: c}, service: a" + rest, `write "a_b"`},
		{"label is a number", "instances:\n  - {labels: {a: 1}, service: a" + rest, "labels.a: must be a text"},
		{"labels are a list", "instances:\n  - {labels: [a], service: a" + rest, "must be keys with values"},
		{"anchors", "instances:\n  - {service: &x a, id: *x" + rest, "anchors, aliases and tags"},
		{"a tag", "instances:\n  - {service: !!str a" + rest, "anchors, aliases and tags"},
		{"twice the same address", "instances:\n  - {id: x, service: a" + rest + "  - {id: y, service: a" + rest, "a is at a:1 on line 2 already"},
		{"twice the same id", "instances:\n  - {id: x, service: a" + rest + "  - {id: x, service: a" + strings.Replace(rest, "a:1", "a:2", 1), "a has the id x on line 2 already"},
		{"deep", strings.Repeat("[", 100_000) + "\n", "no YAML"},
		// T57: what YAML takes for something else.
		{"a version like a number", "instances:\n  - {service: a, address: a:1, cluster: c, region: r, env: e, version: 2.10}\n", `quote it: "2.10"`},
		{"an exponent", "instances:\n  - {service: a, address: a:1, cluster: c, region: r, env: e, version: 1e3}\n", "quote it"},
		{"a hexadecimal", "instances:\n  - {service: a, address: a:1, cluster: c, region: r, env: e, version: 0x10}\n", "quote it"},
		{"a truth", "instances:\n  - {service: a, address: a:1, cluster: c, region: r, env: true, version: v}\n", "quote it"},
		{"a null", "instances:\n  - {service: a, address: a:1, cluster: c, region: r, env: ~, version: v}\n", "quote it"},
	} {
		all, err := parseFile("f", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) || all != nil {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add(goodFile)
	f.Add(`{"instances": [{"service": "a"}]}`)
	f.Add("instances: &a [*a]\n")
	f.Add("instances:\n  - {labels: {? x : y}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseFile("f", []byte(text))
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		for _, in := range all {
			if err := in.Validate(); err != nil || in.ID == "" {
				t.Errorf("%+v was let through: %v", in, err)
			}
		}
	})
}

// A file that is half-written, wrong or gone keeps the list and is reported.
func TestBadFileKeepsTheList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(goodFile)
		s, err := openStatic(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, end := watching(t, s, "dispatch-control")
		time.Sleep(2 * time.Second)
		lines := strings.SplitAfter(goodFile, "\n")
		for _, bad := range []string{"", goodFile[:len(goodFile)/2], lines[0] + lines[1], goodFile[:len(goodFile)-1], strings.Join(lines[:7], "")} {
			write(bad)
			time.Sleep(3 * time.Second)
			if got, _ := w.Current(); got.Version != 1 || len(got.Instances) != 2 {
				t.Errorf("with %q: version %d, %v", bad, got.Version, addresses(got))
			}
			if state := w.State(); state.Problem == nil || !strings.Contains(state.Problem.Error(), path) {
				t.Errorf("with %q: problem %v", bad, state.Problem)
			}
			write(goodFile)
			time.Sleep(3 * time.Second)
			if state := w.State(); state.Problem != nil || state.Age > 2*time.Second {
				t.Errorf("when it was good again: %+v", state)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if got, _ := w.Current(); got.Version != 1 || w.State().Problem == nil {
			t.Errorf("without the file: version %d, problem %v", got.Version, w.State().Problem)
		}
		_ = end()
	})
}

// A write that is under way is waited for, although what is there could be read.
func TestSlowWriteIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		lines := strings.SplitAfter(goodFile, "\n")
		if err := os.WriteFile(path, []byte(goodFile), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openStatic(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, end := watching(t, s, "dispatch-control")
		time.Sleep(readEvery + readEvery/2)
		// The writer stops after the first instance, which alone would be a good file.
		if err := os.WriteFile(path, []byte(strings.Join(lines[:len(lines)-2], "")), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 40 { // a comment now and then: it still writes
			time.Sleep(100 * time.Millisecond)
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("# \n"); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
		}
		if _, err := parseFile(path, []byte(strings.Join(lines[:len(lines)-2], ""))); err != nil {
			t.Fatalf("the half is no good file: %v", err)
		}
		if got, _ := w.Current(); len(got.Instances) != 2 {
			t.Errorf("while it was written: %v", addresses(got))
		}
		_ = end()
	})
}

// Nobody registers in a file; it says whether we are listed, and how to be.
func TestRegisterInFile(t *testing.T) {
	t.Parallel()
	here := listener(t)
	path := filepath.Join(t.TempDir(), "f.yaml")
	in := Instance{Service: "orders", Address: here, Coordinates: home()}
	replaceFile(t, path, "instances: []\n")
	source := openFor(t, "static:"+path)
	_, err := Register(t.Context(), source, RegisterOptions{Force: true}, in)
	if fault.KindOf(err) != fault.NotFound || fault.CodeOf(err) != "not_listed" {
		t.Fatalf("Register = %v", err)
	}
	_, line, _ := strings.Cut(err.Error(), "add to its instances: ")
	replaceFile(t, path, "instances:\n  - "+line+"\n")
	reg, err := Register(t.Context(), source, RegisterOptions{Force: true}, in)
	if err != nil {
		t.Fatalf("after adding %s: %v", line, err)
	}
	if got := reg.Instances(); len(got) != 1 || got[0].ID == "" {
		t.Errorf("instances %+v", got)
	}
}
