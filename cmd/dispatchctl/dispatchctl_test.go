package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// secret is the token of all tests; it may show nowhere.
const secret = "dsp_adm_hunter2hunter2hunter2"

// printed is what a command left behind.
type printed struct {
	exit     int
	out, log string
}

// ctl runs a command line against a server.
func ctl(t *testing.T, server string, s streams, args ...string) printed {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return ctlWith(t, file, server, s, args...)
}

// ctlWith is ctl with the token of a file.
func ctlWith(t *testing.T, tokenFile, server string, s streams, args ...string) printed {
	t.Helper()
	var out, log bytes.Buffer
	s.out, s.log = &out, &log
	exit := run(t.Context(), append([]string{"--server", server, "--token-file", tokenFile}, args...), s)
	if strings.Contains(out.String()+log.String(), secret) {
		t.Errorf("%q shows the token:\n%s%s", args, out.String(), log.String())
	}
	return printed{exit, out.String(), log.String()}
}

// question is what a server was asked.
type question struct{ line, body, key, token string }

// notes are what handlers of a server saw, for its test to read.
type notes[T any] struct {
	mu    sync.Mutex
	taken []T
}

func (n *notes[T]) take(note T) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken = append(n.taken, note)
	return len(n.taken)
}

func (n *notes[T]) all() []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.taken)
}

