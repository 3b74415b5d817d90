package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// inner answers each path of the API with a file of testdata/inner or with a text
// that begins with {, and notes what it was asked.
func inner(t *testing.T, answers map[string]string) (server string, asked *notes[question]) {
	t.Helper()
	asked = new(notes[question])
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.take(question{r.Method + " " + r.URL.Path, strings.TrimSpace(string(body)), r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization")})
		answer, ok := answers[r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v1")]
		if !ok {
			t.Errorf("asked %s %s", r.Method, r.URL)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if answer == "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if !strings.HasPrefix(answer, "{") {
			text, err := os.ReadFile(filepath.Join("testdata/inner", answer))
			if err != nil {
				t.Error(err)
			}
			answer = string(text)
		}
		var problem struct{ Status int }
		if err := json.Unmarshal([]byte(answer), &problem); err != nil {
			t.Errorf("%v in %s", err, answer)
		}
		w.WriteHeader(max(problem.Status, http.StatusOK))
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// printedIs compares what a command printed.
func printedIs(t *testing.T, got, want printed) {
	t.Helper()
	if got != want {
		t.Errorf("exit %d\n%s-- log:\n%s\nwant %d\n%s-- log:\n%s", got.exit, got.out, got.log, want.exit, want.out, want.log)
	}
}

const nacosAway = "warning: registry nacos is away since 1m; what it knew stays: connection refused\n"

func TestServices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args string
		want printed
	}{
		"all": {"services", printed{0, `SERVICE         SERVING  ENV         CLUSTER             VERSION
order-core      2/4      prod, test  production, shared  v2.3.0, v2.3.1, v2.4.0
pay-ledger.rpc  1/1      prod        production          v5
`, nacosAway + "2 entries wait or cannot be used; dispatchctl services queue\n"}},
		// A06: these columns and no others.
		"A06 one": {"services show order-core", printed{0, `service_name  cluster     region       env   version  weight  endpoints
order-core    production  cn-hangzhou  prod  v2.3.0   0       [2001:db8::1]:8080
order-core    production  cn-hangzhou  prod  v2.3.1   100     10.0.0.1:8080, 10.0.0.2:8080
order-core    shared      cn-hangzhou  test  v2.4.0   100     10.0.9.1:8080
`, nacosAway + "10.0.0.1:8080 is at 91 % CPU: over 85 % callers lower its part with each report\n10.0.9.1:8080 takes 0 % of its weight: isolated\n"}},
		"A06 one as JSON": {"services show pay-ledger.rpc -o json", printed{0,
			`[{"service_name":"pay-ledger.rpc","cluster":"production","region":"cn-hangzhou","env":"prod","version":"v5","weight":100,"endpoints":["10.0.1.1:9000"]}]` + "\n", nacosAway}},
		"B13 a short name": {"services show rpc", printed{1, "",
			nacosAway + "dispatchctl: no service of cn-hangzhou is named rpc\ntry: write the full name: pay-ledger.rpc\n"}},
		"nobody": {"services show x", printed{1, "", nacosAway + "dispatchctl: no service of cn-hangzhou is named x\ntry: dispatchctl services lists them\n"}},
		"the queue": {"services queue", printed{0, `STATE     SERVICE     ID            ADDRESS        STARTED               SINCE                 WHY
waits     order-core  order-core-9  10.0.0.9:8080  2026-11-30 08:00:00Z  2026-11-30 09:00:00Z  consul: no instance reports that start
unusable  crm         crm-1         10.0.2.1:80    unknown               2026-11-30 09:30:00Z  nacos: env: is required
isolated  order-core  order-core-4  10.0.9.1:8080  unknown               2026-11-30 09:45:00Z  on-call: leaks memory
`, nacosAway}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := inner(t, map[string]string{"GET /directory": "directory.json"})
			printedIs(t, ctl(t, server, streams{}, strings.Fields(c.args)...), c.want)
		})
	}
}

func TestEndpointsAreInOrder(t *testing.T) {
	t.Parallel()
	all := []string{"b.bank.example:80", "10.0.0.10:80", "[2001:db8::1]:80", "10.0.0.9:8080", "10.0.0.9:80", "a.bank.example:80"}
	slices.SortFunc(all, compareAddresses)
	if got := strings.Join(all, " "); got != "10.0.0.9:80 10.0.0.9:8080 10.0.0.10:80 [2001:db8::1]:80 a.bank.example:80 b.bank.example:80" {
		t.Errorf("in order %s", got)
	}
}

// What a person decides is about the process that they saw.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args, body string
		exit       int
	}{
		"an entry that waits": {"services accept order-core order-core-9 --reason known --confirm order-core-9",
			`{"service":"order-core","id":"order-core-9","address":"10.0.0.9:8080","started":"2026-11-30T08:00:00Z","do":"accept","reason":"known"}`, 0},
		"refusing it": {"services refuse order-core order-core-9 --reason stranger --confirm order-core-9",
			`{"service":"order-core","id":"order-core-9","address":"10.0.0.9:8080","started":"2026-11-30T08:00:00Z","do":"refuse","reason":"stranger"}`, 0},
		"an instance whose start nobody knows": {"services isolate order-core order-core-1 --reason leaks --confirm order-core-1",
			`{"service":"order-core","id":"order-core-1","address":"10.0.0.2:8080","do":"isolate","reason":"leaks"}`, 0},
		"lifting": {"services lift order-core order-core-4 --reason fixed --confirm order-core-4",
			`{"service":"order-core","id":"order-core-4","address":"10.0.9.1:8080","do":"lift","reason":"fixed"}`, 0},
		"the id of another service": {"services isolate pay-ledger.rpc order-core-1 --reason leaks --confirm order-core-1", "", exitFailed},
		"nobody confirmed":          {"services isolate order-core order-core-1 --reason leaks", "", exitUsage},
		"another confirmed":         {"services isolate order-core order-core-1 --reason leaks --confirm order-core-2", "", exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, asked := inner(t, map[string]string{"GET /directory": "directory.json", "POST /directory/verdicts": ""})
			got := ctl(t, server, streams{}, strings.Fields(c.args)...)
			all := asked.all()
			last := all[len(all)-1]
			if got.exit != c.exit || (len(all) == 2) != (c.body != "") {
				t.Fatalf("exit %d, asked %+v\n%s%s", got.exit, all, got.out, got.log)
			}
			if c.body != "" && (last.body != c.body || last.key == "" || !strings.HasPrefix(got.out, "done: ")) {
				t.Errorf("asked %+v\n%s", last, got.out)
			}
		})
	}
}

