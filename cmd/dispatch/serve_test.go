package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dispatch.example/dispatch/internal/testenv"
)

// The library that rotates the decision log keeps one goroutine per file and has no way to end it.
func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun")))
}

// running is a dispatch in this process.
type running struct {
	t                         *testing.T
	public, admin, ops, token string
	alone                     bool // its control side may never come up
	cli                       *commands
	log                       *printed
	stop                      func() (exit int)
}

// printed is what a command wrote so far.
type printed struct {
	mu   sync.Mutex
	text []byte
	more chan struct{} // closed and replaced when there is more
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = append(p.text, b...)
	if p.more != nil {
		close(p.more)
	}
	p.more = make(chan struct{})
	return len(b), nil
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.text)
}

func (p *printed) next() (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.more == nil {
		p.more = make(chan struct{})
	}
	return string(p.text), p.more
}

// await waits until what was printed matches, and gives the groups.
func (p *printed) await(t *testing.T, pattern string, ended chan int) []string {
	t.Helper()
	re, limit := regexp.MustCompile(pattern), time.After(30*time.Second)
	for {
		text, more := p.next()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-more:
		case code := <-ended:
			ended <- code // whoever stops it waits for this too
			t.Fatalf("ended with %d before it printed %q:\n%s", code, pattern, text)
		case <-limit:
			t.Fatalf("never printed %q:\n%s", pattern, text)
		}
	}
}

// start runs serve on free ports and waits until its control side is up.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	return launch(t, &running{t: t, log: new(printed)}, args)
}

// startAlone does not wait for the control side.
func startAlone(t *testing.T, args ...string) *running {
	t.Helper()
	return launch(t, &running{t: t, log: new(printed), alone: true}, args)
}

func launch(t *testing.T, r *running, args []string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := new(printed), make(chan int, 1)
	go func() {
		cli := cmp.Or(r.cli, new(commands))
		ended <- cli.run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--fleet-listen", "127.0.0.1:0", "--probes", "off", "--demo-traffic", "off"}, args...), out, r.log)
	}()
	var once sync.Once
	var exit int
	r.stop = func() int {
		once.Do(func() { cancel(); exit = <-ended; http.DefaultClient.CloseIdleConnections() })
		return exit
	}
	t.Cleanup(func() {
		if code := r.stop(); code != 0 {
			t.Errorf("serve ended with %d:\n%s", code, r.log)
		}
	})
	where := out.await(t, `(?:public +(http://\S+)/route\n)?(?:admin +(http://\S+)/api/v1/\S+\n)?ops +(http://\S+)/metrics\n`, ended)
	r.public, r.admin, r.ops = where[1], where[2], where[3]
	if !r.alone && r.admin != "" {
		out.await(t, `serving +`, ended)
	}
	if m := regexp.MustCompile(`token +(dsp_\S+)`).FindStringSubmatch(out.String()); m != nil {
		r.token = m[1]
	}
	return r
}

// awaitReady waits until the ops listener's /readyz matches.
func (r *running) awaitReady(pattern string) {
	r.t.Helper()
	r.awaitText(pattern, func() string { _, body := r.get(r.ops + "/readyz"); return string(body) })
}

// awaitFile waits until a file matches.
func (r *running) awaitFile(path, pattern string) {
	r.t.Helper()
	r.awaitText(pattern, func() string { text, _ := os.ReadFile(path); return string(text) })
}

func (r *running) awaitText(pattern string, read func() string) {
	r.t.Helper()
	re, limit, tick := regexp.MustCompile(pattern), time.After(30*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		text := read()
		if re.MatchString(text) {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatalf("never read %q:\n%s\n%s", pattern, text, r.log)
		}
	}
}

// metric is the value of the first series that matches, empty if there is none.
func (r *running) metric(pattern string) string {
	r.t.Helper()
	_, body := r.get(r.ops + "/metrics")
	m := regexp.MustCompile(`(?m)^` + pattern + ` (\S+)$`).FindSubmatch(body)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// answer is what tests read of a public answer.
type answer struct {
	Region, Domain, Session, Record string
	Release                         uint64
	TTL                             int
}

func (r *running) route(query string, headers ...string) answer {
	r.t.Helper()
	status, body := r.get(r.public+"/route?"+query, headers...)
	var a answer
	if err := json.Unmarshal(body, &a); err != nil || status != http.StatusOK {
		r.t.Fatalf("GET /route?%s: %d %s", query, status, body)
	}
	return a
}

func (r *running) get(url string, headers ...string) (int, []byte) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.do(req, headers...)
}

// post sends a change with the administrator's token.
func (r *running) post(path, body string, headers ...string) (int, []byte) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.admin+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.do(req, append([]string{"Authorization", "Bearer " + r.token, "Content-Type", "application/json"}, headers...)...)
}

