package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The rules of a region against a real dispatch that follows a file of instances, in
// the order of a week: looking, mistakes, first rules, a pipeline of its own, a
// second person, rules that go, the switch, a verdict.
func TestARegionOfServices(t *testing.T) {
	server, token := demo(t, "--registry", "file=static:../../examples/inner/registry.yaml", "--inner-region", "cn-hangzhou")
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// rules copies the examples, with edits FILE|FROM|TO; an empty TO of a whole file leaves it out.
	rules := func(name string, edits ...string) {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		all, err := filepath.Glob("../../examples/rules/*.yaml")
		if err != nil || len(all) < 4 {
			t.Fatalf("%d files of rules: %v", len(all), err)
		}
		for _, path := range all {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range edits {
				part := strings.Split(e, "|")
				if part[0]+".yaml" == filepath.Base(path) {
					text = []byte(strings.ReplaceAll(string(text), part[1], part[2]))
				}
			}
			write(name+"/"+filepath.Base(path), string(text))
		}
	}
	rules("first")
	rules("unquoted", `pay-core|"2.10"|2.10`)
	rules("typo", `order-core|"cn-hangzhou"|"cn-hangzhuo"`)
	rules("mismatch", `order-core|"prod"|"test"`)
	rules("short", `pay-ledger.rpc|service: pay-ledger.rpc|service: rpc`)
	rules("pay", `pay-ledger.rpc|weight: 0|weight: 10`, `pay-ledger.rpc|T08|T09`)
	rules("grown", `order-core|weight: 70|weight: 100`, `order-core|weight: 30|weight: 0`, `order-core|T09|T10`)
	rules("less", `order-core|weight: 70|weight: 100`, `order-core|weight: 30|weight: 0`, `order-core|T09|T10`)
	if err := os.Remove(filepath.Join(dir, "less", "order-core-test.yaml")); err != nil {
		t.Fatal(err)
	}
	write("admin", token)

	kept := map[string]string{} // what a step printed and a later one needs
	for _, step := range []struct {
		as, args string
		exit     int
		want     string // in what is printed; its group is kept as the step's last word in capitals
		keep     string
	}{
		{"admin", "services", 0, `(?m)^order-core +\d+/\d+ `, ""},
		{"admin", "services show pay-ledger.rpc", 0, `(?m)^pay-ledger.rpc +production +cn-hangzhou +prod +v5.0.4 +100 +\d+\.\S+:8080, \d+\.\S+:8080, \d+\.\S+:8080$`, ""},
		{"admin", "services show rpc", 1, `write the full name: pay-ledger\.rpc`, ""},
		{"admin", "map", 0, `(?m)^order-core +prod +production +v2\.3\.\d \d+\.\d %.* none: own cluster and region`, ""},
		{"admin", "rules", 0, `nothing was published for cn-hangzhou yet`, ""},
		{"admin", "rules lint DIR/first", 0, `6 files without mistakes, for cn-hangzhou`, ""},
		{"admin", "rules lint DIR/unquoted", 1, `unquoted/pay-core\.yaml:5: strategy\.version: 2\.10 without quotes is a number to YAML`, ""},
		{"admin", "rules lint DIR/typo", 1, `typo/order-core\.yaml:8: selector\.region: no instance has the region cn-hangzhuo \(did you mean cn-hangzhou\?\)`, ""},
		{"admin", "rules lint DIR/mismatch/order-core.yaml", 1, `mismatch/order-core\.yaml:11: strategy\.version: matches 0 instances: .*env prod would match \d+`, ""},
		{"admin", "rules lint DIR/short", 1, `short/pay-ledger\.rpc\.yaml:3: service: no service is named rpc \(write the full name: pay-ledger\.rpc`, ""},
		{"admin", "token create ci-order pipeline --reason rules --confirm ci-order", 0, `^(dsp_api_\S+)\n$`, "CI"},
		{"admin", "token create looker release-engineer --reason rules --confirm looker", 0, `^(dsp_api_\S+)\n$`, "LOOKER"},
		{"LOOKER", "rules apply DIR/first --reason first --confirm cn-hangzhou", 1, `may not [a-z-]+ \(role\)`, ""},
		{"CI", "rules apply DIR/first --reason first --confirm cn-hangzhou", 1, `\(not_your_group\)\n(.*\n)*.*a new group is made by an owner of another`, ""},
		{"admin", "rules apply DIR/first --reason first --confirm cn-shanghai", 1, `"cn-shanghai" is not cn-hangzhou; nothing was changed`, ""},
		{"admin", "rules apply DIR/first --reason first --confirm cn-hangzhou", 0, `rules v1 of cn-hangzhou: 7 changes`, ""},
		{"CI", "rules diff DIR/first", 0, `no difference to v1 of cn-hangzhou`, ""},
		{"CI", "rules apply DIR/first --reason again --confirm cn-hangzhou", 0, `no difference to v1 of cn-hangzhou; nothing was published`, ""},
		{"LOOKER", "map", 0, `(?m)^order-core +prod +production +v2\.3\.1 70\.0 % \(\d/\d\), v2\.3\.0 30\.0 % .* order- \(key\)$`, ""},
		{"LOOKER", "rules export envoy --service order-core --env prod --region cn-hangzhou --dir DIR", 0, `(?s)rds-prod\.yaml\n.*cds\.yaml\n.*note: a condition \(target-load > 80\)`, ""},
		{"LOOKER", "rules export envoy --service order-core --env prod", 0, `(?s)^---\n# .*rds-prod\.yaml\n`, ""},
		{"LOOKER", "rules export envoy --service order-core --env prod --dir DIR/none", 1, `there is no folder .*/none; nothing was written\ntry: mkdir -p .*/none`, ""},
		{"LOOKER", "rules export envoy --region cn-shanghai --dir DIR", 1, `\(other_region\)`, ""},
		{"LOOKER", "rules export envoy --service rpc --dir DIR", 1, `(?s)\(no_rule\).*dispatchctl rules show`, ""},
		{"LOOKER", "rules export istio --dir DIR", exitUsage, `must be one of "envoy"`, ""},
		{"CI", "rules apply DIR/pay --reason grow --confirm cn-hangzhou", 1, `\(not_your_group\)\n  pay-ledger\.rpc: belongs to the group pay- of ci-pay, pay-on-call\n`, ""},
		{"CI", "rules diff DIR/grown", exitDifferent, `(?s)^~ order-core prod  \(key.*--digest ([0-9a-f]{64}) `, "DIGEST"},
		{"admin", "rules approve DIR/grown --digest " + strings.Repeat("0", 64) + " --reason seen", 1, `\(other_digest\)`, ""},
		{"admin", "rules approve DIR/grown --digest DIGEST --reason seen", 0, `order-core: approved by administrator`, ""},
		{"CI", "rules apply DIR/grown --reason grow --base 1 --confirm cn-hangzhou", 0, `rules v2 of cn-hangzhou: 1 changes`, ""},
		{"CI", "rules apply DIR/less --reason old --base 1 --confirm cn-hangzhou", 1, `\(stale_base\)`, ""},
		{"CI", "rules apply DIR/less --reason less --confirm cn-hangzhou", 1, `\(rules_removed\)`, ""},
		{"CI", "rules apply DIR/less --reason less --delete --confirm cn-hangzhou", 0, `rules v3 of cn-hangzhou: 1 changes`, ""},
		{"LOOKER", "rules show", 0, `^rules of cn-hangzhou: v3, .* by ci-order: less\n(.*\n)*order-core +prod +production +cn-hangzhou +v2\.3\.1 100 `, ""},
		{"CI", "rules switch direct --reason burns --confirm cn-hangzhou", 1, `may not [a-z-]+ \(role\)`, ""},
		{"admin", "rules switch direct --reason burns --confirm cn-shanghai", 1, `\(confirm_mismatch\)`, ""},
		{"admin", "rules switch direct --reason burns --confirm cn-hangzhou", 0, `rules v4: direct`, ""},
		{"admin", "rules switch direct --reason burns --confirm cn-hangzhou", 0, `it is so already`, ""},
		{"LOOKER", "map", 0, `the kill switch is thrown`, ""},
		{"CI", "rules diff DIR/less", 0, `no difference to v4`, ""},
		{"admin", "rules switch rules --reason over --confirm cn-hangzhou", 0, `rules v5: by rules`, ""},
		{"LOOKER", "gray inner", 0, `no version grows`, ""},
		{"CI", "gray inner start order-core/prod v2.3.0 --reason grow --confirm order-core", 1, `(?s)\(bad_gray\).*--without-fallback`, ""},
		{"CI", "gray inner start order-core/prod v2.9 --without-fallback --reason grow --confirm order-core", 1, `no instance has the version v2\.9`, ""},
		{"CI", "gray inner start order-core/prod v2.3.0 --without-fallback --reason grow --confirm pay-core", 1, `is not order-core; nothing was changed`, ""},
		{"CI", "gray inner start order-core/prod v2.3.0 --without-fallback --reason grow --confirm order-core", 0,
			`(?s)^rules v6; callers follow within 2 s\ngray     order-core/prod in cn-hangzhou: v2\.3\.0, where v2\.3\.1 was\nshare    5 % since .* by ci-order\n.*callers  v2\.3\.0 5\.0 %, 3/3 serve\n.*inner step order-core/prod takes 20 %`, ""},
		{"CI", "gray inner start order-core/prod v2.3.0 --without-fallback --reason grow --confirm order-core", 1, `\(gray_running\)`, ""},
		{"LOOKER", "gray inner step order-core/prod --reason grow --confirm order-core", 1, `\(not_your_group\)`, ""},
		{"CI", "gray inner step order-core/prod --reason grow --confirm order-core", 0, `(?s)rules v7; .*share    20 %`, ""},
		{"CI", "gray inner step order-core/prod --to 7 --reason grow --confirm order-core", 1, `(?s)\(bad_gray\).*7 % is none of the steps \[5 20 50 100\]`, ""},
		{"CI", "gray inner finish order-core/prod", 1, `(?s)takes 20 % of the calls to order-core/prod, not all.*dispatchctl gray inner step order-core/prod`, ""},
		{"CI", "gray inner step order-core/prod --to 100 --reason grow --confirm order-core", 0, `(?s)rules v8; .*gray inner finish order-core/prod prints`, ""},
		{"LOOKER", "gray inner", 0, `(?m)^order-core +prod +v2\.3\.0 +v2\.3\.1 +100 % +4/4 `, ""},
		{"LOOKER", "gray inner show order-core/prod -o json", 0, `"share":100`, ""},
		{"LOOKER", "gray inner finish order-core/prod", 0, `(?s)^service: order-core\n.*strategy: \{version: v2\.3\.0, weight: 100\}\nfallback: \{version: v2\.3\.1, weight: 0\}`, ""},
		{"LOOKER", "map", 0, `(?m)^order-core +prod +production +v2\.3\.0 100\.0 % .*, gray v2\.3\.0 100 %`, ""},
		{"LOOKER", "rules", 0, `gray order-core/prod: v2\.3\.0 takes 100 % meanwhile`, ""},
		{"CI", "rules diff DIR/first", exitDifferent, `warning: order-core/prod: v2\.3\.0 takes 100 %.*\(end it first: dispatchctl gray inner abort order-core/prod`, ""},
		{"CI", "rules apply DIR/first --reason back --confirm cn-hangzhou", 1, `\(gray_running\)`, ""},
		{"LOOKER", "gray inner abort order-core/prod --reason slow --confirm order", 1, `\(confirm_mismatch\)`, ""},
		{"LOOKER", "gray inner abort order-core/prod --reason slow --confirm order-core", 0, `rules v9: order-core/prod as Git has it`, ""},
		{"LOOKER", "gray inner abort order-core/prod --reason slow --confirm order-core", 0, `no version grows there; nothing was published`, ""},
		{"LOOKER", "gray inner step order-core/prod --reason grow --confirm order-core", 1, `\(no_gray\)`, ""},
		{"admin", "audit --action rules_gray_abort", 0, `looker +rules_gray_abort +order-core/prod `, ""},
		{"CI", "services isolate order-core order-core-prod-v2.3.1-1 --reason leaks --confirm order-core-prod-v2.3.1-1", 1, `may not [a-z-]+ \(role\)`, ""},
		{"admin", "services isolate order-core order-core-prod-v2.3.1-1 --reason leaks --confirm order-core-prod-v2.3.1-1", 0, `done: isolate order-core at `, ""},
		{"admin", "services queue", 0, `(?m)^isolated +order-core +order-core-prod-v2\.3\.1-1 .* administrator: leaks$`, ""},
		{"admin", "services lift order-core order-core-prod-v2.3.1-1 --reason fixed --confirm order-core-prod-v2.3.1-1", 0, `done: lift order-core at `, ""},
		{"admin", "explain call nobody", 1, `\(unknown_call\)`, ""},
		{"admin", "audit --action rules_apply", 0, `(?s)ci-order.*administrator`, ""},
		{"admin", "audit --action rules_refused", 0, `looker`, ""},
	} {
		args := step.args
		for word, text := range kept {
			args = strings.ReplaceAll(args, word, text)
		}
		args = strings.ReplaceAll(args, "DIR", dir)
		got := ctlWith(t, filepath.Join(dir, step.as), server, streams{}, strings.Fields(args)...)
		m := regexp.MustCompile(step.want).FindStringSubmatch(got.out + got.log)
		if got.exit != step.exit || m == nil {
			t.Fatalf("%s: exit %d\n%s%s\nwant %d and %s", step.args, got.exit, got.out, got.log, step.exit, step.want)
		}
		switch step.keep {
		case "":
		case "DIGEST":
			kept[step.keep] = m[1]
		default:
			write(step.keep, m[1])
		}
	}
}