func TestTheMap(t *testing.T) {
	t.Parallel()
	server, _ := inner(t, map[string]string{"GET /directory/map": "map.json"})
	printedIs(t, ctl(t, server, streams{}, "map"), printed{0, `region cn-hangzhou, rules v7
SERVICE         ENV   CLUSTER     VERSIONS                                  RULE                                GROUP         PROBLEM
order-core      prod  production  v2.3.1 70.0 % (2/2), v2.3.0 30.0 % (1/1)  of 2026-11-30 09:00:00Z, shadows 1  order- (key)
pay-ledger.rpc  prod  production  v5 100.0 % (0/1)                          none: own cluster and region                      nobody serves

CALLER   ENV   CALLS       LAST
gateway  prod  order-core  2026-11-30 10:00:00Z
`, "warning: registry nacos is away; what it knew stays: connection refused\n"})
}

func TestExplainACall(t *testing.T) {
	t.Parallel()
	server, asked := inner(t, map[string]string{"GET /calls/c-1": "call.json"})
	printedIs(t, ctl(t, server, streams{}, "explain", "call", "c-1"), printed{0, `call      c-1 at 2026-11-30 10:00:00Z, by gateway-1
service   order-core, env t2, then prod
reason    rule
chosen    10.0.0.1:8080
rule      order-core/prod@2026-11-30T09:00:00Z
standing  reproduced
step 1    production, cn-hangzhou, t2, any version: of 4 known are left: cluster 3, region 3, env 0, version 0
step 2    production, cn-hangzhou, prod, v2.3.1 or v2.3.0: of 4 known are left: cluster 3, region 3, env 3, version 3
shadowed  order-core/prod@2026-11-29T09:00:00Z
version   v2.3.1: weight 70, 49.0 % of the calls
version   v2.3.0: weight 30, 51.0 % of the calls
shift     target-load > 80: 3 tenths of the main version's part go to the fallback besides its own; the load was 93.2 % when that last changed
draw      18446744073709551615
candidate 10.0.0.2:8080: weight 100 (default), 58.8 % of the version's calls
candidate 10.0.0.1:8080: weight 100, 70 % of it: hot, 41.2 % of the version's calls  ← chosen
`, ""})
	if q := asked.all(); len(q) != 1 || q[0].key != "" {
		t.Errorf("asked %+v", q)
	}
	expired, _ := inner(t, map[string]string{"GET /calls/a/b": `{"record":{"id":"a/b","draw":"1","reason":"nobody","counts":{"cluster":1}},"standing":"record only: table expired"}`})
	refused, _ := inner(t, map[string]string{"GET /calls/r": `{"record":{"id":"r","draw":"0","reason":"breaker"},"standing":"record only: the breaker was open"}`})
	if got := ctl(t, refused, streams{}, "explain", "call", "r"); got.exit != 0 || !strings.Contains(got.out, "reason    breaker\nchosen    nobody\n") || !strings.HasSuffix(got.out, "standing  record only: the breaker was open\n") {
		t.Errorf("exit %d\n%s%s", got.exit, got.out, got.log)
	}
	panicked, _ := inner(t, map[string]string{"GET /calls/p": `{"record":{"id":"p","draw":"0","reason":"home","chosen":"10.0.0.1:80","outcome":"silent"},"standing":"reproduced",
		"explanation":{"chosen":"10.0.0.1:80","panic":true,"candidates":[{"address":"10.0.0.1:80","weight":100,"stated":true,"scale":{"thousandths":0,"why":"ejected"},"score":1}]}}`})
	if got := ctl(t, panicked, streams{}, "explain", "call", "p"); got.exit != 0 || !strings.Contains(got.out, "chosen    10.0.0.1:80\nended     silent\n") ||
		!strings.Contains(got.out, "panic     the caller had put out every match") || !strings.Contains(got.out, "weight 100, 0 % of it: ejected, 100.0 % of the version's calls  ← chosen") {
		t.Errorf("exit %d\n%s%s", got.exit, got.out, got.log)
	}
	if got := ctl(t, expired, streams{}, "explain", "call", "a/b"); got.exit != 0 || !strings.Contains(got.out, "chosen    nobody\n") ||
		!strings.HasSuffix(got.out, "left      cluster 1, region 0, env 0, version 0\nstanding  record only: table expired\n") {
		t.Errorf("exit %d\n%s%s", got.exit, got.out, got.log)
	}
}

