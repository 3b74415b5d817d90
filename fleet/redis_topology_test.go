package fleet

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/release"
)

// Sentinel makes the replica of Redis the master; releases go on through the same address.
func TestRedisSentinelFailsOver(t *testing.T) {
	t.Parallel()
	master, b := testenv.StartRedis(t), newBank(t, 1000)
	host, port, _ := strings.Cut(master.Addr, ":")
	testenv.StartRedis(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	sentinel := testenv.StartSentinel(t, "bank", master)
	address := "redis+sentinel://" + sentinel.Addr + "/bank"
	control, r := newRedisAt(t, address), b.replica(t, "r1", nil)
	eventually(t, 20*time.Second, func() bool {
		return strings.Contains(redisDo(t, master, "INFO", "replication"), "state=online") &&
			strings.Contains(redisDo(t, sentinel, "INFO", "sentinel"), "slaves=1")
	})
	offerAll(t, control, b, b.now())
	r.Use([]Source{newRedisAt(t, address)})
	run(t, r.Run)
	r.serves(t, 1)
	if err := master.Stop(); err != nil {
		t.Fatal(err)
	}
	s := b.next(nil)
	eventually(t, 40*time.Second, func() bool { return control.Offer(t.Context(), Offer{All: s}, b.blobs) == nil })
	eventually(t, 20*time.Second, func() bool { return r.keeper.Status().Number == 2 })
	for n := uint64(3); n < 5; n++ {
		s, began := b.next(nil), time.Now()
		offerAll(t, control, b, s)
		r.serves(t, n)
		if took := time.Since(began); n == 4 && took > 2*time.Second {
			t.Errorf("on the new master a release took %v: nobody was nudged", took)
		}
	}
}

// Every command has one key, so a cluster can serve each; sessions spread over it.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	nodes, b := testenv.StartRedisCluster(t), newBank(t, 40_000)
	address := "redis+cluster://" + nodes[0].Addr + "," + nodes[1].Addr
	control, r := newRedisAt(t, address), b.replica(t, "r1", nil)
	offerAll(t, control, b, b.now())
	r.Use([]Source{newRedisAt(t, address)})
	run(t, r.Run)
	r.serves(t, 1)
	for n := uint64(2); n < 5; n++ {
		s, began := b.next(func(c *release.Change) {
			c.Lists = map[string]release.Digest{"staff-devices": b.list(40_000 + int(n))}
		}), time.Now()
		offerAll(t, control, b, s)
		r.serves(t, n)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("release %d took %v: nobody was nudged", n, took)
		}
	}
	holding := 0
	for _, node := range nodes {
		if redisDo(t, node, "DBSIZE") != "0" {
			holding++
		}
	}
	if holding != 1 {
		t.Errorf("%d nodes hold the deployment, its hash tag wants one", holding)
	}

	m := newSessionMapAt(t, address, func(o *SessionMapOptions) { o.Wait = time.Second })
	run(t, m.Run)
	for i := range 300 {
		m.Put(sessionKey(i), "token", time.Minute)
	}
	eventually(t, 10*time.Second, func() bool { return counted(m.written) == 300 })
	for i := range 300 {
		if token, ok := m.Get(t.Context(), sessionKey(i)); token != "token" || !ok {
			t.Fatalf("session %d = %q, %v", i, token, ok)
		}
	}
	for _, node := range nodes {
		if n := redisDo(t, node, "DBSIZE"); len(n) < 2 {
			t.Errorf("a node has %s keys of 300 sessions", n)
		}
	}
}

// The password may come beside the address; a wrong one is an error that says so.
func TestRedisPassword(t *testing.T) {
	t.Parallel()
	server, b := testenv.StartRedis(t), newBank(t, 10)
	redisDo(t, server, "ACL", "SETUSER", "app", "on", ">s@cret", "~dispatch:*", "&dispatch:*", "+@all", "-@admin", "-@dangerous")
	user := url.UserPassword("app", "s@cret")
	inside := newRedisAt(t, "redis://"+user.String()+"@"+server.Addr)
	offerAll(t, inside, b, b.now())
	beside := must(NewRedis(RedisOptions{URL: "redis://app@" + server.Addr, Password: "s@cret", Deployment: "bank", Registry: prometheus.NewRegistry()}))
	defer func() { _ = beside.Close() }()
	if s := must(beside.look(t.Context(), &Report{})); s == nil || s.Number != 1 {
		t.Errorf("look = %+v", s)
	}
	beside.subscribe(t.Context())
	if beside.sub == nil {
		t.Error("no subscription with the rights that docs/adr/0026 names")
	}
	wrong := newRedisAt(t, "redis://app:hunter2@"+server.Addr)
	if _, err := wrong.look(t.Context(), &Report{}); err == nil || !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a wrong password: %v", err)
	}
}
