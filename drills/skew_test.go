package drills

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/internal/testenv"
)

const (
	// limitC22 is how much more the busiest instance may get than the least busy one.
	limitC22 = 1.10
	// rampC22 is how long a new instance waits and grows, and settleC22 what the
	// requirement gives it on top.
	rampC22, settleC22 = 60 * time.Second, 60 * time.Second
	// leastC22 calls an instance make the ratio mean something.
	leastC22 = 10_000
)

// C22: a service grows from four to eight instances. A minute after the ramp the
// busiest gets at most a tenth more than the least busy one, counted by calls, also
// those over connections from before. In small time is virtual and the transport a
// function; in full both are real.
func TestC22NewInstancesGetTheirPart(t *testing.T) {
	var counts map[string]int
	if *full {
		counts = grownReal(t)
	} else {
		synctest.Test(t, func(t *testing.T) { counts = grownInMemory(t) })
	}
	least, most := 1<<62, 0
	var rows [][]string
	for address, n := range counts {
		least, most = min(least, n), max(most, n)
		rows = append(rows, []string{address, strconv.Itoa(n)})
	}
	keep(t, "C22", []string{"instance", "calls"}, rows)
	skew := float64(most) / float64(max(least, 1))
	figure(t, "C22", "scale-out from 4 to 8, %s: %d to %d calls an instance from 60 s after the ramp, busiest over least busy %.3f (limit %.2f; seed: 1.61)", pick("virtual time", "real processes"), least, most, skew, limitC22)
	if len(counts) != 8 || skew > limitC22 || least < leastC22 {
		t.Errorf("%d instances were called, busiest over least busy is %.3f: %v", len(counts), skew, counts)
	}
}

func grownInMemory(t *testing.T) map[string]int {
	var listed []discovery.Instance
	for i := range 8 {
		listed = append(listed, instance(t, "c22", "127.0.0.1:"+strconv.Itoa(i+1), "v1"))
	}
	registry := roster(t, listed[:4]...)
	counts := map[string]int{}
	client := webClient(t, connect(t, registry, "c22"), roundTrip(func(req *http.Request) (*http.Response, error) {
		counts[req.URL.Host]++
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
	}))
	writeRoster(t, strings.TrimPrefix(registry, "static:"), listed...)
	pass(t, 2*time.Second+rampC22+settleC22)
	for range 9 * leastC22 { // eight, and one for chance
		must(t, get(t.Context(), client, "http://c22/"))
	}
	return counts
}

// grownReal lets two callers, one by HTTP and one by gRPC, call throughout.
func grownReal(t *testing.T) map[string]int {
	registry := "consul://" + testenv.Consul(t)
	launchOne := func(i int) string {
		p := &serverPart{Service: "c22", Listen: freeAddr(t), RPC: freeAddr(t), Registry: registry, Version: "v1"}
		start(t, "server-"+strconv.Itoa(i), part{Server: p})
		return p.Listen
	}
	var servers []string
	for i := range 4 {
		servers = append(servers, launchOne(i))
	}
	callers := make([]*testenv.Control, 2)
	for i, name := range []string{"c22", "c22" + rpcSuffix} {
		callers[i] = start(t, "caller", part{Caller: &callerPart{Service: name, Registry: registry, RPC: i == 1, Rate: 600, Samples: filepath.Join(t.TempDir(), "samples")}})
	}
	pass(t, 2*time.Second)
	for i := 4; i < 8; i++ {
		servers = append(servers, launchOne(i))
	}
	pass(t, 2*time.Second+rampC22+settleC22)
	before := seen(t, servers)
	within(t, 3*time.Minute, func() error {
		pass(t, time.Second)
		for address, n := range seen(t, servers) {
			if n-before[address] < leastC22 {
				return errors.New(address + " has too few calls")
			}
		}
		return nil
	})
	after := seen(t, servers)
	for address, n := range before {
		after[address] -= n
	}
	for _, c := range callers {
		must(t, c.Stop(10*time.Second))
	}
	return after
}

// seen is how many calls each server has had, by HTTP and gRPC.
func seen(t *testing.T, servers []string) map[string]int {
	counts := map[string]int{}
	for _, address := range servers {
		c := countsOf(t, address)
		counts[address] = int(c.Calls + c.RPCs)
	}
	return counts
}