// The old form of explain is the one without a verb.
func TestExplainARequest(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"explain --app mobile --device d-1", "explain request --app mobile --device d-1"} {
		server, asked := inner(t, map[string]string{"POST /explain": `{"text":"because"}`})
		printedIs(t, ctl(t, server, streams{}, strings.Fields(args)...), printed{0, "because\n", ""})
		if q := asked.all(); len(q) != 1 || q[0].body != `{"app":"mobile","device_id":"d-1"}` {
			t.Errorf("%s asked %+v", args, q)
		}
	}
}

// rulesDirOf is a folder of rules on disk.
func rulesDirOf(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	shownChanges = `~ order-core prod  (key: a second person approves)
    - production cn-hangzhou, v2.3.1 70 : v2.3.0 30, of 2026-11-30T09:00:00Z in order-core.yaml
    + production cn-hangzhou, v2.3.1 100, of 2026-11-30T10:00:00Z in order-core.yaml
- crm prod
    - production cn-hangzhou, v1 100, of 2026-11-30T09:00:00Z in crm.yaml
~ group pay-
    + owners ci-pay
1 would go: that takes rules apply --delete
`
	needsApproval = "order-core: a second person must approve\n  dispatchctl rules approve DIR --digest d1 --reason REASON\n"
	noChange      = `{"region":"cn-hangzhou","base":7,"changes":[],"digest":"d0"}`
)

