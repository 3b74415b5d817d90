package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"dispatch.example/dispatch/client"
	"dispatch.example/dispatch/e2e/topology"
)

const wap = "wap.bank.example" // what is built into the app, and the example's fallback

// app is an installation of the bank's app: the Go client with the keys of this
// fleet, which asks the entries given.
func app(t *testing.T, top *topology.Topology, device string, entries ...string) *client.Client {
	t.Helper()
	jwks, err := os.ReadFile(filepath.Join(top.Dir, "keys", "edge", "trust.jwks"))
	must(t, err)
	keys, err := client.ParseKeys(jwks)
	must(t, err)
	var hosts []string
	for _, entry := range entries {
		hosts = append(hosts, "http://"+entry)
	}
	c, err := client.New(client.Options{App: "mobile", Deployment: topology.Deployment, Bootstrap: hosts, Keys: keys,
		Suffixes: strings.Split(topology.Suffixes, ","), BuiltIn: wap, DeviceID: device})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// E11: no answer in any of its forms, and the app goes on with its built-in domain
// within the 2 s that it waits.
func TestE11NoAnswerIsTheBuiltInDomain(t *testing.T) {
	top := start(t, topology.Options{})
	bad := map[string]http.HandlerFunc{
		"5xx":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"bad JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"domain":`)) },
		"a page":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>please sign in</html>")) },
	}
	check := func(name string, entries ...string) {
		begin := time.Now()
		r := app(t, top, "d-1001", entries...).Route(t.Context())
		if took := time.Since(begin); r.Domain != wap || r.Source != client.BuiltIn || took > 2200*time.Millisecond {
			t.Errorf("%s: %+v after %s", name, r, took)
		}
	}
	for name, h := range bad {
		one, two := httptest.NewServer(h), httptest.NewServer(h)
		check(name, strings.TrimPrefix(one.URL, "http://"), strings.TrimPrefix(two.URL, "http://"))
		one.Close()
		two.Close()
	}
	if r := app(t, top, "d-1001", top.Entries["sh"], top.Entries["hf"]).Route(t.Context()); r.Source != client.Fresh || r.Region != "sh" {
		t.Errorf("with everything up: %+v", r) // else the cases below show nothing
	}
	for _, edge := range top.Edges {
		must(t, edge.Pause())
	}
	check("every edge hangs", top.Entries["sh"], top.Entries["hf"])
	for _, edge := range top.Edges {
		must(t, edge.Resume())
		must(t, edge.Kill())
	}
	check("every edge is dead behind its proxy", top.Entries["sh"], top.Entries["hf"])
	must(t, top.Proxy.Stop(5*time.Second))
	check("nobody listens", top.Entries["sh"], top.Entries["hf"])
	figure(t, "E11", "6 kinds of no answer: the app is on %s within 2 s", wap)
}

// endpointOf is what the signed record of an answer names.
func endpointOf(t *testing.T, a topology.Answer) string {
	t.Helper()
	parts := strings.Split(a.Record, ".")
	if len(parts) != 3 {
		t.Fatalf("record %q", a.Record)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(t, err)
	var record struct{ Endpoint string }
	must(t, json.Unmarshal(payload, &record))
	return record.Endpoint
}

// E12: a cluster of a region is broken and dispatch is not. The region's domain
// stays, and nothing is sent to the broken cluster.
func TestE12BrokenClusterKeepsItsDomain(t *testing.T) {
	text, err := topology.Document()
	must(t, err)
	// Both clusters serve behind one domain.
	both := strings.Replace(string(text), "domain: wapcdst.b.com.cn, cluster: k2, state: standby", "domain: wapcdst.b.com.cn, cluster: k2", 1)
	top := start(t, topology.Options{Document: []byte(both), NoProxy: true})
	before, atK1 := map[string]string{}, 0
	all := questions(top, 400)
	for _, q := range all {
		a, err := top.Route(t.Context(), q.edge.Public, q.headers...)
		must(t, err)
		if a.Region == "hf" {
			before[q.headers[1]] = a.Domain
			if endpointOf(t, a) == "hf-main" {
				atK1++
			}
		}
	}
	var o topology.Outcome
	must(t, top.Emergency(t.Context(), top.Controls[0], map[string]any{"action": "cluster_state", "reason": "k1 of Hefei is broken",
		"targets": []map[string]string{{"app": "mobile", "region": "hf", "cluster": "k1", "expect": "active", "state": "off"}}}, &o))
	must(t, top.WaitServing(t.Context(), o.Release))
	k1, moved := 0, 0
	for _, q := range all {
		a, err := top.Route(t.Context(), q.edge.Public, q.headers...)
		must(t, err)
		if was, ok := before[q.headers[1]]; ok {
			if a.Region != "hf" || a.Domain != was {
				moved++
			}
			if endpointOf(t, a) == "hf-main" {
				k1++
			}
		}
	}
	figure(t, "E12", "cluster k1 off: of %d requests of Hefei %d at k1 (before: %d), %d with another domain", len(before), k1, atK1, moved)
	if len(before) < 50 || atK1 < 10 || k1 > 0 || moved > 0 {
		t.Errorf("of %d requests %d went to the broken cluster, %d got another domain", len(before), k1, moved)
	}
}

// E13: the dispatch of cluster k1 is broken. An app that asks it alone has no
// answer and goes on with the built-in domain; one that asks by the city's entry
// is answered by k2.
func TestE13DispatchOfAClusterIsDown(t *testing.T) {
	top := start(t, topology.Options{})
	k1 := []*topology.Node{top.Edge("edge-sh-1"), top.Edge("edge-hf-1")}
	for _, edge := range k1 {
		must(t, edge.Kill())
	}
	alone := app(t, top, "d-1001", k1[0].Public, k1[1].Public).Route(t.Context())
	if alone.Domain != wap || alone.Source != client.BuiltIn {
		t.Errorf("an app that knows k1 only: %+v", alone)
	}
	failed := 0
	for range 20 {
		r := app(t, top, "d-1001", top.Entries["sh"], top.Entries["hf"]).Route(t.Context())
		if r.Source != client.Fresh || r.Region != "sh" {
			failed++
		}
	}
	figure(t, "E13", "dispatch of k1 down: %s for who asks it alone; of 20 apps at the entries %d had no answer", alone.Domain, failed)
	if failed > 0 {
		t.Errorf("%d of 20 apps were not answered by k2", failed)
	}
}

// city is a data centre of the bank as an app sees it: an address that answers.
func city(t *testing.T, ip string) (port string, served *atomic.Int64) {
	t.Helper()
	served = new(atomic.Int64)
	l, err := net.Listen("tcp", ip+":0")
	must(t, err)
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })}}
	s.Start()
	t.Cleanup(s.Close)
	_, port, err = net.SplitHostPort(l.Addr().String())
	must(t, err)
	return port, served
}

