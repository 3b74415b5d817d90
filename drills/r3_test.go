package drills

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"dispatch.example/dispatch/discovery/grpccall"
	"dispatch.example/dispatch/internal/testenv"
)

const (
	// limitR3 is how late a call may return after its deadline.
	limitR3 = 50 * time.Millisecond
	// ownDeadline is that of calls that bring one; the others get the service's.
	ownDeadline = 600 * time.Millisecond
	// usual is the service's.
	usual = 3 * time.Second
)

// late is by how much calls of one kind passed their deadline.
type late struct {
	kind  string
	calls []time.Duration
}

// R3, C03: a server accepts and never answers, answers half, or the network is cut:
// the call returns at its deadline, by the caller's doing alone.
func TestR3CallsEndAtTheirCaller(t *testing.T) {
	var mu sync.Mutex
	var all []late
	pauses := pausesOf(t)
	add := func(l late) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, l)
	}
	t.Run("kinds", func(t *testing.T) {
		for _, deadline := range []time.Duration{ownDeadline, 0} {
			t.Run("mute http "+deadline.String(), func(t *testing.T) { t.Parallel(); add(muteHTTP(t, "", deadline)) })
			t.Run("half an answer "+deadline.String(), func(t *testing.T) {
				t.Parallel()
				add(muteHTTP(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", deadline))
			})
			t.Run("mute grpc "+deadline.String(), func(t *testing.T) { t.Parallel(); add(muteRPC(t, deadline)) })
			for _, rpc := range []bool{false, true} {
				t.Run(fmt.Sprintf("cut %v %s", rpc, deadline), func(t *testing.T) {
					t.Parallel()
					if namespaces(t) {
						add(cutNetwork(t, rpc, deadline))
					}
				})
			}
		}
	})
	limit, machine := limitR3, pauses()
	if !*full {
		limit += machine // what it does to every timer is not the caller's
	}
	slices.SortFunc(all, func(a, b late) int { return cmp.Compare(a.kind, b.kind) })
	var rows [][]string
	for _, l := range all {
		figure(t, "R3", "%s: %d calls, late by %s (limit %s)", l.kind, len(l.calls), spread(notNegative(l.calls)), limitR3)
		if worst := quantile(l.calls, pick(0.99, 1)); worst > limit || len(l.calls) < pick(50, 200) {
			t.Errorf("%s: %d calls, %s after their deadline; the machine held timers up for %s", l.kind, len(l.calls), worst, machine)
		}
		for _, d := range l.calls { // below 0: it failed before
			rows = append(rows, []string{l.kind, micros(d)})
		}
	}
	keep(t, "R3", []string{"kind", "late_us"}, rows)
}

// A client without a deadline waits for as long as the server likes.
func TestR3NeedsADeadline(t *testing.T) {
	if !*full {
		return // that net/http waits does not change from commit to commit
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*usual)
	defer stop()
	begin := time.Now()
	err := get(ctx, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+mute(t, "")+"/")
	if ctx.Err() == nil {
		t.Fatalf("a call without a deadline ended after %s: %v", time.Since(begin), err)
	}
	figure(t, "R3", "a plain client without a deadline still waits after %s", short(3*usual))
}

// notNegative calls what came early in time.
func notNegative(all []time.Duration) (none []time.Duration) {
	for _, d := range all {
		none = append(none, max(d, 0))
	}
	return none
}

// describe names a kind with its deadline.
func describe(kind string, deadline time.Duration) string {
	if deadline == 0 {
		return kind + ", deadline of the service " + usual.String()
	}
	return kind + ", deadline of the call " + deadline.String()
}

// mute is a server that accepts, says no more than this, and keeps the connection.
func mute(t *testing.T, says string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var open sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			open.Go(func() {
				if _, err := conn.Read(make([]byte, 1<<10)); err == nil {
					_, _ = conn.Write([]byte(says)) // whoever is gone reads nothing
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends the loop
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		open.Wait()
	})
	return l.Addr().String()
}

func muteHTTP(t *testing.T, says string, deadline time.Duration) late {
	c := connect(t, roster(t, instance(t, "r3", mute(t, says), "v1")), "r3")
	client := webClient(t, c, nil)
	kind := "accepts and never answers, HTTP"
	if says != "" {
		kind = "stops within the body, HTTP"
	}
	return volley(t, describe(kind, deadline), deadline, func(ctx context.Context) error { return get(ctx, client, "http://r3/") })
}

func muteRPC(t *testing.T, deadline time.Duration) late {
	c := connect(t, roster(t, instance(t, "r3", mute(t, ""), "v1")), "r3")
	conn, err := grpc.NewClient("dispatch:///r3", append(grpccall.DialOptions(c), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	client := health.NewHealthClient(conn)
	return volley(t, describe("accepts and never answers, gRPC", deadline), deadline, func(ctx context.Context) error {
		_, err := client.Check(ctx, &health.HealthCheckRequest{})
		return err
	})
}

// volley begins many calls before the first has ended, so that the breaker is closed
// for all of them.
func volley(t *testing.T, kind string, deadline time.Duration, call func(context.Context) error) late {
	calls := pick(100, 300)
	l := late{kind: kind, calls: make([]time.Duration, calls)}
	p, limit := callerPart{Deadline: deadline}, cmp.Or(deadline, usual)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			ev := p.one(t.Context(), call)
			if ev.Outcome == served {
				t.Errorf("%s: a call was served", kind)
			}
			l.calls[i] = ev.Took - limit
		})
		pass(t, ownDeadline/2/time.Duration(calls))
	}
	all.Wait()
	return l
}

// cutNetwork cuts off the two instances that a caller has connections to.
func cutNetwork(t *testing.T, rpc bool, deadline time.Duration) late {
	n := newNetwork(t, 2)
	var servers []*testenv.Control
	service, kind, port := "r3", "network cut, HTTP", ":8080"
	if rpc {
		service, kind, port = "r3"+rpcSuffix, "network cut, gRPC", ":8081"
	}
	for i := 1; i <= 2; i++ {
		p := &serverPart{Service: "r3", Listen: n.host(i) + ":8080", RPC: n.host(i) + ":8081", Version: "v1"}
		servers = append(servers, launch(t, "server-"+strconv.Itoa(i), part{Server: p}, n.inside(i)...))
	}
	awaitReady(t, servers...)
	file := filepath.Join(t.TempDir(), "samples")
	p := &callerPart{Service: service, Rate: pick(50, 150), RPC: rpc, Deadline: deadline, Samples: file,
		Registry: roster(t, instance(t, service, n.host(1)+port, "v1"), instance(t, service, n.host(2)+port, "v1"))}
	c := start(t, "caller", part{Caller: p}, n.inside(0)...)
	pass(t, 2*time.Second)
	cut := time.Now()
	n.cut(t, 1)
	n.cut(t, 2)
	pass(t, usual+2*time.Second)
	must(t, c.Stop(10*time.Second))
	l := late{kind: describe(kind, deadline)}
	for _, ev := range readEvents(t, file) {
		if ev.Kind == "call" && ev.At.After(cut) && ev.Outcome != "ended" && ev.Outcome != "open" {
			l.calls = append(l.calls, ev.Took-cmp.Or(deadline, usual)) // below 0: no connection was to be had
		}
	}
	return l
}
