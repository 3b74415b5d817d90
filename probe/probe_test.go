package probe_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"dispatch.example/dispatch/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loopback lets tests probe this machine; everybody else must say so, too.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// city is a TLS server for *.bank.example on loopback, and who must be believed for it.
type city struct {
	port  int
	roots *x509.CertPool
	conns atomic.Int64
	hits  atomic.Int64
}

func newCity(t *testing.T, ends time.Time, answer http.HandlerFunc) *city {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: ends,
		DNSNames: []string{"*.bank.example"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	c := &city{roots: x509.NewCertPool()}
	c.roots.AddCert(cert)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.hits.Add(1)
		answer(w, r)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.conns.Add(1)
		}
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	c.port = s.Listener.Addr().(*net.TCPAddr).Port
	return c
}

func fine(http.ResponseWriter, *http.Request) {}

// zone is a DNS server on loopback. Each name has records, or a list of lists that
// are answered in turn.
func zone(t *testing.T, records map[string][][]string) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	var mu sync.Mutex
	asked := map[string]int{}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		mu.Lock()
		defer mu.Unlock()
		answer := new(dns.Msg).SetReply(q)
		name, kind := strings.ToLower(q.Question[0].Name), q.Question[0].Qtype
		for hops := 0; hops < 4; hops++ { // as a server that resolves would
			turns, known := records[strings.TrimSuffix(name, ".")]
			if !known {
				answer.Rcode = dns.RcodeNameError
				break
			}
			turn := turns[min(asked[name], len(turns)-1)]
			alias := ""
			for _, text := range turn {
				r, err := dns.NewRR(name + " 1 IN " + text)
				if err != nil {
					panic(err)
				}
				if c, ok := r.(*dns.CNAME); ok {
					alias = c.Target
				} else if r.Header().Rrtype != kind {
					continue
				}
				answer.Answer = append(answer.Answer, r)
			}
			if kind == dns.TypeA {
				asked[name]++
			}
			if alias == "" {
				break
			}
			name = alias
		}
		_ = w.WriteMsg(answer) // who asked has gone
	})}
	done := make(chan error, 1)
	go func() { done <- server.ActivateAndServe() }()
	t.Cleanup(func() {
		_ = server.Shutdown()
		<-done
	})
	return conn.LocalAddr().String()
}

