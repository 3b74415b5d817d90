package discovery

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
)

// running registers instances and keeps them until the returned function ends it.
func running(t *testing.T, source Source, instances ...Instance) (*Registration, func() error) {
	t.Helper()
	reg, err := Register(t.Context(), source, RegisterOptions{Force: true, Linger: -1}, instances...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- reg.Run(ctx) }()
	ended := false
	end := func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { _ = end() })
	return reg, end
}

// A08, B12: a few lines enter a server with two ports under two names.
func TestRegisterTwoPorts(t *testing.T) {
	t.Parallel()
	source := openFor(t, "consul://"+testenv.Consul(t))
	rpc := Instance{Service: "passport_server.rpc_service", Address: listener(t), Coordinates: home(), Labels: map[string]string{"zone": "a"}}
	control := Instance{Service: "passport_server.control_service", Address: listener(t), Coordinates: home()}
	reg, end := running(t, source, rpc, control)
	for i, in := range []Instance{rpc, control} {
		w, _ := watching(t, source, in.Service)
		s := await(t, w, soon, lists(in.Address.String()))
		if !s.Instances[0].Equal(reg.Instances()[i]) {
			t.Errorf("found %+v, registered %+v", s.Instances[0], reg.Instances()[i])
		}
		if s.Instances[0].Started.IsZero() || time.Since(s.Instances[0].Started) > time.Minute {
			t.Errorf("started %s", s.Instances[0].Started)
		}
		defer await(t, w, soon, lists())
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// A02, B16, T24: what is wrong is found before anything is written.
func TestRegisterChecksFirst(t *testing.T) {
	t.Parallel()
	source := openFor(t, "consul://"+testenv.Consul(t))
	good := Instance{Service: serviceOf(t), Address: listener(t), Coordinates: home()}
	for name, spoil := range map[string]func(*Instance){
		"region":       func(in *Instance) { in.Region = "" },
		"label":        func(in *Instance) { in.Labels = map[string]string{"a.b": ""} },
		"service":      func(in *Instance) { in.Service = "a/b" },
		"id":           func(in *Instance) { in.ID = "../x" },
		"port":         func(in *Instance) { in.Address.Port = 0 },
		"host":         func(in *Instance) { in.Address.Host = "a b" },
		"same id":      func(in *Instance) { in.ID = good.Service + "-127.0.0.1-" + fmt.Sprint(good.Address.Port) },
		"not listened": func(in *Instance) { in.Address.Port = 1 },
	} {
		bad := good
		spoil(&bad)
		if _, err := Register(t.Context(), source, RegisterOptions{Force: true}, good, bad); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Register(t.Context(), source, RegisterOptions{}, good); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("loopback without force: %v", err)
	}
	if _, err := Register(t.Context(), source, RegisterOptions{}); err == nil {
		t.Error("nothing was registered")
	}
	w, _ := watching(t, source, good.Service)
	await(t, w, soon, lists())
}

// T23: ids differ by themselves; one that is taken is refused while its holder lives.
func TestIDsOfInstances(t *testing.T) {
	t.Parallel()
	source := openFor(t, "consul://"+testenv.Consul(t)+"?ttl=1s")
	service := serviceOf(t)
	var ends []func() error
	ids := map[string]bool{}
	for range 3 {
		reg, end := running(t, source, Instance{Service: service, Address: listener(t), Coordinates: home()})
		ids[reg.Instances()[0].ID] = true
		ends = append(ends, end)
	}
	if len(ids) != 3 {
		t.Errorf("ids %v", ids)
	}
	forced := Instance{ID: "forced-" + service, Service: service + "-2", Address: listener(t), Coordinates: home()}
	lease, err := source.Register(t.Context(), forced)
	if err != nil {
		t.Fatal(err)
	}
	other := forced
	other.Address = listener(t)
	for _, name := range []string{forced.Service, service + "-3"} {
		other.Service = name
		if _, err := source.Register(t.Context(), other); fault.KindOf(err) != fault.Conflict || fault.CodeOf(err) != "id_taken" {
			t.Errorf("id of a live instance, as %s: %v", name, err)
		}
	}
	if again, err := source.Register(t.Context(), forced); err != nil || again == nil {
		t.Errorf("the same instance again: %v", err)
	}
	// Nobody renews: after its second the holder is dead, and a successor may come.
	other.Service = forced.Service
	w, _ := watching(t, source, forced.Service)
	await(t, w, soon, lists())
	if _, err := source.Register(t.Context(), other); err != nil {
		t.Errorf("id of a dead instance: %v", err)
	}
	await(t, w, soon, lists(other.Address.String()))
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release of what has gone: %v", err)
	}
	for _, end := range ends {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// T12: an agent that crashes and comes back empty loses nobody: watchers keep the
// list, and the entry is back within a renewal.
func TestAgentRestart(t *testing.T) {
	t.Parallel()
	agent := testenv.NewConsul(t, "")
	source := openFor(t, "consul://"+agent.Addr)
	service := serviceOf(t)
	in := Instance{Service: service, Address: listener(t), Coordinates: home()}
	reg, end := running(t, source, in)
	w, _ := watching(t, source, service)
	before := await(t, w, soon, lists(in.Address.String()))
	agent.Stop(t)
	agent.Start(t)
	asker := openFor(t, "consul://"+agent.Addr)
	deadline := time.After(RenewEvery + 5*time.Second)
	for back := false; !back; {
		select {
		case <-deadline:
			t.Fatalf("not registered again: %v", reg.Problem())
		case <-time.After(50 * time.Millisecond):
		}
		a, err := asker.(*consul).list(t.Context(), 0, service, 0)
		back = err == nil && len(a.instances) == 1
	}
	if now, _ := w.Current(); now.Version != before.Version {
		t.Errorf("the watcher saw version %d of %v meanwhile", now.Version, addresses(now))
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// X16, T18: the lease ends calls, and so does a check of the node; both without
// removing the entry.
func TestOnlyTheHealthyAreListed(t *testing.T) {
	t.Parallel()
	agent := testenv.NewConsul(t, "")
	source := openFor(t, "consul://"+agent.Addr+"?ttl=1s")
	service := serviceOf(t)
	kept, killed := instance(service, "10.0.0.1:80"), instance(service, "10.0.0.2:80")
	keptLease, err := source.Register(t.Context(), kept)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Register(t.Context(), killed); err != nil {
		t.Fatal(err)
	}
	w, _ := watching(t, source, service)
	renewed := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(renewed)
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
				_ = keptLease.Renew(context.Background()) // what is lost shows in the list
			}
		}
	}()
	defer func() { close(stop); <-renewed }()
	await(t, w, soon, lists("10.0.0.1:80"))
	client, err := api.NewClient(&api.Config{Address: agent.Addr})
	if err != nil {
		t.Fatal(err)
	}
	node := &api.AgentCheckRegistration{ID: "disk", Name: "disk", AgentServiceCheck: api.AgentServiceCheck{TTL: "1h", Status: api.HealthCritical}}
	if err := client.Agent().CheckRegister(node); err != nil {
		t.Fatal(err)
	}
	await(t, w, soon, lists())
	if err := client.Agent().CheckDeregister("disk"); err != nil {
		t.Fatal(err)
	}
	await(t, w, soon, lists("10.0.0.1:80"))
	all, err := client.Agent().Services()
	if err != nil || len(all) != 2 {
		t.Errorf("%d entries, %v; want both still there", len(all), err)
	}
}

// A18, T19: an instance that was killed is unhealthy at once, and Consul, which looks
// every 30 s, removes its entry once the shortest time it honours is over.
func TestKilledInstanceIsReaped(t *testing.T) {
	t.Parallel()
	agent := testenv.Consul(t)
	source := openFor(t, "consul://"+agent+"?ttl=1s&deregister-after=1m")
	in := instance(serviceOf(t), "10.0.0.1:80")
	killed := time.Now()
	if _, err := source.Register(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	w, _ := watching(t, source, in.Service)
	await(t, w, soon, lists())
	client, err := api.NewClient(&api.Config{Address: agent})
	if err != nil {
		t.Fatal(err)
	}
	within(t, 2*time.Minute+soon, "the entry is still there", func() bool {
		all, err := client.Agent().Services()
		return err == nil && all[in.ID] == nil
	})
	if took := time.Since(killed); took < time.Minute {
		t.Errorf("removed after %s", took)
	}
}

// A15: two dialects of one agent; what the catalogue names is as Consul spells it.
func TestConsulSpeaksADialect(t *testing.T) {
	t.Parallel()
	agent := testenv.Consul(t)
	source, err := Open("consul://"+agent, Options{Dialect: dialectOf(t, goodDialect)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	client, err := api.NewClient(&api.Config{Address: agent})
	if err != nil {
		t.Fatal(err)
	}
	raw := serviceOf(t) + "-v2"
	for id, env := range map[string]string{"good": "production", "typo": "stagging", "ours": "prod"} {
		if err := client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: id + raw, Name: raw, Address: "10.0.0.1", Port: 80,
			Meta: map[string]string{"environment": env, "idc": "hz"}}); err != nil {
			t.Fatal(err)
		}
	}
	names, err := source.Services(t.Context())
	if err != nil || !slices.Contains(names, raw) || slices.Contains(names, serviceOf(t)) {
		t.Errorf("Services = %v, %v", names, err)
	}
	w, _ := watching(t, source, raw)
	s := await(t, w, soon, func(s Snapshot) bool { return len(s.Instances) == 2 && len(s.Rejected) == 1 })
	for _, in := range s.Instances {
		if in.Service != serviceOf(t) || in.Coordinates != (Coordinates{"production", "cn-hangzhou", "prod", "v2"}) {
			t.Errorf("%+v", in)
		}
	}
	if s.Service != raw || !strings.Contains(s.Rejected[0].Why, `environment is "stagging"`) {
		t.Errorf("%s, rejected %v", s.Service, s.Rejected)
	}
}

// A03: what others entered without our coordinates is no candidate, and is shown.
func TestForeignEntriesAreRejected(t *testing.T) {
	t.Parallel()
	source := openFor(t, "consul://"+testenv.Consul(t))
	client, err := api.NewClient(&api.Config{Address: testenv.Consul(t)})
	if err != nil {
		t.Fatal(err)
	}
	service := serviceOf(t)
	full := func() map[string]string {
		return map[string]string{"cluster": "c", "region": "r", "env": "e", "version": "v", "team": "x"}
	}
	spoilt := func(key, value string) map[string]string {
		meta := full()
		meta[key] = value
		return meta
	}
	for id, meta := range map[string]map[string]string{
		"good": full(), "no-meta": nil, "blank-env": spoilt("env", " "), "no-version": spoilt("version", ""),
		"bad-weight": spoilt("weight", "-1"), "nan-weight": spoilt("weight", "NaN"), "bad-start": spoilt("started", "x"),
	} {
		port := 80
		if err := client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: id, Name: service, Address: "10.0.0.1", Port: port, Meta: meta}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "no-port", Name: service, Meta: full()}); err != nil {
		t.Fatal(err)
	}
	// A57: whoever enters a database gets no calls sent to it.
	if err := client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "database", Name: service, Address: "10.0.0.1", Port: 3306, Meta: full()}); err != nil {
		t.Fatal(err)
	}
	w, _ := watching(t, source, service)
	s := await(t, w, soon, func(s Snapshot) bool { return len(s.Instances) == 1 && len(s.Rejected) == 8 })
	if s.Instances[0].ID != "good" || s.Instances[0].Labels["team"] != "x" {
		t.Errorf("instances %+v", s.Instances)
	}
	var why []string
	for _, r := range s.Rejected {
		why = append(why, r.ID+": "+r.Why)
	}
	text := strings.Join(why, "\n")
	for _, part := range []string{"blank-env", "env: is required", "no-version", "version: is required", `weight "NaN"`, "must be 0 to 10000", "port 0", "port 3306 is MySQL's"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// C09: a change is seen within 300 ms.
func TestChangesArriveSoon(t *testing.T) {
	t.Parallel()
	source := openFor(t, "consul://"+testenv.Consul(t))
	service := serviceOf(t)
	in := instance(service, "10.0.0.1:80")
	w, _ := watching(t, source, service)
	await(t, w, soon, lists())
	var took []time.Duration
	for i := range 100 {
		in.Weight = new(i)
		started := time.Now()
		if _, err := source.Register(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		await(t, w, soon, func(s Snapshot) bool { return len(s.Instances) == 1 && s.Instances[0].Share() == i })
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	t.Logf("100 changes: median %s, p99 %s", took[50], took[98])
	if took[98] > 2*time.Second { // on a busy machine; what it is on an idle one is logged
		t.Errorf("p99 %s", took[98])
	}
}

// A token that is missing or too weak is an error that says so, and one in a file
// is read again when it is exchanged.
func TestACLs(t *testing.T) {
	t.Parallel()
	const unknown = "00000000-0000-4000-8000-00000000000f"
	agent := testenv.NewConsul(t, `acl { enabled = true, default_policy = "deny", tokens { master = "00000000-0000-4000-8000-000000000001" } }`)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(unknown+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := Instance{Service: serviceOf(t), Address: listener(t), Coordinates: home()}
	nobody := openFor(t, "consul://"+agent.Addr)
	if _, err := Register(t.Context(), nobody, RegisterOptions{Force: true}, in); fault.KindOf(err) != fault.Denied || !strings.Contains(err.Error(), "service:write for "+in.Service) {
		t.Errorf("without a token: %v", err)
	}
	source := openFor(t, "consul://"+agent.Addr+"?token-file="+token)
	if _, err := Register(t.Context(), source, RegisterOptions{Force: true}, in); fault.KindOf(err) != fault.Denied {
		t.Errorf("with an unknown token: %v", err)
	}
	w, _ := watching(t, source, in.Service)
	replaceFile(t, token, "00000000-0000-4000-8000-000000000001\n")
	deadline := time.After(soon)
	for { // a young agent does not know its own master token yet
		if _, err := source.(*consul).list(t.Context(), 0, in.Service, 0); err == nil {
			break
		}
		select {
		case <-deadline:
			t.Fatal("the agent never took its token")
		case <-time.After(50 * time.Millisecond):
		}
	}
	_, end := running(t, source, in)
	await(t, w, 2*soon, lists(in.Address.String()))
	if err := end(); err != nil {
		t.Error(err)
	}
}

// SEC29: TLS with certificates on both sides; plain text and others' CAs fail.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePKI(t, dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	testenv.NewConsul(t, fmt.Sprintf("ports { https = %d }\nca_file = %q\ncert_file = %q\nkey_file = %q\nverify_incoming_https = true\n",
		port, dir+"/ca.pem", dir+"/host.pem", dir+"/host.key"))
	url := fmt.Sprintf("consul://127.0.0.1:%d", port)
	good := fmt.Sprintf("%s?ca=%s/ca.pem&cert=%s/host.pem&key=%s/host.key", url, dir, dir, dir)
	in := Instance{Service: serviceOf(t), Address: listener(t), Coordinates: home()}
	for name, target := range map[string]string{
		"plain text":      url,
		"unknown CA":      strings.Replace(good, "ca.pem", "other.pem", 1),
		"no certificate":  url + "?ca=" + dir + "/ca.pem",
		"another's name":  good + "&server-name=consul.example",
		"the system's CA": url + "?tls=true",
	} {
		if _, err := Register(t.Context(), openFor(t, target), RegisterOptions{Force: true}, in); err == nil {
			t.Errorf("%s: registered", name)
		}
	}
	source := openFor(t, good)
	_, end := running(t, source, in)
	w, _ := watching(t, source, in.Service)
	await(t, w, soon, lists(in.Address.String()))
	if err := end(); err != nil {
		t.Error(err)
	}
}

// writePKI writes ca.pem, host.pem and host.key, and other.pem of another CA.
func writePKI(t *testing.T, dir string) {
	t.Helper()
	ca, caKey := certificate(t, nil, nil)
	other, _ := certificate(t, nil, nil)
	host, hostKey := certificate(t, ca, caKey)
	key, err := x509.MarshalPKCS8PrivateKey(hostKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: ca.Raw}, "other.pem": {Type: "CERTIFICATE", Bytes: other.Raw},
		"host.pem": {Type: "CERTIFICATE", Bytes: host.Raw}, "host.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// certificate is one of 127.0.0.1, signed by the parent, or a CA of its own.
func certificate(t *testing.T, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		IsCA: parent == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}