func TestRules(t *testing.T) {
	t.Parallel()
	lint := map[string]string{"POST /rules/lint": "check.json"}
	const warning = "warning: DIR/order-core.yaml: updated: counts for nobody\n"
	for name, c := range map[string]struct {
		answers map[string]string
		args    string
		want    printed
		asks    string // the body of the last question
	}{
		"show": {map[string]string{"GET /rules": "rules.json"}, "rules", printed{0, `rules of cn-hangzhou: v7, 2026-11-30 09:10:00Z by ci-order: 70 to v2.3.1
the kill switch is thrown: rules, weights and versions do not count; dispatchctl rules switch rules takes it back
SERVICE     ENV   CLUSTER     REGION       STRATEGY    FALLBACK                              UPDATED               FILE
order-core  prod  production  cn-hangzhou  v2.3.1 70   v2.3.0 30, more while target-load > 80  2026-11-30 09:00:00Z  order-core.yaml
order-core  prod  production  cn-hangzhou  v2.3.0 100                                        2026-11-29 09:00:00Z  old.yaml         shadowed

GROUP   OWNERS    KEY SERVICES
order-  ci-order  order-core
`, ""}, ""},
		"show nothing": {map[string]string{"GET /rules": `{"region":"cn-hangzhou","number":0,"set":{"rules":[]}}`}, "rules show",
			printed{0, "nothing was published for cn-hangzhou yet; dispatchctl rules apply DIR\n", ""}, ""},
		"lint a folder": {lint, "rules lint DIR", printed{0, "3 files without mistakes, for cn-hangzhou\n3 changes, on top of v7; dispatchctl rules diff shows them\n" + needsApproval, warning},
			`{"files":[{"name":"groups.yaml","text":"groups.yaml"},{"name":"order-core.yaml","text":"order-core.yaml"},{"name":"pay/pay-core.yaml","text":"pay/pay-core.yaml"}],"delete":true}`},
		"lint some files": {lint, "rules lint DIR/pay/pay-core.yaml DIR/groups.yaml", printed{0, "2 files without mistakes, for cn-hangzhou\n", warning},
			`{"files":[{"name":"pay/pay-core.yaml","text":"pay/pay-core.yaml"},{"name":"groups.yaml","text":"groups.yaml"}],"delete":true}`},
		"A22 mistakes": {map[string]string{"POST /rules/lint": "invalid.json"}, "rules lint DIR", printed{1,
			"DIR/order-core.yaml:4: strategy.version: 2.10 without quotes is a number to YAML (write \"2.10\")\nDIR/pay/pay-core.yaml:2: updated: is required and missing\n7 more problems are not shown\n",
			"dispatchctl: the rules cannot be used (invalid_rules): 3 problems\n"}, ""},
		"A22 mistakes as JSON": {map[string]string{"POST /rules/lint": `{"status":422,"code":"invalid_rules","detail":"wrong","problems":[{"file":"a.yaml","line":1,"detail":"x"}]}`}, "rules lint DIR -o json",
			printed{1, `{"problems":[{"file":"DIR/a.yaml","line":1,"detail":"x"}]}` + "\n", "dispatchctl: wrong (invalid_rules): 1 problem\n"}, ""},
		"diff":            {lint, "rules diff DIR", printed{exitDifferent, shownChanges + needsApproval, warning}, ""},
		"diff of nothing": {map[string]string{"POST /rules/lint": noChange}, "rules diff DIR", printed{0, "no difference to v7 of cn-hangzhou\n", ""}, ""},
		"apply": {map[string]string{"POST /rules/lint": "check.json", "POST /rules": `{"number":8,"changes":[{},{},{}],"warnings":[{"detail":"one decided"}]}`},
			"rules apply DIR --reason grow --delete --confirm cn-hangzhou", printed{0, "rules v8 of cn-hangzhou: 3 changes; callers follow them within 2 s\n", warning + shownChanges + needsApproval + "warning: one decided\n"},
			`{"files":[{"name":"groups.yaml","text":"groups.yaml"},{"name":"order-core.yaml","text":"order-core.yaml"},{"name":"pay/pay-core.yaml","text":"pay/pay-core.yaml"}],"base":7,"delete":true,"reason":"grow"}`},
		"apply nothing": {map[string]string{"POST /rules/lint": noChange}, "rules apply DIR --reason grow --confirm cn-hangzhou",
			printed{0, "no difference to v7 of cn-hangzhou; nothing was published\n", ""}, ""},
		"apply on another base": {map[string]string{"POST /rules/lint": `{"status":409,"code":"stale_base","detail":"the rules are at release 8, the change was made on 7"}`},
			"rules apply DIR --reason grow --base 7 --confirm cn-hangzhou", printed{1, "", "dispatchctl: the rules are at release 8, the change was made on 7 (stale_base)\n"},
			`{"files":[{"name":"groups.yaml","text":"groups.yaml"},{"name":"order-core.yaml","text":"order-core.yaml"},{"name":"pay/pay-core.yaml","text":"pay/pay-core.yaml"}],"base":7,"delete":true}`},
		"A33 apply without approval": {map[string]string{"POST /rules/lint": "check.json", "POST /rules": `{"status":403,"code":"approval_required","detail":"the rules of order-core take a second person"}`},
			"rules apply DIR --reason grow --confirm cn-hangzhou", printed{1, "", warning + shownChanges + needsApproval + "dispatchctl: the rules of order-core take a second person (approval_required)\n"}, ""},
		"A31 apply what belongs to others": {map[string]string{"POST /rules/lint": "check.json",
			"POST /rules": `{"status":403,"code":"not_your_group","detail":"ci may not change what belongs to others","problems":[{"path":"order-core","detail":"belongs to the group order- of ci-order"}]}`},
			"rules apply DIR --reason grow --confirm cn-hangzhou", printed{1, "", warning + shownChanges + needsApproval +
				"dispatchctl: ci may not change what belongs to others (not_your_group)\n  order-core: belongs to the group order- of ci-order\n"}, ""},
		"apply to another region's node": {lint, "rules apply DIR --reason grow --confirm cn-shanghai",
			printed{1, "", warning + shownChanges + needsApproval + "dispatchctl: \"cn-shanghai\" is not cn-hangzhou; nothing was changed\n"}, ""},
		"approve": {map[string]string{"POST /rules/approve": `{"region":"cn-hangzhou","base":7,"changes":[{"service":"order-core","env":"prod","kind":"added","after":"x","key":true}],"needs":["order-core"],"approved":"li","digest":"d1"}`},
			"rules approve DIR --digest d1 --reason seen", printed{0, "+ order-core prod  (key: a second person approves)\n    + x\norder-core: approved by li\nnow somebody else publishes it: dispatchctl rules apply DIR\n", ""},
			`{"files":[{"name":"groups.yaml","text":"groups.yaml"},{"name":"order-core.yaml","text":"order-core.yaml"},{"name":"pay/pay-core.yaml","text":"pay/pay-core.yaml"}],"delete":true,"reason":"seen","digest":"d1"}`},
		"throw the switch": {map[string]string{"POST /rules/switch": `{"number":9,"changes":[{}]}`}, "rules switch direct --reason burns --confirm prod/cn-hangzhou",
			printed{0, "rules v9: direct; callers follow within 2 s\n", ""}, `{"direct":true,"reason":"burns","confirm":"prod/cn-hangzhou"}`},
		"take it back": {map[string]string{"POST /rules/switch": `{"number":0,"changes":[]}`}, "rules switch rules --reason over --confirm cn-hangzhou",
			printed{0, "it is so already; nothing was published\n", ""}, `{"direct":false,"reason":"over","confirm":"cn-hangzhou"}`},
		"nobody confirms the switch": {nil, "rules switch direct --reason burns", printed{exitUsage, "", "dispatchctl: not confirmed; nothing was changed\ntry: --confirm REGION, where nobody can be asked\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := rulesDirOf(t, "groups.yaml", "order-core.yaml", "pay/pay-core.yaml", "README.md", ".git/x.yaml", ".hidden.yaml")
			server, asked := inner(t, c.answers)
			got := ctl(t, server, streams{}, strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...)
			got.out, got.log = strings.ReplaceAll(got.out, dir, "DIR"), strings.ReplaceAll(got.log, dir, "DIR")
			got.out, c.want.out = strings.Join(strings.Fields(got.out), " "), strings.Join(strings.Fields(c.want.out), " ")
			printedIs(t, got, c.want)
			if all := asked.all(); c.asks != "" && (len(all) == 0 || all[len(all)-1].body != c.asks) {
				t.Errorf("asked %+v\nwant %s", all, c.asks)
			}
			for _, q := range asked.all() {
				if writes := !strings.HasSuffix(q.line, "/lint") && strings.HasPrefix(q.line, "POST"); (q.key != "") != writes {
					t.Errorf("%s has the key %q", q.line, q.key)
				}
			}
		})
	}
}

