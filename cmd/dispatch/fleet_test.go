package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/internal/testenv"
)

// free is an address of this machine that nobody listens on now.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// edgeFiles brings an edge what it may have of a control node's data folder: the
// session key, the list key, the token and the public keys.
func edgeFiles(t *testing.T, control string) (dir string, flags []string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"session.jwks", "list.jwks", "fleet.token"} {
		data, err := os.ReadFile(filepath.Join(control, "keys", name))
		if os.IsNotExist(err) && name == "fleet.token" {
			continue // certificates stand for it
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "keys", name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	exit, jwks, stderr := command(t, "keys", "export", "--publisher-key-file", filepath.Join(control, "keys/publisher.jwks"),
		"--record-key-file", filepath.Join(control, "keys/record.jwks"))
	if exit != 0 {
		t.Fatal(stderr)
	}
	trust := filepath.Join(dir, "trust.jwks")
	if err := os.WriteFile(trust, []byte(jwks), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, []string{"--role", "edge", "--data", dir, "--trust-keys", trust, "--allowed-suffixes", "a.com.cn,b.com.cn,bank.example"}
}

const swapToSpare = `{"action":"swap","reason":"sh-main burns","confirm":"sh","targets":[{"app":"mobile","region":"sh","expect":"sh-main","from":"sh-main","to":"sh-spare"}]}`

// An edge has no database and no key that signs. It takes what its control node
// publishes, says so, goes on without it, and starts again without it.
func TestAnEdgeFollowsItsControlNode(t *testing.T) {
	data, listen := t.TempDir(), free(t)
	control := start(t, "--demo", "--data", data, "--fleet-listen", listen)
	dir, flags := edgeFiles(t, data)
	flags = append(flags, "--control", "http://"+listen, "--replica-id", "edge-1")
	edge := start(t, flags...)
	edge.log.await(t, `"msg":"release in use","release":1,`, nil)
	if a := edge.route("app=mobile", "X-Device-Id", "d-1001"); a.Domain != "wapabst.a.com.cn" {
		t.Errorf("the edge answers %+v", a)
	}
	status, body := control.post("/emergency", swapToSpare)
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"replicas":2,"of":2`)) {
		t.Errorf("swap: %d %s", status, body)
	}
	if a := edge.route("app=mobile", "X-Device-Id", "d-1001"); a.Domain != "wapabst2.a.com.cn" || a.Release != 2 {
		t.Errorf("after an acknowledged swap the edge answers %+v", a)
	}
	if _, body := control.get(control.admin+"/api/v1/fleet", "Authorization", "Bearer "+control.token); !bytes.Contains(body, []byte(`"edge-1"`)) {
		t.Errorf("fleet: %s", body)
	}
	for _, name := range []string{"publisher.jwks", "record.jwks", "list-seal.jwks"} {
		if _, err := os.Stat(filepath.Join(dir, "keys", name)); err == nil {
			t.Errorf("the edge has made %s", name)
		}
	}
	control.stop()
	edge.stop()
	began := time.Now()
	edge = start(t, flags...)
	if status, ready := edge.get(edge.ops + "/readyz"); status != http.StatusOK || time.Since(began) > 3*time.Second {
		t.Errorf("alone: ready after %s: %d %s", time.Since(began), status, ready)
	}
	if a := edge.route("app=mobile", "X-Device-Id", "d-1001"); a.Domain != "wapabst2.a.com.cn" {
		t.Errorf("alone the edge answers %+v", a)
	}
}

// P4: an edge that never had a release is not ready and answers 503.
func TestAnEdgeWithoutAReleaseIsNotReady(t *testing.T) {
	keys := t.TempDir()
	if exit, _, stderr := command(t, "keys", "new", filepath.Join(keys, "keys")); exit != 0 {
		t.Fatal(stderr)
	}
	_, flags := edgeFiles(t, keys)
	edge := start(t, append(flags, "--control", "http://"+free(t))...)
	for _, url := range []string{edge.ops + "/readyz", edge.public + "/readyz", edge.public + "/route?app=mobile"} {
		if status, body := edge.get(url); status != http.StatusServiceUnavailable {
			t.Errorf("%s is %d %s, want 503", url, status, body)
		}
	}
	if status, _ := edge.get(edge.public + "/healthz"); status != http.StatusOK {
		t.Errorf("healthz is %d, want 200", status)
	}
}

// What an edge must not have, and what joins nodes over a network, is named at
// once at the start.
func TestRolesRefuseWhatIsNotTheirs(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"an edge with a control node's": {
			[]string{"--role", "edge", "--db", "mysql:u:p@tcp(127.0.0.1:1)/d", "--publisher-key-file", "p", "--record-key-file", "r", "--list-seal-key-file", "s",
				"--bootstrap", "b", "--audit-sink", "syslog", "--four-eyes", "off"},
			[]string{"--db:", "--publisher-key-file:", "--record-key-file:", "--list-seal-key-file:", "--bootstrap:", "--audit-sink:", "--four-eyes:",
				"--trust-keys: is required", "--control: an edge needs", "--allowed-suffixes: is required"},
		},
		"demo of one plane":     {[]string{"--role", "control", "--demo"}, []string{"--demo: runs everything"}},
		"trust of a control":    {[]string{"--role", "control", "--trust-keys", "f"}, []string{"--trust-keys: is for --role edge"}},
		"half of a certificate": {[]string{"--fleet-tls-cert", "c"}, []string{"--fleet-tls-cert: needs --fleet-tls-key"}},
		"registry nobody knows": {[]string{"--discovery", "etcd://h:1"}, []string{"--discovery: must be static:FILE or consul://"}},
		"no coordinates":        {[]string{"--discovery", "consul://h:1", "--region", "sh"}, []string{"give --cluster, --region, --env and --version-label"}},
		"no Redis":              {[]string{"--session-map", "redis", "--redis", "http://h"}, []string{"--redis: must be redis://"}},
		"a map without Redis":   {[]string{"--session-map", "redis"}, []string{"--session-map: redis needs --redis"}},
		"unknown role":          {[]string{"--role", "both"}, []string{`--role must be one of "all","control","edge"`}},
	} {
		exit, _, stderr := command(t, append([]string{"serve"}, c.args...)...)
		for _, want := range c.want {
			if exit != 2 || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit %d, %q is missing from:\n%s", name, exit, want, stderr)
			}
		}
	}
}

// briefly runs a command that ought to refuse, and ends one that does not.
func briefly(t *testing.T, args ...string) (exit int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	out := new(printed)
	exit = run(ctx, args, out, out)
	return exit, out.String()
}

// SEC29 of safety.md: nothing between nodes travels in plain text beyond
// loopback, and nobody is believed whose certificate is another's.
func TestSEC29PlainTextStaysOnLoopback(t *testing.T) {
	suffixes := []string{"--allowed-suffixes", "bank.example"}
	for _, plain := range [][]string{
		{"--fleet-listen", ":8083"}, {"--fleet-listen", "0.0.0.0:8083"}, {"--fleet-listen", "[::]:8083"}, {"--fleet-listen", "10.1.0.7:8083"},
		{"--fleet-listen", "control-1:8083"}, {"--control", "http://10.1.0.7:8083"}, {"--control", "http://control-1:8083"},
		{"--control", "http://127.0.0.1.evil.example:8083"}, {"--control", "http://token@127.0.0.1:8083"},
	} {
		exit, said := briefly(t, append(append([]string{"serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
			"--ops-listen", "127.0.0.1:0"}, suffixes...), plain...)...)
		if exit != 2 || !strings.Contains(said, plain[0]+":") {
			t.Errorf("%v: exit %d: %s", plain, exit, said)
		}
	}

	data, listen := t.TempDir(), free(t)
	certs := newAuthority(t)
	cert, key := certs.issue("control")
	control := start(t, "--demo", "--data", data, "--fleet-listen", listen, "--fleet-tls-cert", cert, "--fleet-tls-key", key, "--fleet-tls-ca", certs.file)
	_, flags := edgeFiles(t, data)
	flags = append(flags, "--control", "https://"+listen)
	t.Run("certificates of one authority", func(t *testing.T) {
		cert, key := certs.issue("edge")
		edge := start(t, append(flags, "--fleet-tls-cert", cert, "--fleet-tls-key", key, "--fleet-tls-ca", certs.file)...)
		edge.log.await(t, `"msg":"release in use","release":1,`, nil)
		edge.stop()
	})
	other := newAuthority(t)
	foreignCert, foreignKey := other.issue("edge")
	ownCert, ownKey := certs.issue("edge")
	for name, tls := range map[string][]string{
		"a certificate of somebody else":  {"--fleet-tls-cert", foreignCert, "--fleet-tls-key", foreignKey, "--fleet-tls-ca", certs.file},
		"a control node of somebody else": {"--fleet-tls-cert", ownCert, "--fleet-tls-key", ownKey, "--fleet-tls-ca", other.file},
	} {
		t.Run(name, func(t *testing.T) {
			_, flags := edgeFiles(t, data)
			edge := start(t, append(append(flags, "--control", "https://"+listen), tls...)...)
			edge.awaitReady(`sources: control \S+: .*(tls|certificate)`)
			if status, _ := edge.get(edge.ops + "/readyz"); status != http.StatusServiceUnavailable {
				t.Errorf("it got a release: readyz is %d", status)
			}
			edge.stop()
		})
	}
	t.Run("plain text to a listener with TLS", func(t *testing.T) {
		resp, err := http.Post("http://"+listen+"/fleet/v1/watch", "application/json", strings.NewReader("{}"))
		if err == nil {
			defer resp.Body.Close()
			if resp.StatusCode < 400 {
				t.Errorf("plain text is answered with %d", resp.StatusCode)
			}
		}
	})
	control.stop()
}

// The token is what keeps others on this machine, and edges of another
// deployment, from a control node without certificates.
func TestAWrongTokenGetsNothing(t *testing.T) {
	data, listen := t.TempDir(), free(t)
	control := start(t, "--demo", "--data", data, "--fleet-listen", listen)
	for _, header := range []string{"", "Bearer ", "Bearer changeme", "Basic Og=="} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listen+"/fleet/v1/watch?wait=0s", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if status, body := control.do(req, "Authorization", header); status != http.StatusUnauthorized {
			t.Errorf("with %q: %d %s", header, status, body)
		}
	}
}

// authority signs certificates of a test.
type authority struct {
	t    *testing.T
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, file: filepath.Join(t.TempDir(), "ca.pem")}
	a.key = newECKey(t)
	der := a.sign(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, &a.key.PublicKey)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) sign(template *x509.Certificate, public *ecdsa.PublicKey) []byte {
	a.t.Helper()
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

// issue makes a certificate for both directions on this machine.
func (a *authority) issue(name string) (cert, key string) {
	a.t.Helper()
	dir, private := a.t.TempDir(), newECKey(a.t)
	der := a.sign(&x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, &private.PublicKey)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(a.t, cert, "CERTIFICATE", der)
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, key, "EC PRIVATE KEY", secret)
	return cert, key
}

func newECKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// SEC19, the last part: whoever owns the database can write the whole chain anew,
// but not what has left it.
func TestTheAuditSinkShowsARewrittenTrail(t *testing.T) {
	data := t.TempDir()
	sink := filepath.Join(t.TempDir(), "heads")
	r := start(t, "--demo", "--data", data, "--audit-sink", sink)
	r.awaitFile(sink, `"seq":`)
	verify := func() (int, []byte) {
		return r.get(r.admin+"/api/v1/audit/verify", "Authorization", "Bearer "+r.token)
	}
	if status, body := verify(); status != http.StatusOK {
		t.Fatalf("verify: %d %s", status, body)
	}
	line, err := os.ReadFile(sink)
	if err != nil {
		t.Fatal(err)
	}
	var head auditLine
	if err := json.Unmarshal(bytes.SplitN(line, []byte("\n"), 2)[0], &head); err != nil || head.Deployment != "dispatch" || head.Seq == 0 {
		t.Fatalf("what left is %s (%v)", line, err)
	}
	// As seen from the sink, a trail that was written anew has other hashes, and one
	// that was cut has fewer rows.
	for name, change := range map[string]func(*auditLine){
		"rewritten": func(l *auditLine) { l.Hash[0] ^= 1 },
		"cut":       func(l *auditLine) { l.Seq += 10 },
	} {
		other := head
		change(&other)
		text, err := json.Marshal(other)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(sink, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, body := verify(); status != http.StatusConflict || !bytes.Contains(body, []byte("audit_broken")) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if err := os.WriteFile(sink, append(line, `{"at":"2027-03-01T02:3`...), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, body := verify(); status != http.StatusOK {
		t.Errorf("with a line that a crash cut short: %d %s", status, body)
	}
}

// With every control node down an edge that never had a release gets it from
// Redis, and app sessions that have only an id are kept there.
func TestAnEdgeNeedsOnlyRedis(t *testing.T) {
	redis := testenv.StartRedis(t)
	data := t.TempDir()
	control := start(t, "--demo", "--data", data, "--redis", redis.URL())
	if status, body := control.post("/emergency", swapToSpare); status != http.StatusOK {
		t.Fatalf("swap: %d %s", status, body)
	}
	_, flags := edgeFiles(t, data)
	flags = append(flags, "--redis", redis.URL(), "--session-map", "redis")
	before := start(t, flags...)
	before.log.await(t, `"msg":"release in use","release":2,.*"from":"redis"`, nil)
	before.stop()
	control.stop()
	_, flags = edgeFiles(t, data) // a folder without a copy
	edge := start(t, append(flags, "--redis", redis.URL(), "--session-map", "redis")...)
	edge.log.await(t, `"msg":"release in use","release":2,.*"from":"redis"`, nil)
	if a := edge.route("app=mobile", "X-Device-Id", "d-1001"); a.Domain != "wapabst2.a.com.cn" {
		t.Errorf("the edge answers %+v", a)
	}
	if up := edge.metric(`dispatch_source_up\{source="redis"\}`); up != "1" {
		t.Errorf("dispatch_source_up is %q, want 1", up)
	}
	// Renewed with the record key alone, in Redis, under a running edge.
	exit, stdout, stderr := command(t, "renew", "--record-key-file", filepath.Join(data, "keys/record.jwks"), "--trust-keys", flags[5], "--redis", redis.URL())
	if exit != 0 || !strings.Contains(stdout, "redis: records of release 2") {
		t.Fatalf("renew: %d %s %s", exit, stdout, stderr)
	}
	edge.log.await(t, `"msg":"release in use","release":2,"seq":2,"from":"redis"`, nil)
}

// An edge finds its control nodes in the registry, and both are entered there.
func TestAnEdgeFindsItsControlNodeInConsul(t *testing.T) {
	registry := "consul://" + testenv.Consul(t)
	place := []string{"--discovery", registry, "--cluster", "k1", "--region", "sh", "--env", "test", "--version-label", "v1"}
	data := t.TempDir()
	control := start(t, append([]string{"--demo", "--data", data, "--replica-id", "control-" + t.Name()}, place...)...)
	control.log.await(t, `"msg":"registered; callers warm it up first","source":"consul","of":"dispatch.fleet"`, nil)
	_, flags := edgeFiles(t, data)
	edge := start(t, append(append(flags, "--replica-id", "edge-"+t.Name()), place...)...)
	edge.log.await(t, `"msg":"registered; callers warm it up first","source":"consul","of":"dispatch.public"`, nil)
	edge.log.await(t, `"msg":"release in use","release":1,.*"from":"control 127\.0\.0\.1:\d+"`, nil)
	if status, body := control.post("/emergency", strings.Replace(swapToSpare, `"confirm":"sh"`, `"confirm":"test/sh"`, 1)); status != http.StatusOK || !bytes.Contains(body, []byte(`"replicas":2,"of":2`)) {
		t.Errorf("swap: %d %s", status, body)
	}
}

// A replica with a wrong token is in the registry, so apps come to it; no change ever
// will. The control node says so until it is heard.
func TestAReplicaThatNobodyHearsIsNamed(t *testing.T) {
	registry := "consul://" + testenv.Consul(t)
	place := []string{"--discovery", registry, "--cluster", "k1", "--region", "sh", "--env", "test", "--version-label", "v1"}
	data := t.TempDir()
	control := start(t, append([]string{"--demo", "--data", data, "--replica-id", "control-" + t.Name()}, place...)...)
	dir, flags := edgeFiles(t, data)
	token := filepath.Join(dir, "keys", "fleet.token")
	right, err := signed.ReadTokens(token)
	if err != nil {
		t.Fatal(err)
	}
	wrong := []byte(right[0])
	slices.Reverse(wrong)
	if err := signed.WriteTokens(token, string(wrong)); err != nil {
		t.Fatal(err)
	}
	flags = append(append(flags, "--replica-id", "edge-"+t.Name()), place...)
	edge := start(t, flags...)
	edge.log.await(t, `"msg":"registered; callers warm it up first","source":"consul","of":"dispatch.public"`, nil)
	named := `"unheard":[{"id":"edge-` + t.Name() + `","address":"` + strings.TrimPrefix(edge.public, "http://") + `","region":"sh"}]`
	control.awaitFleet(regexp.QuoteMeta(named))

	edge.stop()
	if err := signed.WriteTokens(token, right...); err != nil {
		t.Fatal(err)
	}
	start(t, flags...)
	control.awaitFleet(`"unheard":\[\]`)
}

// awaitFleet waits until GET /fleet answers as the pattern says.
func (r *running) awaitFleet(pattern string) {
	r.t.Helper()
	r.awaitText(pattern, func() string {
		_, body := r.get(r.admin+"/api/v1/fleet", "Authorization", "Bearer "+r.token)
		return string(body)
	})
}