func at(records ...string) [][]string { return [][]string{records} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rounds runs a prober for so many rounds and gives its states by host.
func rounds(t *testing.T, n int, opt probe.Options) map[string]probe.State {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opt.Prober, opt.Every = "control-1", time.Millisecond
	states, left := map[string]probe.State{}, n
	opt.Report = func(_ context.Context, all []probe.State) {
		if left--; left == 0 {
			for _, s := range all {
				states[s.Host] = s
			}
			cancel()
		}
	}
	p, err := probe.New(opt)
	must(t, err)
	must(t, p.Run(ctx))
	return states
}

func only(hosts ...string) func() []string { return func() []string { return hosts } }

func TestAHostIsProbedAsAnAppWouldMeetIt(t *testing.T) {
	t.Parallel()
	ends := time.Now().Add(90 * 24 * time.Hour).UTC().Truncate(time.Second)
	var asked atomic.Value
	c := newCity(t, ends, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.Host + r.URL.Path + " " + r.TLS.ServerName)
		switch r.Host {
		case "old.bank.example":
			http.Redirect(w, r, "https://a.bank.example/elsewhere", http.StatusFound)
		case "login.bank.example":
			w.WriteHeader(http.StatusUnauthorized)
		case "broken.bank.example":
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	names := map[string][][]string{"alias.bank.example": at("CNAME a.bank.example."), "other.example": at("A 127.0.0.1"), "nothing.bank.example": at("TXT hello")}
	for _, name := range []string{"a", "old", "login", "broken"} {
		names[name+".bank.example"] = at("A 127.0.0.1")
	}
	hosts := []string{"a.bank.example", "alias.bank.example", "old.bank.example", "login.bank.example", "broken.bank.example", "other.example", "nothing.bank.example", "none.bank.example"}
	states := rounds(t, 3, probe.Options{Hosts: only(hosts...), DNS: zone(t, names), Port: c.port, RootCAs: c.roots, AllowCIDRs: loopback})
	for host, want := range map[string]struct{ state, problem string }{
		"a.bank.example":       {probe.Up, ""},
		"alias.bank.example":   {probe.Up, ""},
		"old.bank.example":     {probe.Up, ""},
		"login.bank.example":   {probe.Up, ""},
		"broken.bank.example":  {probe.Down, "status: 502"},
		"other.example":        {probe.Down, "tls: "},
		"nothing.bank.example": {probe.Down, "dns: nothing.bank.example has no address"},
		"none.bank.example":    {probe.Down, "dns: none.bank.example has no address"},
	} {
		s := states[host]
		if s.State != want.state || !strings.HasPrefix(s.Problem, want.problem) || (want.problem == "") != (s.Problem == "") {
			t.Errorf("%s is %s: %q, want %s: %q", host, s.State, s.Problem, want.state, want.problem)
		}
		if strings.HasSuffix(host, "nothing.bank.example") || strings.HasSuffix(host, "none.bank.example") {
			continue
		}
		if !s.Expires.Equal(ends) {
			t.Errorf("the certificate of %s ends %s, want %s", host, s.Expires, ends)
		}
	}
	if got := rounds(t, 1, probe.Options{Hosts: only("a.bank.example"), DNS: zone(t, names), Port: c.port, Path: "/up", RootCAs: c.roots, AllowCIDRs: loopback}); got["a.bank.example"].Problem != "" {
		t.Errorf("%+v", got)
	}
	if got := asked.Load(); got != "GET a.bank.example/up a.bank.example" {
		t.Errorf("it asked %s", got)
	}
}

// A certificate that nobody may believe any more still says when it ended.
func TestACertificateThatEndsIsSaid(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	for name, ends := range map[string]time.Duration{"ended": -time.Minute, "soon": 20 * 24 * time.Hour, "later": 22 * 24 * time.Hour} {
		c := newCity(t, time.Now().Add(ends), fine)
		log.Reset()
		s := rounds(t, 4, probe.Options{Hosts: only("a.bank.example"), DNS: zone(t, map[string][][]string{"a.bank.example": at("A 127.0.0.1")}),
			Port: c.port, RootCAs: c.roots, AllowCIDRs: loopback, Log: slog.New(slog.NewJSONHandler(&log, nil))})["a.bank.example"]
		if (s.Problem == "") != (name != "ended") || s.Expires.IsZero() {
			t.Errorf("%s: %+v", name, s)
		}
		want := 1
		if name == "later" {
			want = 0
		}
		if n := strings.Count(log.String(), "a certificate ends soon"); n != want {
			t.Errorf("%s is warned of %d times, want %d:\n%s", name, n, want, log.String())
		}
	}
}

// SEC20: no name, however it is answered, leads a probe to this machine, to a
// metadata service, into a private network or further than one answer.
func TestSEC20ProbesReachNothingButHosts(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	c := newCity(t, time.Now().Add(time.Hour), func(w http.ResponseWriter, r *http.Request) {
		switch r.Host {
		case "redirect.bank.example":
			w.Header().Set("Location", "http://169.254.169.254/latest/meta-data/")
			w.WriteHeader(http.StatusFound)
		case "huge.bank.example":
			for range 1 << 10 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
			_, _ = io.WriteString(w, "the end")
			t.Error("64 MB were taken")
		case "slow.bank.example":
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case "headers.bank.example":
			w.Header().Set("X-Long", strings.Repeat("a", 1<<20))
		}
	})
	refusals := map[string]struct {
		records [][]string
		problem string
	}{
		"loopback.bank.example":   {at("A 127.0.0.1"), "address: 127.0.0.1 is private"},
		"loopback2.bank.example":  {at("A 127.255.255.254"), "address: 127.255.255.254 is private"},
		"zero.bank.example":       {at("A 0.0.0.0"), "address: 0.0.0.0 is link-local or reserved"},
		"metadata.bank.example":   {at("A 169.254.169.254"), "address: 169.254.169.254 is link-local"},
		"alibaba.bank.example":    {at("A 100.100.100.200"), "address: 100.100.100.200 is link-local or reserved"},
		"mapped.bank.example":     {at("AAAA ::ffff:127.0.0.1"), "address: 127.0.0.1 is private"},
		"mapped-md.bank.example":  {at("AAAA ::ffff:169.254.169.254"), "address: 169.254.169.254 is link-local"},
		"compatible.bank.example": {at("AAAA ::7f00:1"), "address: ::7f00:1 is link-local or reserved"},
		"nat64.bank.example":      {at("AAAA 64:ff9b::7f00:1"), "address: 64:ff9b::7f00:1 is link-local or reserved"},
		"6to4.bank.example":       {at("AAAA 2002:7f00:1::1"), "address: 2002:7f00:1::1 is link-local or reserved"},
		"loopback6.bank.example":  {at("AAAA ::1"), "address: ::1 is private"},
		"local6.bank.example":     {at("AAAA fe80::1"), "address: fe80::1 is link-local"},
		"private6.bank.example":   {at("AAAA fd00::1"), "address: fd00::1 is private"},
		"aws6.bank.example":       {at("AAAA fd00:ec2::254"), "address: fd00:ec2::254 is link-local or reserved"},
		"private.bank.example":    {at("A 10.1.2.3"), "address: 10.1.2.3 is private"},
		"private172.bank.example": {at("A 172.31.0.1"), "address: 172.31.0.1 is private"},
		"private192.bank.example": {at("A 192.168.0.1"), "address: 192.168.0.1 is private"},
		"shared.bank.example":     {at("A 100.64.0.1"), "address: 100.64.0.1 is private"},
		"multicast.bank.example":  {at("A 224.0.0.1"), "address: 224.0.0.1 is link-local or reserved"},
		"broadcast.bank.example":  {at("A 255.255.255.255"), "address: 255.255.255.255 is link-local or reserved"},
		"alias.bank.example":      {at("CNAME loopback.bank.example."), "address: 127.0.0.1 is private"},
		"several.bank.example":    {at("A 127.0.0.1", "A 10.0.0.1"), "address: "},
		// Whoever looks the name up first and connects by name afterwards is led here.
		"rebinding.bank.example": {[][]string{{"AAAA 2001:db8::1"}, {"A 127.0.0.1"}}, ""},
	}
	names, hosts := map[string][][]string{}, []string{}
	for host, r := range refusals {
		names[host], hosts = r.records, append(hosts, host)
	}
	server := zone(t, names)
	opt := probe.Options{Hosts: only(hosts...), DNS: server, Port: c.port, RootCAs: c.roots, Timeout: 500 * time.Millisecond}
	for range 2 { // the second time rebinding.bank.example has its other address
		for host, s := range rounds(t, 1, opt) {
			if s.Recent[0].OK || !strings.HasPrefix(s.Problem, refusals[host].problem) {
				t.Errorf("%s: %q, want %q", host, s.Problem, refusals[host].problem)
			}
		}
	}
	if n := c.conns.Load(); n != 0 {
		t.Errorf("%d connections came to this machine", n)
	}

	// An option opens networks, and never those where no app is served.
	opt.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("10.0.0.0/8")}
	opt.Hosts = only("metadata.bank.example", "mapped-md.bank.example", "loopback.bank.example")
	for host, s := range rounds(t, 1, opt) {
		if !strings.HasPrefix(s.Problem, refusals[host].problem) {
			t.Errorf("with a network allowed, %s: %q", host, s.Problem)
		}
	}

	// What a host answers is bounded, too.
	answers := map[string]bool{"redirect.bank.example": true, "huge.bank.example": true, "slow.bank.example": false, "headers.bank.example": false}
	names, hosts = map[string][][]string{}, nil
	for host := range answers {
		names[host], hosts = at("A 127.0.0.1"), append(hosts, host)
	}
	began := time.Now()
	states := rounds(t, 1, probe.Options{Hosts: only(hosts...), DNS: zone(t, names), Port: c.port, RootCAs: c.roots, AllowCIDRs: loopback})
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("a slow host took %s", took)
	}
	for host, up := range answers {
		if s := states[host]; s.Recent[0].OK != up {
			t.Errorf("%s: up is %v: %q", host, s.Recent[0].OK, s.Problem)
		}
	}
	if n := c.hits.Load(); n != int64(len(answers)) {
		t.Errorf("%d requests for %d hosts: something was followed or asked again", n, len(answers))
	}
}