// At a terminal the server says what must be typed: it knows the environment.
func TestTheSwitchIsConfirmedByRegionAndEnvironment(t *testing.T) {
	t.Parallel()
	var bodies notes[string]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"grays":[`+grayAt20+`]}`)
			return
		}
		bodies.take(strings.TrimSpace(string(body)))
		if strings.Contains(string(body), `"confirm":""`) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"code":"confirm_mismatch","detail":"no","data":{"confirm":"prod/cn-hangzhou"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"number":9}`)
	}))
	t.Cleanup(s.Close)
	got := ctl(t, s.URL, streams{asks: true, in: strings.NewReader("prod/cn-hangzhou\n")}, "rules", "switch", "direct", "--reason", "burns")
	if got.exit != 0 || !strings.Contains(got.log, "type prod/cn-hangzhou to do it: ") || !strings.Contains(got.log, "warning: 2.11 grows by pay-core/prod and takes 20 %; while the switch is thrown") {
		t.Errorf("exit %d\n%s%s", got.exit, got.out, got.log)
	}
	want := []string{`{"direct":true,"reason":"burns","confirm":""}`, `{"direct":true,"reason":"burns","confirm":"prod/cn-hangzhou"}`}
	if all := bodies.all(); !reflect.DeepEqual(all, want) {
		t.Errorf("asked %q", all)
	}
	got = ctl(t, s.URL, streams{asks: true, in: strings.NewReader("cn-hangzhou\n")}, "rules", "switch", "direct", "--reason", "burns")
	if got.exit != exitFailed || len(bodies.all()) != 3 {
		t.Errorf("the region alone: exit %d, asked %q", got.exit, bodies.all())
	}
}

