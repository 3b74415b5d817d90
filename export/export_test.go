package export

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

func of(n int) *int { return &n }

func on(b bool) *bool { return &b }

// bank has every kind of rule: those that proxies can express and those that they cannot.
func bank() App {
	region := func(key string, state domain.RegionState, failover ...string) domain.Region {
		return domain.Region{Key: key, Capacity: 50, State: state, Failover: failover,
			Endpoints: []domain.Endpoint{{Key: key + "-main", Domain: key + ".bank.example"}}}
	}
	return App{Release: 7, OpenUser: true, ListOf: map[string]whitelist.Of{"staff": whitelist.Device, "vip": whitelist.User},
		IDs: map[string][]string{"staff": {"d-1", "D-2", "a~b", "x/y=z"}, "vip": {"u-1", "u-2"}},
		Rules: policy.Rules{App: "mobile", BucketBy: policy.ByDevice,
			Regions: []domain.Region{region("sh", "", "hf"), region("hf", "", "sh"), region("gz", domain.Off, "sh")},
			Policies: []policy.Policy{
				{Key: "staff", When: policy.When{InList: policy.Strings{"staff"}}, Then: policy.Action{Region: "hf"}},
				{Key: "vip", When: policy.When{InList: policy.Strings{"vip"}, Not: &policy.When{Platform: policy.Strings{"harmony"}}}, Then: policy.Action{Region: "gz"}},
				{Key: "office", When: policy.When{CIDR: policy.Strings{"127.0.0.8/29"}, HasDevice: on(true)}, Then: policy.Action{Region: "hf"}},
				{Key: "old", When: policy.When{Platform: policy.Strings{"ios"}, AppVersion: "<9"}, Then: policy.Action{Region: "sh"}},
				{Key: "gray", BucketBy: policy.ByUserThenDevice, When: policy.When{Platform: policy.Strings{"ios", "android"}, Channel: policy.Strings{"store"}},
					Then: policy.Action{Share: &policy.Share{Region: "hf", Of: of(2000)}}},
				{Key: "parts", When: policy.When{Carrier: policy.Strings{"CMCC"}, Not: &policy.When{InList: policy.Strings{"staff"}}}, Salt: "a, b%c/d",
					Then: policy.Action{Share: &policy.Share{Region: "gz", Buckets: [][2]int{{0, 99}, {5000, 7999}}}}},
				{Key: "nobody", When: policy.When{HasDevice: on(false), HasUser: on(false)}, Then: policy.Action{Region: "sh"}},
			},
			Otherwise: policy.Action{Split: []policy.Share{{Region: "sh", Of: of(6000)}, {Region: "hf", Of: of(4000)}}},
		}}
}

// expressible is bank without what HAProxy cannot tell.
func expressible() App {
	a := bank()
	a.Rules.Policies = slices.DeleteFunc(a.Rules.Policies, func(p policy.Policy) bool { return p.Key == "old" })
	a.Rules.Policies = append(a.Rules.Policies, policy.Policy{Key: "rest", When: policy.When{HasDevice: on(false)}, Then: policy.Action{Region: "hf"}})
	return a
}

// table is the decision itself.
func table(t *testing.T, a App) (*policy.Table, *whitelist.Normalizer) {
	t.Helper()
	key, err := whitelist.NewKey("k1", []byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	var lists []whitelist.List
	for name, ids := range a.IDs {
		content, err := whitelist.Build(key, a.ListOf[name], slices.Values(ids))
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, whitelist.List{Key: name, Of: a.ListOf[name], Index: content.Index(), Chunk: content.Chunk})
	}
	index, err := new(whitelist.Index).With([]whitelist.Key{key}, lists)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := policy.Compile(a.Rules, policy.Env{Lists: index})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := whitelist.NewNormalizer(nil, a.FoldIDs)
	if err != nil {
		t.Fatal(err)
	}
	return compiled, ids
}

// request is one request as a proxy sees it.
type request struct{ from, device, user, platform, channel, carrier, version, extra string }