// recorded answers everything with what a real dispatch answered once, and notes what it was asked.
func recorded(t *testing.T, file string) (server string, asked *notes[question]) {
	t.Helper()
	answer, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var problem struct{ Status int }
	if err := json.Unmarshal(answer, &problem); err != nil {
		t.Fatal(err)
	}
	asked = new(notes[question])
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.take(question{r.Method + " " + r.URL.String(), strings.TrimSpace(string(body)), r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization")})
		w.WriteHeader(max(problem.Status, http.StatusOK))
		_, _ = w.Write(answer)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func TestCommandsAskAndPrint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer, args, asks, body string
		want                     printed
	}{
		"a swap that all serve": {answer: "done.json", args: "swap mobile/sh sh-spare --from sh-main --expect sh-main --reason burns --confirm sh",
			asks: "POST /api/v1/emergency",
			body: `{"action":"swap","reason":"burns","confirm":"sh","targets":[{"app":"mobile","region":"sh","expect":"sh-main","from":"sh-main","to":"sh-spare"}]}`,
			want: printed{0, "v2 on 2/2 after 0.012 s\n", ""}},
		"a region that somebody does not turn off yet": {answer: "lagging.json", args: "region mobile/hf off --expect active --reason flood --confirm hf",
			asks: "POST /api/v1/emergency",
			body: `{"action":"region_state","reason":"flood","confirm":"hf","targets":[{"app":"mobile","region":"hf","expect":"active","state":"off"}]}`,
			want: printed{3, "v8 on 1/2\n  hf-1 serves no release: refused: host_outside_suffixes: app corporate: a golden request got the host \"corp-hf.bank.example\"\n    try: the allowed suffixes are set at start only: --allowed-suffixes\n", ""}},
		"a swap that is refused": {answer: "mismatch.json", args: "swap mobile/sh sh-spare --from sh-main --expect sh-main --reason burns --confirm sh",
			asks: "POST /api/v1/emergency",
			body: `{"action":"swap","reason":"burns","confirm":"sh","targets":[{"app":"mobile","region":"sh","expect":"sh-main","from":"sh-main","to":"sh-spare"}]}`,
			want: printed{1, "", "dispatchctl: the serving endpoints of sh are now: sh-spare (expect_mismatch)\n  targets[0]: mobile/sh: the serving endpoints of sh are now: sh-spare (look again, then repeat with the current value)\ntry: look again, then repeat with the current value\n"}},
		"mistakes that the server finds": {answer: "bad-request.json", args: "region mobile/sh off --expect active --reason why --confirm sh",
			asks: "POST /api/v1/emergency",
			body: `{"action":"region_state","reason":"why","confirm":"sh","targets":[{"app":"mobile","region":"sh","expect":"active","state":"off"}]}`,
			want: printed{1, "", "dispatchctl: validation failed (bad_request)\n  reason: expected length >= 3\n  targets[0].state: expected value to be one of \"active, draining, off, standby, open, frozen\"\ntry: GET /api/v1/openapi.json lists all paths and what they take\n"}},
		"relive with warnings": {answer: "warnings.json", args: "relive 1 --reason back --confirm 1",
			asks: "POST /api/v1/releases/1/relive", body: `{"reason":"back","confirm":"release 1"}`,
			want: printed{0, "v7 on 2/2 after 0.029 s\n", "warning: apps[0].origins[2].geoip: this replica has no city database, so this origin never answers\nwarning: apps[0].policies[2].when.asn: this replica has no ASN database, so this never holds\nwarning: release 6, which only hf-1 served, is superseded (whoever made it publishes it again on top of this one)\n"}},
		"adopt": {answer: "done.json", args: "releases adopt --reason restored --confirm adopt",
			asks: "POST /api/v1/releases/adopt", body: `{"reason":"restored"}`,
			want: printed{0, "v2 on 2/2 after 0.012 s\n", ""}},
		"reconcile, which goes to a canary": {answer: "canary.json", args: "override reconcile hf-1 --reason over --confirm hf-1",
			asks: "POST /api/v1/overrides/reconcile", body: `{"reason":"over","replica":"hf-1"}`,
			want: printed{0, "v6 on its canary hf-1, 1/1 after 0.016 s\nthe others follow when it has served well; dispatchctl fleet shows when\n", ""}},
		"a fleet with a canary": {answer: "fleet-canary.json", args: "fleet", asks: "GET /api/v1/fleet",
			want: printed{0, "head v6  all v5  canary hf-1 since 2026-11-30 11:26:56Z\n" +
				"REPLICA  STATE    RELEASE  AGE  PLACE          REFUSED  OVERRIDE\n" +
				"hf-1     current  v6       0s   hf/k2/prod/v1\n" +
				"sh-1     current  v6       0s   sh/k1/prod/v1\n", ""}},
		"a fleet with a replica that refuses": {answer: "fleet-refusing.json", args: "fleet", asks: "GET /api/v1/fleet",
			want: printed{0, "head v8  all v8  canary none\n" +
				"REPLICA  STATE     RELEASE     AGE  PLACE          REFUSED                   OVERRIDE\n" +
				"hf-1     refusing  no release       hf/k2/prod/v1  v8 host_outside_suffixes\n" +
				"sh-1     current   v8          0s   sh/k1/prod/v1\n" +
				"hf-1 refused v8 from control 127.0.0.1:18983: app corporate: a golden request got the host \"corp-hf.bank.example\"\n  try: the allowed suffixes are set at start only: --allowed-suffixes\n", ""}},
		"releases": {answer: "releases.json", args: "releases --limit 2 --before 3", asks: "GET /api/v1/releases?before=3&limit=2",
			want: printed{0, "RELEASE  CREATED               ACTION   BY             REASON\n" +
				"v2       2026-11-30 11:26:39Z  swap     administrator  sh-main burns\n" +
				"v1       2026-11-30 11:26:18Z  publish  bootstrap      first configuration mobile-bank.yaml\n", ""}},
		"a release": {answer: "release.json", args: "releases show 2", asks: "GET /api/v1/releases/2",
			want: printed{0, "release   v2, made on v1, format 1\ncreated   2026-11-30 11:26:39Z\naction    swap\nby        administrator\nreason    sh-main burns\n" +
				`mobile    endpoints {"sh/sh-main":{"state":"standby"},"sh/sh-spare":{"state":"active","weight":100}}` + "\n" +
				`approved  {"hosts":{"corp-hf.bank.example":1,"corp-sh.bank.example":1,"corp-sh2.bank.example":1,"corp.bank.example":1,"wap.bank.example":1,"wapabst.a.com.cn":1,"wapabst2.a.com.cn":1,"wapcdst.b.com.cn":1}}` + "\n", ""}},
		"a whole audit trail": {answer: "verify.json", args: "audit verify", asks: "GET /api/v1/audit/verify",
			want: printed{0, "20 rows, each as it was written\nkeep elsewhere: --rows 20 --head 996f9060150bafb0b4314de6c48a9406ce6d87cc49fbf7aabaf2bb654e12bd4c\n", ""}},
		"a broken audit trail": {answer: "audit-broken.json", args: "audit verify --rows 3 --head 99aa", asks: "GET /api/v1/audit/verify?head=99aa&rows=3",
			want: printed{1, "", "dispatchctl: row 3 of the audit trail: row 3 is not the one whose hash was kept outside: it or a row before it was rewritten (audit_broken)\ntry: somebody changed the database by hand; compare with a backup before trusting anything after row 2\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, asked := recorded(t, c.answer)
			if got := ctl(t, server, streams{}, strings.Fields(c.args)...); got != c.want {
				t.Errorf("exit %d\n%s%s\nwant %d\n%s%s", got.exit, got.out, got.log, c.want.exit, c.want.out, c.want.log)
			}
			questions := asked.all()
			if len(questions) != 1 {
				t.Fatalf("asked %d times: %v", len(questions), questions)
			}
			if q := questions[0]; q.line != c.asks || q.body != c.body || q.token != "Bearer "+secret || (q.key != "") != (c.body != "") {
				t.Errorf("asked %+v", q)
			}
		})
	}
}

// With -o json an answer comes as it is; the exit status still tells of who lags.
func TestJSONIsTheAnswerItself(t *testing.T) {
	t.Parallel()
	for file, args := range map[string]string{"fleet-override.json": "fleet", "release.json": "releases show 2",
		"lagging.json": "relive 1 --reason back --confirm 1"} {
		server, _ := recorded(t, file)
		want, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		got := ctl(t, server, streams{color: true}, append(strings.Fields(args), "-o", "json")...)
		if strings.TrimSpace(got.out) != strings.TrimSpace(string(want)) || (got.exit == exitLagging) != (file == "lagging.json") {
			t.Errorf("%s: exit %d\n%s", args, got.exit, got.out)
		}
	}
}

func TestAnOverrideIsRedOnATerminal(t *testing.T) {
	t.Parallel()
	server, _ := recorded(t, "fleet-override.json")
	const text = "mobile/hf draining until 2026-11-30 13:26:39Z by ops: Hefei floods"
	if got := ctl(t, server, streams{color: true}, "fleet"); !strings.Contains(got.out, "\x1b[31m"+text+"\x1b[0m\n") || strings.Count(got.out, "\x1b") != 2 {
		t.Errorf("on a terminal:\n%q", got.out)
	}
	if got := ctl(t, server, streams{}, "fleet"); !strings.Contains(got.out, text+"\n") || strings.Contains(got.out, "\x1b") {
		t.Errorf("in a file:\n%q", got.out)
	}
}

// What others wrote cannot command the terminal of who reads it.
func TestAnswersDoNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const evil = `\u001b[2J\u202e\r`
		switch r.URL.Path {
		case "/api/v1/fleet":
			_, _ = io.WriteString(w, `{"members":[{"id":"`+evil+`","number":1,"refusal":{"reason":"`+evil+`"}}]}`)
		case "/api/v1/releases":
			_, _ = io.WriteString(w, `{"releases":[{"number":1,"reason":"`+evil+`"}]}`)
		case "/api/v1/releases/1":
			_, _ = io.WriteString(w, `{"manifest":{"number":1,"cause":{"reason":"`+evil+`"}}}`)
		default:
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"code":"x","detail":"`+evil+`"}`)
		}
	}))
	t.Cleanup(s.Close)
	for _, args := range []string{"fleet", "releases", "releases show 1", "relive 1 --reason back --confirm 1"} {
		got := ctl(t, s.URL, streams{}, strings.Fields(args)...)
		if strings.ContainsAny(got.out+got.log, "\x1b\u202e\r") || !strings.Contains(got.out+got.log, "·[2J·") {
			t.Errorf("%s prints\n%q", args, got.out+got.log)
		}
	}
}

func TestChangesAreConfirmed(t *testing.T) {
	t.Parallel()
	const swap = "swap mobile/sh sh-spare --from sh-main --expect sh-main --reason burns"
	for name, c := range map[string]struct {
		args, typed string
		asks        bool
		exit        int
		done        bool
	}{
		"the region of a swap":      {swap, "sh\n", true, 0, true},
		"the number of a release":   {"relive 7 --reason back", "release 7\n", true, 0, true},
		"the word adopt":            {"releases adopt --reason back", "adopt", true, 0, true},
		"a replica":                 {"override reconcile hf-1 --reason back", " hf-1 \n", true, 0, true},
		"the wrong region":          {swap, "hf\n", true, 1, false},
		"yes is not the region":     {swap, "yes\n", true, 1, false},
		"an empty line":             {swap, "\n", true, exitUsage, false},
		"nobody answers":            {swap, "", true, exitUsage, false},
		"no terminal":               {swap, "sh\n", false, exitUsage, false},
		"no terminal, but the name": {swap + " --confirm sh", "", false, 0, true},
		"a terminal, and the name":  {swap + " --confirm sh", "", true, 0, true},
		"another name of a replica": {"override reconcile hf-1 --reason back --confirm hf-2", "", false, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, asked := recorded(t, "done.json")
			got := ctl(t, server, streams{in: strings.NewReader(c.typed), asks: c.asks}, strings.Fields(c.args)...)
			writes := slices.DeleteFunc(asked.all(), func(q question) bool { return q.key == "" }) // the others only look
			if got.exit != c.exit || (len(writes) == 1) != c.done {
				t.Errorf("exit %d, asked %v\n%s", got.exit, asked.all(), got.log)
			}
			if !c.done && !strings.Contains(got.log, "nothing was changed") {
				t.Errorf("does not say that nothing was changed:\n%s", got.log)
			}
		})
	}
}

func TestCommandLinesThatAskNothing(t *testing.T) {
	t.Parallel()
	server, asked := recorded(t, "done.json")
	for args, want := range map[string]string{
		"":                                      "try: dispatchctl --help",
		"flet":                                  "try: dispatchctl --help",
		"swap mobile b --expect a --reason why": `"mobile" is not APP/REGION`,
		"swap mobile/sh/x b --expect a --reason why":                `is not APP/REGION`,
		"swap mobile/sh b --expect a --confirm sh":                  "--reason",
		"plan testdata/none.yaml":                                   "read document",
		"completion tcsh":                                           `"bash"`,
		"region mobile/sh gone --expect off --reason why":           `"draining"`,
		"region mobile/sh off --expect open --reason why":           `--expect must be one of`,
		"region mobile/sh off --expect active --reason x":           `"x" is no reason: write 3 characters or more`,
		"relive seven --reason why":                                 "try: dispatchctl relive --help",
		"audit verify --rows 3":                                     "--rows and --head must be used together",
		"fleet --token " + "x":                                      "unknown flag --token",
		"fleet --server localhost:8081":                             "http://HOST:PORT",
		"fleet --server http://u:p@localhost:8081":                  "http://HOST:PORT",
		"fleet --timeout 0s":                                        "leaves no time",
		"fleet --token-file " + "testdata/none":                     "read token",
		"fleet --token-file " + "testdata/fleet-canary.json -o xml": "--output",
		"fleet --token-file " + os.DevNull:                          "there is no token",
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

// Each change has a key of its own, and one whose answer is lost names it: with it,
// the same command asks for the same change.
func TestALostAnswerNamesTheKey(t *testing.T) {
	t.Parallel()
	var seen notes[string]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.take(r.Header.Get("Idempotency-Key")) == 2 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	args := strings.Fields("relive 1 --reason back --confirm 1")
	for _, how := range []string{"cut", "502 of a proxy"} {
		got := ctl(t, s.URL, streams{}, args...)
		m := regexp.MustCompile(`the same command with --key (\S+), which`).FindStringSubmatch(got.log)
		keys := seen.all()
		if got.exit != exitFailed || m == nil || m[1] != keys[len(keys)-1] || !strings.Contains(got.log, "may have been made") {
			t.Errorf("%s: exit %d, keys %q\n%s", how, got.exit, keys, got.log)
		}
	}
	keys := seen.all()
	if len(keys) != 2 || keys[0] == keys[1] || len(keys[0]) < 26 {
		t.Errorf("keys %q", keys)
	}
	ctl(t, s.URL, streams{}, append(args, "--key", keys[0])...)
	if again := seen.all()[2]; again != keys[0] {
		t.Errorf("asked again with %q, not %q", again, keys[0])
	}
	got := ctl(t, s.URL, streams{}, "fleet")
	if got.exit != exitFailed || strings.Contains(got.log, "may have been made") {
		t.Errorf("a read: exit %d\n%s", got.exit, got.log)
	}
	s.Close()
	got = ctl(t, s.URL, streams{}, args...)
	if got.exit != exitFailed || strings.Contains(got.log, "may have been made") || !strings.Contains(got.log, "another control node") {
		t.Errorf("nobody there: exit %d\n%s", got.exit, got.log)
	}
}

// A server that is slow, is not dispatch, or sends us elsewhere.
func TestOtherAnswers(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	mux.HandleFunc("/moved/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/html/", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "<html>") })
	mux.HandleFunc("/empty/", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "{}") })
	mux.HandleFunc("/slow/", func(http.ResponseWriter, *http.Request) { <-release })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	for path, want := range map[string]string{"/moved": "answers 307 Temporary Redirect (bad_answer)", "/html": "is not that of dispatch",
		"/empty": "is not that of dispatch", "/slow": "deadline exceeded"} {
		got := ctl(t, s.URL+path, streams{}, "relive", "1", "--reason", "back", "--confirm", "1", "--timeout", "100ms")
		if got.exit != exitFailed || got.out != "" || !strings.Contains(got.log, want) {
			t.Errorf("%s: exit %d\n%s%s", path, got.exit, got.out, got.log)
		}
	}
}

func TestPlainTextBeyondLoopbackIsSaid(t *testing.T) {
	t.Setenv(tokenVariable, secret)
	for server, warned := range map[string]bool{"http://192.0.2.1:1": true, "http://control.bank.example": true, "https://192.0.2.1:1": false,
		"http://127.0.0.1:1": false, "http://[::1]:1": false, "http://localhost:1": false} {
		var log bytes.Buffer
		a, err := serverFlags{Server: server, Timeout: time.Second}.open(&log)
		if err != nil || a.token != secret || strings.Contains(log.String(), "in plain text") != warned {
			t.Errorf("%s: %v, %+v: %s", server, err, a, log.String())
		}
	}
}

func TestHelpSaysTheExitStatuses(t *testing.T) {
	t.Parallel()
	got := ctl(t, "http://127.0.0.1:1", streams{}, "--help")
	if got.exit != 0 || !strings.Contains(strings.Join(strings.Fields(got.out), " "), "0 done; 1 refused or failed; 2 from plan and rules diff: there is a difference; 3 done, but a replica does not serve it yet; 64 not understood, nothing was asked") {
		t.Errorf("exit %d\n%s%s", got.exit, got.out, got.log)
	}
}

func TestAges(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{0: "0s", 59.9: "59s", 60: "1m", 3599: "59m", 3600: "1h", 172799: "47h", 172800: "2d"} {
		if got := age(seconds); got != want {
			t.Errorf("%g s is %s, want %s", seconds, got, want)
		}
	}
}
