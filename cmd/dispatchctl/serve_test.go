package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// demo starts dispatch serve --demo as a process of its own. The shell it is
// started from is set up for dispatchctl, which must not disturb it.
func demo(t *testing.T, more ...string) (server, token string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "dispatch")
	if out, err := exec.Command("go", "build", "-o", program, "../dispatch").CombinedOutput(); err != nil {
		t.Fatalf("build dispatch: %v\n%s", err, out)
	}
	args := append([]string{"serve", "--demo", "--demo-traffic", "off", "--data", t.TempDir(), "--replica-id", "sh-1", "--region", "sh",
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--fleet-listen", "127.0.0.1:0"}, more...)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "DISPATCH_SERVER=http://127.0.0.1:1", "DISPATCH_TOKEN="+secret, "DISPATCH_TOKEN_FILE=none")
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // t.Context has ended by now, and with it the process
		_ = cmd.Wait()
	})
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "serving") {
			m := regexp.MustCompile(`admin +(http://\S+)/api/v1/\S+\n[\s\S]*token +(dsp_\S+)`).FindStringSubmatch(text.String())
			if m == nil {
				break
			}
			return m[1], m[2]
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Fatalf("dispatch does not serve:\n%s%s", text.String(), log.String())
	return "", ""
}

// Every command against a real dispatch, in the order of a bad night.
func TestABadNight(t *testing.T) {
	server, token := demo(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args string
		exit int
		want string // in what is printed
	}{
		{"fleet", 0, `^head v1  all v1  canary none\nREPLICA .*\nsh-1 +current +v1 +\d+s +sh\n$`},
		{"swap mobile/sh sh-spare --from sh-main --expect sh-main --reason burns --confirm sh --key night-1 --override flap_wait,rate", 0, `^v2 on 1/1 after 0\.\d+ s\n`},
		{"swap mobile/sh sh-spare --from sh-main --expect sh-main --reason burns --confirm sh --key night-1 --override flap_wait,rate", 0, `^v2 on 1/1 after 0\.\d+ s\n`},
		{"swap mobile/sh sh-spare --from sh-main --expect sh-main --reason burns --confirm sh --override flap_wait,rate", 1, `are now: sh-spare \(expect_mismatch\)\n[\s\S]*\ntry: `},
		{"region mobile/hf off --expect active --reason flood --confirm hf --override flap_wait,rate", 0, `^v3 on 1/1`},
		{"region mobile/sh off --expect active --reason flood --confirm sh --override flap_wait,rate", 1, `\(last_region\)`},
		{"region mobile/hf active --expect off --reason dry --confirm hf --override flap_wait,rate", 0, `^v4 on 1/1`},
		{"relive 1 --reason back --confirm 1 --override flap_wait,rate", 0, `v5 on 1/1`},
		{"releases adopt --reason restored --confirm adopt", 0, `(?s)v5 on 1/1.*warning: the database has release 5 already`},
		{"override reconcile sh-1 --reason over --confirm sh-1", 1, `\(no_override\)`},
		{"releases", 0, `RELEASE .*\nv5 .* relive .* back\nv4 .* region_state .* dry\n(v.*\n)*v1 .* publish .*\n$`},
		{"releases show 2", 0, `release   v2, made on v1[\s\S]*action    swap\n[\s\S]*"sh/sh-spare":{"state":"active"`},
		{"releases show 99", 1, `\(unknown_release\)`},
		{"audit verify", 0, `^\d+ rows, each as it was written\nkeep elsewhere: --rows \d+ --head [0-9a-f]{64}\n$`},
		{"audit verify --rows 3 --head " + strings.Repeat("0", 64), 1, `\(audit_broken\)`},
	} {
		got := ctlWith(t, file, server, streams{}, strings.Fields(step.args)...)
		if got.exit != step.exit || !regexp.MustCompile(step.want).MatchString(got.out+got.log) {
			t.Fatalf("%s: exit %d\n%s%s\nwant %d and %s", step.args, got.exit, got.out, got.log, step.exit, step.want)
		}
	}
	for recording, args := range map[string]string{"fleet-canary.json": "fleet", "releases.json": "releases", "release.json": "releases show 2",
		"verify.json": "audit verify", "done.json": "relive 1 --reason back --confirm 1 --override rate"} {
		sameShape(t, recording, ctlWith(t, file, server, streams{}, append(strings.Fields(args), "-o", "json")...).out)
	}
	t.Run("an unknown token", func(t *testing.T) {
		if got := ctl(t, server, streams{}, "fleet"); got.exit != 1 || !strings.Contains(got.log, "(bad_token)") {
			t.Errorf("exit %d: %s", got.exit, got.log)
		}
	})
}