// names is a DNS server whose answers a test changes.
type names struct {
	conn net.PacketConn
	mu   sync.Mutex // guards to
	to   map[string][4]byte
}

func newNames(t *testing.T, to map[string][4]byte) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	n := &names{conn: conn, to: to}
	done := make(chan struct{})
	go func() { defer close(done); n.serve() }()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return n
}

func (n *names) move(name string, to [4]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to[name] = to
}

// serve answers until the connection is closed.
func (n *names) serve() {
	buf := make([]byte, 512)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var question dnsmessage.Message
		if question.Unpack(buf[:size]) != nil || len(question.Questions) != 1 {
			continue
		}
		q := question.Questions[0]
		answer := dnsmessage.Message{Header: dnsmessage.Header{ID: question.ID, Response: true, RecursionAvailable: true}, Questions: question.Questions}
		n.mu.Lock()
		to, ok := n.to[strings.TrimSuffix(q.Name.String(), ".")]
		n.mu.Unlock()
		switch {
		case !ok:
			answer.RCode = dnsmessage.RCodeNameError
		case q.Type == dnsmessage.TypeA:
			answer.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body: &dnsmessage.AResource{A: to}}}
		}
		if packed, err := answer.Pack(); err == nil {
			_, _ = n.conn.WriteTo(packed, from)
		}
	}
}

// visit calls a domain as an app does: it asks our DNS and goes where that says.
func (n *names) visit(t *testing.T, domain, port string) error {
	t.Helper()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
	ips, err := resolver.LookupHost(t.Context(), domain)
	if err != nil {
		return err
	}
	if len(ips) == 0 {
		return errors.New("no address for " + domain)
	}
	return topology.Get(t.Context(), "http://"+net.JoinHostPort(ips[0], port), http.StatusOK, "")
}