// The commands of the manual's Growing a version, with the rules of the demo.
func TestTheManualsVersionGrows(t *testing.T) {
	server, token := demo(t, "--registry", "file=static:../../examples/inner/registry.yaml", "--inner-region", "cn-hangzhou")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/inner-layer.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "\n## Growing a version\n")
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(part)
	if block == nil {
		t.Fatal("docs/inner-layer.md has no commands in Growing a version")
	}
	apply := []string{"rules", "apply", "../../examples/rules", "--reason", "first rules", "--confirm", "cn-hangzhou"}
	if got := ctlWith(t, file, server, streams{}, apply...); got.exit != 0 {
		t.Fatalf("exit %d\n%s%s", got.exit, got.out, got.log)
	}
	reason := regexp.MustCompile(`--reason "[^"]*"`)
	want := []string{"share    5 %", "share    5 %", "share    20 %", "share    100 %", "strategy: {version: v1.5.0, weight: 100}", "as Git has it"}
	lines := strings.Split(strings.TrimSpace(block[1]), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d commands, %d are known:\n%s", len(lines), len(want), block[1])
	}
	for i, line := range lines {
		command, _, _ := strings.Cut(line, "#")
		command = reason.ReplaceAllString(command, "--reason why --confirm risk-engine")
		if got := ctlWith(t, file, server, streams{}, strings.Fields(command)[1:]...); got.exit != 0 || !strings.Contains(got.out, want[i]) {
			t.Fatalf("%s: exit %d\n%s%s\nwant %s", line, got.exit, got.out, got.log, want[i])
		}
	}
}