func anyRequest(r *rand.Rand) request {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	id := func(prefix string) string {
		switch r.IntN(10) {
		case 0:
			return pick("", "null", "UNKNOWN", "00000000-0000-0000-0000-000000000000", "d-2", "用户", "a b", `a"b`, "a%41", "a,b", strings.Repeat("x", 257))
		case 1:
			return pick("d-1", "D-2", "a~b", "x/y=z", "u-1", "U-1", "u-2", "d_1@b:c+d.e")
		}
		return fmt.Sprintf("%s-%d", prefix, r.IntN(1_000_000))
	}
	return request{from: pick("127.0.0.1", "127.0.0.1", "127.0.0.9"), device: id("d"), user: pick("", "", id("u")), platform: pick("", "ios", "iOS", "Android", "harmony", "web"),
		channel: pick("", "store", "Store", "direct"), carrier: pick("", "cmcc", "CUCC"), version: pick("", "8.1", "10.2"), extra: pick("", "", "", "", "", "", "X-Session-Token: abc")}
}

func (q request) text() string {
	var b strings.Builder
	b.WriteString("GET /route?app=mobile HTTP/1.1\r\nHost: proxy\r\n")
	for _, h := range [][2]string{{"X-Device-Id", q.device}, {"X-User-Id", q.user}, {"X-Platform", q.platform}, {"X-Channel", q.channel}, {"X-Carrier", q.carrier}, {"X-App-Version", q.version}} {
		if h[1] != "" {
			b.WriteString(h[0] + ": " + h[1] + "\r\n")
		}
	}
	if q.extra != "" {
		b.WriteString(q.extra + "\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

// region is what dispatch answers.
func (q request) region(t *policy.Table, a App, ids *whitelist.Normalizer) string {
	device, _ := ids.Normalize(q.device)
	user, _ := ids.Normalize(q.user)
	d := t.Decide(&policy.Request{Now: time.Unix(1_800_000_000, 0), Device: device, User: user, Platform: q.platform, Channel: q.channel,
		Carrier: q.carrier, AppVersion: q.version, Addr: netip.MustParseAddr(q.from)})
	return a.Rules.Regions[d.Region].Key
}

// e70: 100,000 requests of every kind through a real proxy. It gives dispatch's
// region, or says that it must be asked.
func TestProxiesGiveTheRegionOrAsk(t *testing.T) {
	for _, row := range []struct {
		name  string
		app   App
		asked float64 // at most this part of the requests without anything unusual
		proxy func(*testing.T, App) string
	}{
		{"haproxy", expressible(), 0, startHAProxy},
		{"haproxy with a version", bank(), 0.5, startHAProxy},
		{"nginx", expressible(), 0.95, startNginx},
		{"haproxy that folds", folded(), 0, startHAProxy},
		{"nginx that folds", folded(), 0.95, startNginx},
	} {
		t.Run(row.name, func(t *testing.T) {
			compiled, ids := table(t, row.app)
			addr := row.proxy(t, row.app)
			random := rand.New(rand.NewPCG(1, 2))
			requests := make([]request, 20_000)
			for i := range requests {
				requests[i] = anyRequest(random)
			}
			answers := ask(t, addr, requests)
			wrong, asked, plainly := 0, 0, 0
			for i, q := range requests {
				usual := q.extra == "" && len(q.device) <= whitelist.MaxID && len(q.user) <= whitelist.MaxID &&
					!strings.ContainsFunc(q.device+q.user, foreign)
				if usual {
					plainly++
				}
				if answers[i] == Ask {
					if usual {
						asked++
					}
					continue
				}
				if want := q.region(compiled, row.app, ids); answers[i] != want {
					if wrong++; wrong < 5 {
						t.Errorf("%+v: %q, dispatch says %q", q, answers[i], want)
					}
				}
			}
			t.Logf("%d requests, %d wrong, asked for %.1f %% of the usual ones", len(requests), wrong, 100*float64(asked)/float64(plainly))
			if wrong > 0 || float64(asked) > row.asked*float64(plainly) {
				t.Errorf("%d wrong, %d of %d asked for", wrong, asked, plainly)
			}
		})
	}
}

func folded() App {
	a := expressible()
	a.FoldIDs = true
	for key, ids := range a.IDs {
		lower := make([]string, len(ids))
		for i := range ids {
			lower[i] = strings.ToLower(ids[i])
		}
		a.IDs[key] = lower
	}
	return a
}

// ask sends all requests over one connection for each address, many at a time.
func ask(t *testing.T, addr string, requests []request) []string {
	t.Helper()
	type line struct {
		conn net.Conn
		read *bufio.Reader
	}
	lines := map[string]line{}
	for _, from := range []string{"127.0.0.1", "127.0.0.9"} {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		lines[from] = line{conn, bufio.NewReader(conn)}
	}
	answers := make([]string, len(requests))
	const many = 50
	for low := 0; low < len(requests); low += many {
		batch := requests[low:min(low+many, len(requests))]
		text := map[string]string{}
		for _, q := range batch {
			text[q.from] += q.text()
		}
		for from, all := range text {
			if _, err := io.WriteString(lines[from].conn, all); err != nil {
				t.Fatal(err)
			}
		}
		for i, q := range batch {
			resp, err := http.ReadResponse(lines[q.from].read, nil)
			if err != nil {
				t.Fatalf("%+v: %v", q, err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%+v: %d %s %v", q, resp.StatusCode, body, err)
			}
			answers[low+i] = strings.TrimSpace(string(body))
		}
	}
	return answers
}

// written writes the files of an export below a folder that proxies can read.
func written(t *testing.T, make func(dir string) Export) (dir, config string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dispatch-export-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out := make(dir)
	for _, f := range out.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, out.Files[0].Text
}

func startHAProxy(t *testing.T, a App) string {
	t.Helper()
	a.Absent = whitelist.DefaultAbsent
	addr, err := testenv.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	dir, config := written(t, func(dir string) Export { return HAProxy(a, dir) })
	file := filepath.Join(dir, "haproxy.cfg")
	text := "defaults\n  mode http\n  timeout client 60s\n  timeout server 5s\n  timeout connect 5s\nfrontend test\n  bind " + addr + "\n" + config +
		"  http-request return status 200 content-type text/plain lf-string %[var(txn.dispatch_region)]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &testenv.Control{Name: "haproxy", Args: []string{testenv.Tool(t, "haproxy"), "-db", "-f", file}, Log: filepath.Join(dir, "log"),
		Up: func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err == nil {
				_ = conn.Close()
			}
			return err
		}}
	if err := c.Start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Cleanup(func() {
		if err := c.Stop(5 * time.Second); err != nil {
			t.Error(err)
		}
	})
	return addr
}

func startNginx(t *testing.T, a App) string {
	t.Helper()
	a.Absent = whitelist.DefaultAbsent
	addr, err := testenv.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	_, config := written(t, func(dir string) Export { return Nginx(a, dir) })
	testenv.StartNginx(t, addr, config+"server { listen "+addr+"; keepalive_requests 1000000; location / { default_type text/plain; return 200 $dispatch_region; } }")
	return addr
}

// E23: every bucket of every rule is in exactly one range, and the ranges say
// where a user lands.
func TestRangesAreComplete(t *testing.T) {
	t.Parallel()
	a := bank()
	covered := map[string]int{}
	for _, r := range Ranges(a) {
		if r.Low != covered[r.Rule] {
			t.Errorf("%s: a range begins at %d after %d", r.Rule, r.Low, covered[r.Rule])
		}
		covered[r.Rule] = r.High + 1
	}
	for _, name := range []string{"staff", "vip", "office", "old", "gray", "parts", "nobody", "otherwise"} {
		if covered[name] != policy.Whole {
			t.Errorf("%s covers %d buckets", name, covered[name])
		}
	}
	compiled, _ := table(t, a)
	for i := range 10_000 {
		id := fmt.Sprintf("user-%d", i)
		bucket := int(policy.Bucket("mobile/otherwise", id))
		d := compiled.Decide(&policy.Request{Now: time.Unix(1_800_000_000, 0), Device: id, Addr: netip.MustParseAddr("10.0.0.1")})
		at := slices.IndexFunc(Ranges(a), func(r Range) bool { return r.Rule == "otherwise" && r.Low <= bucket && bucket <= r.High })
		if got := a.Rules.Regions[d.Region].Key; got != Ranges(a)[at].Region {
			t.Fatalf("%s in bucket %d gets %s, the range says %s", id, bucket, got, Ranges(a)[at].Region)
		}
	}
	if csv := RangesCSV(a).Files[0].Text; !strings.Contains(csv, "otherwise,device,mobile/otherwise,6000,9999,hf\n") {
		t.Errorf("the file is %s", csv)
	}
}