func (r *running) do(req *http.Request, headers ...string) (int, []byte) {
	r.t.Helper()
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, body
}

func TestDemoAnswersWhatTheReadmeSays(t *testing.T) {
	r := start(t, "--demo")
	staff := r.route("app=mobile", "X-Device-Id", "d-1001")
	if staff.Region != "sh" || staff.Domain != "wapabst.a.com.cn" {
		t.Errorf("a staff device gets %+v, want Shanghai", staff)
	}
	if staff.Session == "" || staff.Record == "" || staff.TTL <= 0 || staff.Release != 1 {
		t.Errorf("the answer lacks a part: %+v", staff)
	}
	if !strings.HasPrefix(r.token, "dsp_") {
		t.Errorf("the demo printed no token: %q", r.token)
	}
}

// Both domains of the bank are reachable by rule, and the same device gets the
// same one after a restart from the copy on disk.
func TestAnswersAreStableOverRestarts(t *testing.T) {
	data := t.TempDir()
	before := map[string]string{}
	r := start(t, "--demo", "--data", data)
	for i := range 200 {
		device := fmt.Sprint("d-unknown-", i)
		before[device] = r.route("app=mobile", "X-Device-Id", device).Domain
	}
	r.stop()
	seen := map[string]bool{}
	r = start(t, "--demo", "--data", data)
	for device, domain := range before {
		if now := r.route("app=mobile", "X-Device-Id", device).Domain; now != domain {
			t.Errorf("device %s moved from %s to %s", device, domain, now)
		}
		seen[domain] = true
	}
	if !seen["wapabst.a.com.cn"] || !seen["wapcdst.b.com.cn"] {
		t.Errorf("200 devices saw only %v", seen)
	}
	if r.token != "" {
		t.Error("the token was printed a second time")
	}
}