// SEC3: an alias of a name that does not exist is an alarm of its own.
func TestADanglingAliasIsAnAlarm(t *testing.T) {
	t.Parallel()
	c := newCity(t, time.Now().Add(time.Hour), fine)
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	server := zone(t, map[string][][]string{
		"gone.bank.example":  at("CNAME sh-7.cdn.example."),
		"chain.bank.example": at("CNAME gone.bank.example."),
		"fine.bank.example":  at("CNAME here.bank.example."), "here.bank.example": at("A 127.0.0.1"),
		"empty.bank.example": at("CNAME no-address.bank.example."), "no-address.bank.example": at("TXT a"),
	})
	hosts := []string{"gone.bank.example", "chain.bank.example", "fine.bank.example", "empty.bank.example", "never.bank.example"}
	states := rounds(t, 3, probe.Options{Hosts: only(hosts...), DNS: server, Port: c.port, RootCAs: c.roots, AllowCIDRs: loopback,
		Log: slog.New(slog.NewJSONHandler(&log, nil)), Registry: registry})
	for _, host := range hosts {
		s, want := states[host], host == "gone.bank.example" || host == "chain.bank.example"
		if s.Dangling() != want {
			t.Errorf("%s: dangling is %v: %q", host, s.Dangling(), s.Problem)
		}
		n := strings.Count(log.String(), `alias of a name that does not exist: whoever registers that name answers for it","host":"`+host)
		if n != map[bool]int{true: 1}[want] {
			t.Errorf("%s is warned of %d times:\n%s", host, n, log.String())
		}
	}
	if p := states["gone.bank.example"].Problem; p != "dangling_cname: gone.bank.example is an alias of sh-7.cdn.example, which does not exist" {
		t.Errorf("the problem is %q", p)
	}
	families, err := registry.Gather()
	must(t, err)
	shown := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			shown[name] = m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{"dispatch_probe_dangling_hosts": 2, "dispatch_probe_up gone.bank.example": 0, "dispatch_probe_up fine.bank.example": 1, "dispatch_probe_distrusted": 0} {
		if got, there := shown[name]; got != want || !there {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if left := shown["dispatch_certificate_expires_seconds fine.bank.example"]; left < 3500 || left > 3600 {
		t.Errorf("its certificate ends in %v s, want an hour", left)
	}
}

func TestADNSServerThatIsAwayIsNoDanglingAlias(t *testing.T) {
	t.Parallel()
	s := rounds(t, 1, probe.Options{Hosts: only("a.bank.example"), DNS: "127.0.0.1:1", Timeout: 200 * time.Millisecond})["a.bank.example"]
	if s.Dangling() || s.Problem == "" {
		t.Errorf("it is %+v", s)
	}
}

// What replaces DNS still leads nowhere that an address may not lead.
func TestALookupOfOnesOwnIsCheckedToo(t *testing.T) {
	t.Parallel()
	c := newCity(t, time.Now().Add(time.Hour), fine)
	here := func(context.Context, string) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort(fmt.Sprintf("127.0.0.1:%d", c.port))}, nil
	}
	opt := probe.Options{Hosts: only("a.bank.example"), Lookup: here, RootCAs: c.roots}
	if s := rounds(t, 1, opt)["a.bank.example"]; !strings.HasPrefix(s.Problem, "address: ") {
		t.Errorf("it is %+v", s)
	}
	opt.AllowCIDRs = loopback
	if s := rounds(t, 2, opt)["a.bank.example"]; s.State != probe.Up {
		t.Errorf("it is %+v", s)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]probe.Options{"no prober": {Hosts: only()}, "no hosts": {Prober: "control-1"}} {
		if _, err := probe.New(opt); err == nil {
			t.Errorf("%s: it is made", name)
		}
	}
}