// E14: city B is down and its dispatch is not. One switch sends every user to A's
// domain, whose address is A's; B's own name leads to A for who still has it. One
// switch back restores both.
func TestE14CityDownWithItsDispatchUp(t *testing.T) {
	top := start(t, topology.Options{})
	portA, servedA := city(t, "127.0.0.2")
	portB, _ := city(t, "127.0.0.3")
	a, b := [4]byte{127, 0, 0, 2}, [4]byte{127, 0, 0, 3}
	dns := newNames(t, map[string][4]byte{"wapabst.a.com.cn": a, "wapcdst.b.com.cn": b, wap: a})
	hefei := func() []question {
		var of []question
		for _, q := range questions(top, 200) {
			if answer, err := top.Route(t.Context(), q.edge.Public, q.headers...); err == nil && answer.Region == "hf" {
				of = append(of, q)
			}
		}
		return of
	}
	users := hefei()
	if len(users) < 40 {
		t.Fatalf("only %d of 200 requests belong to Hefei", len(users))
	}
	must(t, dns.visit(t, "wapcdst.b.com.cn", portB))

	begin := time.Now()
	var o topology.Outcome
	must(t, top.Emergency(t.Context(), top.Controls[0], map[string]any{"action": "region_state", "reason": "Hefei is down",
		"targets": []map[string]string{{"app": "mobile", "region": "hf", "expect": "active", "state": "off"}}}, &o))
	dns.move("wapcdst.b.com.cn", a)
	must(t, top.WaitServing(t.Context(), o.Release))
	flipped := time.Since(begin)
	for _, q := range users {
		answer, err := top.Route(t.Context(), top.Edge("edge-hf-1").Public, q.headers...) // B's own dispatch says so
		if err != nil || answer.Region != "sh" || answer.Domain != "wapabst.a.com.cn" {
			t.Fatalf("after the switch %v: %+v, %v", q.headers, answer, err)
		}
	}
	was := servedA.Load()
	must(t, dns.visit(t, "wapabst.a.com.cn", portA))
	must(t, dns.visit(t, "wapcdst.b.com.cn", portA)) // an app that kept its domain
	if servedA.Load() != was+2 {
		t.Errorf("city A served %d of 2 visits", servedA.Load()-was)
	}
	must(t, top.Emergency(t.Context(), top.Controls[0], map[string]any{"action": "region_state", "reason": "Hefei is back",
		"targets": []map[string]string{{"app": "mobile", "region": "hf", "expect": "off", "state": "active"}}}, &o))
	dns.move("wapcdst.b.com.cn", b)
	must(t, top.WaitServing(t.Context(), o.Release))
	if back := hefei(); len(back) != len(users) {
		t.Errorf("%d requests belong to Hefei after the switch back, %d before", len(back), len(users))
	}
	must(t, dns.visit(t, "wapcdst.b.com.cn", portB))
	figure(t, "E14", "one switch moved all of %d requests of Hefei in %s (limit 2 s), one moved them back", len(users), ms(flipped))
	if flipped > 2*time.Second {
		t.Errorf("the switch took %s", flipped)
	}
}

// E15: city B is down with its dispatch. Its app has no answer, takes the built-in
// wap domain, and that leads to A.
func TestE15CityDownWithItsDispatch(t *testing.T) {
	top := start(t, topology.Options{})
	portA, servedA := city(t, "127.0.0.2")
	dns := newNames(t, map[string][4]byte{wap: {127, 0, 0, 3}})
	for _, name := range []string{"edge-hf-1", "edge-hf-2"} {
		must(t, top.Edge(name).Pause()) // the black hole that a dead city is: no refusal, no answer
	}
	dns.move(wap, [4]byte{127, 0, 0, 2})
	begin := time.Now()
	r := app(t, top, "d-77", top.Edge("edge-hf-1").Public, top.Edge("edge-hf-2").Public).Route(t.Context())
	took := time.Since(begin)
	if r.Domain != wap || r.Source != client.BuiltIn || took > 2200*time.Millisecond {
		t.Errorf("%+v after %s", r, took)
	}
	must(t, dns.visit(t, r.Domain, portA))
	if servedA.Load() != 1 {
		t.Error("city A was not visited")
	}
	// An app that also knows A's entry is answered by A's dispatch.
	both := app(t, top, "d-77", top.Entries["hf"], top.Entries["sh"]).Route(t.Context())
	if both.Source != client.Fresh {
		t.Errorf("with A's entry as the second host: %+v", both)
	}
	figure(t, "E15", "Hefei and its dispatch black-holed: %s after %s, at A; with A's entry: an answer from %s", r.Domain, ms(took), both.Source)
}