func TestASwapChangesTheNextAnswer(t *testing.T) {
	r := start(t, "--demo")
	status, body := r.post("/emergency", `{"action":"swap","reason":"sh-main burns","confirm":"sh","targets":[{"app":"mobile","region":"sh","expect":"sh-main","from":"sh-main","to":"sh-spare"}]}`)
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"release":2`)) {
		t.Fatalf("swap: %d %s", status, body)
	}
	if a := r.route("app=mobile", "X-Device-Id", "d-1001"); a.Domain != "wapabst2.a.com.cn" || a.Release != 2 {
		t.Errorf("after the swap the answer is %+v", a)
	}
	// The same click again comes too late and changes nothing.
	status, body = r.post("/emergency", `{"action":"swap","reason":"again","confirm":"sh","targets":[{"app":"mobile","region":"sh","expect":"sh-main","from":"sh-main","to":"sh-spare"}]}`)
	if status != http.StatusConflict || !bytes.Contains(body, []byte("expect_mismatch")) {
		t.Errorf("a swap that expects the past: %d %s", status, body)
	}
}

// The database may be lost whole: answers go on from the copy on disk, and
// nothing can be published under a number that was taken.
func TestALostDatabaseChangesNoAnswer(t *testing.T) {
	data := t.TempDir()
	r := start(t, "--demo", "--data", data)
	before := r.route("app=mobile", "X-Device-Id", "d-1001")
	r.stop()
	for _, name := range []string{"dispatch.db", "dispatch.db-wal", "dispatch.db-shm"} {
		if err := os.Remove(filepath.Join(data, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	r = start(t, "--demo", "--data", data)
	after := r.route("app=mobile", "X-Device-Id", "d-1001")
	if after.Domain != before.Domain || after.Release != before.Release {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if _, ready := r.get(r.ops + "/readyz"); !bytes.Contains(ready, []byte("[-]database: only emergencies go on: it lacks the last 1 releases")) {
		t.Errorf("readyz says %s", ready)
	}
	if !strings.Contains(r.log.String(), "releases/adopt") {
		t.Errorf("the log does not say what to do:\n%s", r.log)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, r.admin+"/api/v1/lists/staff-devices", strings.NewReader(`{"add":["d-1"],"reason":"try"}`))
	if err != nil {
		t.Fatal(err)
	}
	status, body := r.do(req, "Authorization", "Bearer "+r.token, "Content-Type", "application/json")
	if status != http.StatusConflict || !bytes.Contains(body, []byte("store_behind")) {
		t.Errorf("a change on an empty database under a served release: %d %s", status, body)
	}
}

// e48: a database that accepts connections and never speaks keeps nobody from
// the copy on disk, and the node says what is wrong.
func TestAMuteDatabaseDelaysNoAnswer(t *testing.T) {
	data := t.TempDir()
	r := start(t, "--demo", "--data", data)
	before := r.route("app=mobile", "X-Device-Id", "d-1001")
	r.stop()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	r = startAlone(t, "--data", data, "--allowed-suffixes", "a.com.cn,b.com.cn,bank.example", "--db", "mysql:u:p@tcp("+mute.Addr().String()+")/d")
	if after := r.route("app=mobile", "X-Device-Id", "d-1001"); after.Domain != before.Domain || after.Release != before.Release {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if status, body := r.get(r.ops + "/readyz"); status != http.StatusOK || !bytes.Contains(body, []byte("[-]database: nothing can be changed")) {
		t.Errorf("readyz: %d %s", status, body)
	}
	if status, body := r.get(r.admin + "/api/v1/me"); status != http.StatusServiceUnavailable || !bytes.Contains(body, []byte("control_down")) {
		t.Errorf("admin API: %d %s", status, body)
	}
}

// e45: a broken first document ends a node that has nothing to serve, naming
// every mistake, and does not touch one that has.
func TestABrokenFirstDocument(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.yaml")
	if err := os.WriteFile(broken, []byte("apps:\n  - key: mobile\n    fallbak: x\n    session_ttl: 30\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	exit, _, stderr := command(t, "serve", "--data", filepath.Join(dir, "none"), "--allowed-suffixes", "bank.example", "--bootstrap", broken,
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--fleet-listen", "127.0.0.1:0")
	if exit != 1 || !strings.Contains(stderr, "broken.yaml:3:") || !strings.Contains(stderr, "broken.yaml:4:") {
		t.Errorf("without a copy on disk: exit %d, %s", exit, stderr)
	}
	data := filepath.Join(dir, "some")
	start(t, "--demo", "--data", data).stop()
	r := start(t, "--data", data, "--four-eyes", "off", "--allowed-suffixes", "a.com.cn,b.com.cn,bank.example", "--bootstrap", broken)
	if a := r.route("app=mobile", "X-Device-Id", "d-1001"); a.Release != 1 {
		t.Errorf("with a release: %+v", a)
	}
}

// Whoever starts a node with too few suffixes hears of every host at once.
func TestBootstrapNamesHostsOutsideTheSuffixes(t *testing.T) {
	exit, _, stderr := command(t, "serve", "--data", t.TempDir(), "--allowed-suffixes", "bank.example", "--bootstrap", "../../examples/mobile-bank.yaml",
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--fleet-listen", "127.0.0.1:0")
	if exit != 1 || !strings.Contains(stderr, "wapabst.a.com.cn lies outside") || !strings.Contains(stderr, "wapcdst.b.com.cn lies outside") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
}

func TestTheLogSaysWhatIsInUse(t *testing.T) {
	r := start(t, "--demo")
	r.post("/emergency", `{"action":"swap","reason":"sh-main burns","confirm":"sh","targets":[{"app":"mobile","region":"sh","expect":"sh-main","from":"sh-main","to":"sh-spare"}]}`)
	r.log.await(t, `"msg":"release in use","release":2,.*"action":"swap","by":"administrator","reason":"sh-main burns"`, nil)
	r.stop()
	if log := r.log.String(); !strings.Contains(log, `"msg":"stopping"`) {
		t.Errorf("the log does not say that it stops:\n%s", log)
	}
}

func TestReadyOnlyWithARelease(t *testing.T) {
	r := start(t, "--data", t.TempDir(), "--allowed-suffixes", "bank.example")
	if status, _ := r.get(r.public + "/healthz"); status != http.StatusOK {
		t.Errorf("healthz is %d, want 200", status)
	}
	if status, body := r.get(r.ops + "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("readyz is %d %s, want 503", status, body)
	}
	if status, body := r.get(r.public + "/route"); status != http.StatusServiceUnavailable || !bytes.Contains(body, []byte(`"code"`)) {
		t.Errorf("route is %d %s, want 503 with a code", status, body)
	}
}

func TestBootstrapWithFourEyesWaitsForASecondPerson(t *testing.T) {
	r := start(t, "--data", t.TempDir(), "--allowed-suffixes", "a.com.cn,b.com.cn,bank.example", "--bootstrap", "../../examples/mobile-bank.yaml")
	if status, _ := r.get(r.ops + "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("readyz is %d before anybody approved a host, want 503", status)
	}
	if log := r.log.String(); !strings.Contains(log, "second person") || !strings.Contains(log, "wapabst.a.com.cn") {
		t.Errorf("the log does not say what to do:\n%s", log)
	}
	status, body := r.post("/approvals/wapabst.a.com.cn", `{"reason":"checked owner and certificate"}`)
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"proposer":"bootstrap"`)) {
		t.Errorf("approve: %d %s", status, body)
	}
}

// A demo that is stopped leaves neither goroutines (TestMain) nor its folder.
func TestTheDemoCleansUp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r := start(t, "--demo")
	r.stop()
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
