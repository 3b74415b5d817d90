package testenv

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRedisFreezesThawsAndStartsAgainEmpty(t *testing.T) {
	t.Parallel()
	r := StartRedis(t)
	do(t, r, "SET", "k", "v")
	if err := r.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := r.Do(context.WithoutCancel(ctx), "PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a frozen server answered: %v", err)
	case <-ctx.Done():
	}
	if err := r.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("after thawing: %v", err)
	}
	if got := do(t, r, "GET", "k"); got != "v" {
		t.Errorf("k = %s after freezing", got)
	}
	before := r.PID()
	if err := r.Freeze(); err != nil { // and it is stopped all the same
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	if got := do(t, r, "GET", "k"); got != "<nil>" || r.PID() == before {
		t.Errorf("k = %s in process %d, before it was %d", got, r.PID(), before)
	}
}

func TestSentinelKnowsItsMaster(t *testing.T) {
	t.Parallel()
	master := StartRedis(t)
	sentinel := StartSentinel(t, "bank", master)
	got := do(t, sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "bank")
	if want := "[" + strings.ReplaceAll(master.Addr, ":", " ") + "]"; got != want {
		t.Errorf("master = %s, want %s", got, want)
	}
}

func TestClusterSpreadsItsSlots(t *testing.T) {
	t.Parallel()
	nodes := StartRedisCluster(t)
	if got := do(t, nodes[2], "CLUSTER", "INFO"); !strings.Contains(got, "cluster_size:3") {
		t.Errorf("cluster info: %s", got)
	}
}

func do(t *testing.T, r *Redis, args ...any) string {
	t.Helper()
	reply, err := r.Do(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(reply)
}
