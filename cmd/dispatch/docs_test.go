package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shellBlocks are the fenced sh blocks of a document, in order.
func shellBlocks(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no sh block", file)
	}
	return blocks
}

// shell runs a script with curl failing on error answers, and gives what it printed.
func (r *running) shell(script string, env ...string) string {
	r.t.Helper()
	// The manual takes a night for what the test does in a second: it goes past the
	// rules that make people wait.
	curl := `curl() { case "$*" in *" PATCH "*) ;; *) set -- "${@//\"confirm\":/\"override\":[\"flap_wait\",\"rate\"],\"confirm\":}" ;; esac; command curl --fail-with-body --silent --show-error "$@" && echo; }
dispatchctl() { case $1 in swap|region) set -- "$@" --override flap_wait,rate;; esac; command dispatchctl "$@"; }` + "\n"
	local := strings.NewReplacer("localhost:8080", strings.TrimPrefix(r.public, "http://"), "localhost:8081", strings.TrimPrefix(r.admin, "http://"))
	cmd := exec.CommandContext(r.t.Context(), "bash", "-euo", "pipefail", "-c", curl+local.Replace(script))
	cmd.Env = append(os.Environ(), append(env, "TOKEN="+r.token, "API="+r.admin+"/api/v1")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("the commands fail: %v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// The commands of README work as they stand, and its answer is the real one but
// for what differs from start to start.
func TestReadmeCommandsWork(t *testing.T) {
	r := start(t, "--demo")
	blocks := shellBlocks(t, "../../README.md")
	first, rest, _ := strings.Cut(blocks[0], "\n")
	if first != "go run ./cmd/dispatch serve --demo" {
		t.Errorf("README begins with %q, not with the demo", first)
	}
	answer := keysAndConstants(t, r.shell(rest))
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(string(readme))
	if shown == nil {
		t.Fatal("README shows no answer")
	}
	if want := keysAndConstants(t, shown[1]); answer != want {
		t.Errorf("the answer is\n%s\nREADME shows\n%s", answer, want)
	}
	for _, block := range blocks[1:] {
		r.shell(block)
	}
	if a := r.route("app=mobile", "X-Device-Id", "d-1001"); a.Domain != "wapabst2.a.com.cn" {
		t.Errorf("after README's swap the domain is %s", a.Domain)
	}
}

// keysAndConstants is an answer without what is signed or drawn anew at each start.
func keysAndConstants(t *testing.T, answer string) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatalf("%v in %s", err, answer)
	}
	for _, key := range []string{"record", "session", "ttl"} {
		if v[key] == nil {
			t.Errorf("%s is missing from %s", key, answer)
		}
		v[key] = "…"
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The commands of the manual work in their order, against the demo.
func TestOperatingManualWorks(t *testing.T) {
	r := start(t, "--demo")
	dir := t.TempDir()
	document, err := os.ReadFile("../../examples/mobile-bank.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"bank.yaml": string(document), "staff.txt": "d-1001\nd-1002\n", "cn-prefixes.csv": "192.0.2.0/24,sh\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../dispatchctl").CombinedOutput(); err != nil {
		t.Fatalf("build dispatchctl: %v\n%s", err, out)
	}
	var script strings.Builder
	script.WriteString("cd " + dir + "\nPATH=$PWD:$PATH\n")
	for _, block := range shellBlocks(t, "../../docs/operate.md") {
		if !strings.Contains(block, "--db 'mysql:") { // those need a server: store and migrations test them
			script.WriteString(block)
		}
	}
	r.shell(script.String(), "SOMEBODY_ELSE="+r.token)
}

// docs/security.md names every test that attacks something, and none that is gone.
func TestTheSecurityPageNamesItsTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	named, found := map[string]bool{}, map[string]bool{}
	for _, name := range regexp.MustCompile("`(TestSEC\\d\\d\\w+)`").FindAllStringSubmatch(string(page), -1) {
		named[name[1]] = true
	}
	declared := regexp.MustCompile(`(?m)^func (TestSEC\d\d\w+)\(`)
	err = filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, name := range declared.FindAllStringSubmatch(string(text), -1) {
			if !named[name[1]] {
				t.Errorf("%s: %s is missing from docs/security.md", path, name[1])
			}
			found[name[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range named {
		if !found[name] {
			t.Errorf("docs/security.md names %s, which is gone", name)
		}
	}
}