// Every noun against a real dispatch, in the order of a week: a look around, a
// document from a working copy, a draft, lists, a gray, people, the trail.
func TestAQuietWeek(t *testing.T) {
	server, token := demo(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("token", token)
	document, err := os.ReadFile("../../examples/mobile-bank.yaml")
	if err != nil {
		t.Fatal(err)
	}
	prefixes, err := os.ReadFile("../../examples/cn-prefixes.csv")
	if err != nil {
		t.Fatal(err)
	}
	write("cn-prefixes.csv", string(prefixes))
	same := write("dispatch.yaml", string(document))
	grown := write("grown.yaml", strings.Replace(string(document), "capacity: 60", "capacity: 61", 1))
	drafted := write("drafted.yaml", strings.NewReplacer("capacity: 60", "capacity: 62", "    ids: [d-1001, d-1002]\n", "").Replace(string(document)))
	ids := write("ids.txt", "d-1001\nd-1002\nd-2001\n")
	plan := write("plan.json", `{"region":"hf","steps":[1000,2000],"bake":"1m","sample":1,"signals":[{"kind":"probe"}]}`)
	shown := ""
	for _, step := range []struct {
		args string
		exit int
		want string // in what is printed
	}{
		{"apps", 0, `(?m)^mobile/sh +active +sh-main +active +k1 +wapabst\.a\.com\.cn$`},
		{"explain --app mobile --device d-1001", 0, `staff`},
		{"explain --device d-1001 --release 1 -o json", 0, `"release":1`},
		{"plan " + dir, 0, `no difference to v1`},
		{"plan " + same, 0, `no difference to v1`},
		{"plan " + grown, exitDifferent, `~ apps\[mobile\]\.regions\[sh\]\.capacity: 60 → 61`},
		{"apply " + grown + " --reason grow --confirm apply", 0, `v2 on 1/1`},
		{"diff 1 2", 0, `capacity: 60 → 61`},
		{"diff 2 2", 0, `say the same`},
		{"apply " + drafted + " --reason grow --draft capacity --confirm apply", 0, `(?s)draft +(\S+): capacity\nstate +submitted`},
		{"draft show DRAFT", 0, `capacity: 61 → 62`},
		{"pending", 0, `draft +DRAFT`},
		{"draft publish DRAFT --reason agreed --confirm DRAFT", 0, `v3 on 1/1`},
		{"draft --state published", 0, `DRAFT +published`},
		{"list", 0, `(?m)^staff-devices +device +2 .*mobile/staff`},
		{"list contains staff-devices d-2001", 0, `^no\n`},
		{"list import staff-devices " + ids + " --reason hired --dry-run", 0, `3 lines, 3 ids: \+1 −0`},
		{"list import staff-devices " + ids + " --reason hired --confirm staff-devices", 0, `(?s)\+1 −0.*v4 on 1/1`},
		{"list contains staff-devices d-2001", 0, `^yes\n`},
		{"list patch staff-devices --add d-3001 --reason hired --confirm staff-devices", 0, `(?s)\+1 −0, 0 were there.*v5 on 1/1`},
		{"list export staff-devices", 0, `(?m)^d-1001$`},
		{"list waiting staff-devices", 0, `nothing waits`},
		{"gray", 0, `(?m)^mobile/gray-10-2 +hf +500 +none`},
		{"gray plan mobile/gray-10-2 " + plan + " --reason grow --confirm gray-10-2", 0, `(?s)state +\w+.*step +0 of 2`},
		{"gray preview mobile/gray-10-2", 0, `500 → 1000 of 10,000: buckets 500 to 999 enter`},
		{"gray start mobile/gray-10-2 --reason grow --confirm gray-10-2", 0, `at 1000 of 10,000`},
		{"gray pause mobile/gray-10-2 --reason wait --confirm gray-10-2", 0, `paused`},
		{"gray abort mobile/gray-10-2 --reason stop --confirm gray-10-2", 0, `(?s)aborted, at 0 of 10,000.*v7 on 1/1`},
		{"host propose wapabst9.a.com.cn --reason spare --confirm wapabst9.a.com.cn", 0, `waits for somebody else`},
		{"host approve wapabst9.a.com.cn --reason seen --confirm wapabst9.a.com.cn", 0, `is approved`},
		{"host", 0, `(?m)^wapabst9\.a\.com\.cn +administrator +administrator`},
		{"freeze --reason night --confirm freeze --override rate", 0, `v8 on 1/1`},
		{"apply " + same + " --reason back --confirm apply", 1, `\(frozen\)`},
		{"freeze --end --reason day --confirm unfreeze --override rate", 0, `v9 on 1/1`},
		{"drill corporate/sh --reason weekly --confirm sh --wait 0s --override flap_wait,rate", 0, `(?s)v10 on 1/1.*v11 on 1/1.*drill of corporate/sh took`},
		{"export haproxy corporate --dir " + dir, 0, `corporate\.haproxy\.cfg`},
		{"export ranges mobile --dir " + dir, 0, `mobile-ranges\.csv`},
		{"token create ci viewer --reason pipeline --confirm ci", 0, `^dsp_api_\S+\n$`},
		{"token", 0, `(?m)^(\d+) +ci +viewer`},
		{"token revoke ID --reason gone --confirm ID", 0, `revoked`},
		{"audit --action token_revoke", 0, `token_revoke`},
		{"audit export --action token_revoke", 0, `(?i)actor.*\n.*administrator`},
		{"traffic --since 1h", 0, `no answers in this time|ANSWERS`},
		{"probes", 0, `HOST|probe`},
		{"completion bash", 0, `complete -C .* dispatchctl`},
	} {
		args := strings.Fields(strings.NewReplacer("DRAFT", shown, "ID", shown).Replace(step.args))
		got := ctlWith(t, file, server, streams{}, args...)
		want := regexp.MustCompile(strings.ReplaceAll(step.want, "DRAFT", regexp.QuoteMeta(shown)))
		m := want.FindStringSubmatch(got.out + got.log)
		if got.exit != step.exit || m == nil {
			t.Fatalf("%s: exit %d\n%s%s\nwant %d and %s", strings.Join(args, " "), got.exit, got.out, got.log, step.exit, want)
		}
		if len(m) > 1 {
			shown = m[1]
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "mobile-ranges.csv")); err != nil || !strings.Contains(string(text), "otherwise,device,mobile/otherwise,") {
		t.Errorf("%v: the ranges are\n%s", err, text)
	}
}

// sameShape holds that a recording is what dispatch still answers: what the
// commands read of it stands in the live answer, too.
func sameShape(t *testing.T, recording, live string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", recording))
	if err != nil {
		t.Fatal(err)
	}
	// A replica that is alone has no canary and no sources.
	optional := []string{"canary", "started", "name", "ok", "cluster", "env", "version"}
	has := keys(t, []byte(live))
	for _, key := range keys(t, text) {
		if !slices.Contains(has, key) && !slices.Contains(optional, key) {
			t.Errorf("%s has %q, dispatch no longer does:\n%s", recording, key, live)
		}
	}
}

// keys are the names of all fields in a JSON text.
func keys(t *testing.T, text []byte) (found []string) {
	t.Helper()
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, element := range v {
				walk(element)
			}
		case map[string]any:
			for key, value := range v {
				found = append(found, key)
				walk(value)
			}
		}
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	walk(v)
	return found
}