func TestCommandLinesOfRulesThatAskNothing(t *testing.T) {
	t.Parallel()
	server, asked := inner(t, nil)
	empty := rulesDirOf(t, "README.md", ".git/a.yaml")
	full := rulesDirOf(t, "a.yaml")
	for args, want := range map[string]string{
		"rules lint":                               "expected \"<dir|file>",
		"rules lint " + empty:                      "there is no file .yaml in",
		"rules lint " + full + "/none.yaml":        "read rules",
		"rules lint " + full + " " + empty:         "is a directory",
		"rules diff " + full + "/a.yaml":           "rules diff --help",
		"rules diff " + full + "/none":             "rules diff --help",
		"rules apply " + full:                      "--reason",
		"rules approve " + full + " --reason seen": "--digest",
		"rules switch off --reason why":            `"direct"`,
		"services show":                            "<name>",
		"services accept order-core x":             "--reason",
		"explain call":                             "<id>",
		"map x":                                    "unexpected argument x",
		"token create ci root --reason why":        `"pipeline"`,
	} {
		got := ctl(t, server, streams{}, strings.Fields(args)...)
		if got.exit != exitUsage || got.out != "" || !strings.Contains(got.log, want) {
			t.Errorf("%q: exit %d\n%s%s\nwant %q", args, got.exit, got.out, got.log, want)
		}
	}
	if questions := asked.all(); len(questions) > 0 {
		t.Errorf("asked %v", questions)
	}
}

// What registries and people wrote cannot command the terminal.
func TestInnerAnswersDoNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	const evil = `\u001b[2J\u202e\r`
	dir := rulesDirOf(t, "a.yaml")
	server, _ := inner(t, map[string]string{
		"GET /directory":     `{"region":"` + evil + `","registries":[{"name":"` + evil + `","problem":"` + evil + `"}],"services":[{"name":"a","instances":[{"id":"` + evil + `","address":"` + evil + `","version":"` + evil + `","scale":{"why":"` + evil + `"}}]}],"queue":[{"id":"` + evil + `","why":"` + evil + `"}]}`,
		"GET /directory/map": `{"region":"` + evil + `","partial":{"a":"` + evil + `"},"cells":[{"service":"` + evil + `","problem":"` + evil + `"}],"calls":[{"from":"` + evil + `"}]}`,
		"GET /rules":         `{"region":"` + evil + `","number":1,"reason":"` + evil + `","set":{"rules":[{"file":"` + evil + `"}]}}`,
		"GET /calls/x":       `{"record":{"id":"` + evil + `","draw":"1"},"explanation":{"problem":"` + evil + `"}}`,
		"POST /rules/lint":   `{"region":"` + evil + `","changes":[{"service":"` + evil + `","kind":"added","after":"` + evil + `"}],"warnings":[{"file":"` + evil + `","detail":"` + evil + `"}]}`,
	})
	for _, args := range []string{"services", "services show a", "services show b", "services queue", "map", "rules", "explain call x", "rules lint " + dir, "rules diff " + dir,
		"rules apply " + dir + " --reason why", "services isolate a b --reason why"} {
		got := ctl(t, server, streams{}, strings.Fields(args)...)
		if strings.ContainsAny(got.out+got.log, "\x1b\u202e\r") || !strings.Contains(got.out+got.log, "·[2J·") {
			t.Errorf("%s prints\n%q", args, got.out+got.log)
		}
	}
}
