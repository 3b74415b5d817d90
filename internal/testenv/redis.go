package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a private redis-server on a free port of loopback. It keeps nothing
// on disk. Each test has its own, because tests freeze, stop and empty it.
type Redis struct {
	Addr string

	dir  string
	args []string
	out  bytes.Buffer // of the process that runs; read after its end
	proc *process
}

// StartRedis starts one that ends with the test. args are as on its command line.
func StartRedis(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	r, err := NewRedis(args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// NewRedis starts one for a harness that is no test. Close ends it.
func NewRedis(args ...string) (*Redis, error) {
	dir, err := os.MkdirTemp("", "dispatch-redis-")
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	r := &Redis{dir: dir}
	for range 3 { // another process may take the free port first
		var port string
		if port, err = freePort(); err != nil {
			break
		}
		r.Addr = "127.0.0.1:" + port
		r.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no"}, args...)
		if err = r.Start(); err == nil {
			return r, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// Start starts a server that was stopped again, empty, on the same port.
func (r *Redis) Start() error {
	bin, err := Lookup("redis")
	if err != nil {
		return err
	}
	r.out.Reset()
	cmd := exec.Command(bin, r.args...)
	cmd.Stdout, cmd.Stderr = &r.out, &r.out
	if r.proc, err = run(cmd); err != nil {
		return err
	}
	if err := r.wait(); err != nil {
		err = errors.Join(err, r.Stop())
		return fmt.Errorf("start redis: %w\n%s", err, r.out.Bytes())
	}
	return nil
}

// wait returns when the server answers.
func (r *Redis) wait() error {
	return r.proc.wait("answer", func(ctx context.Context) bool {
		_, err := r.Do(ctx, "PING")
		return err == nil
	})
}

// URL is its address in the form of --redis.
func (r *Redis) URL() string { return "redis://" + r.Addr }

// PID is the process that runs now.
func (r *Redis) PID() int { return r.proc.cmd.Process.Pid }

// Do runs one command on a connection of its own.
func (r *Redis) Do(ctx context.Context, args ...any) (any, error) {
	client := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
	defer func() { _ = client.Close() }() // the command's own error says more
	reply, err := client.Do(ctx, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("redis %s: %v: %w", r.Addr, args[0], err)
	}
	return reply, nil
}

// Freeze stops the process as it stands: connections stay open, nobody answers.
func (r *Redis) Freeze() error { return r.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (r *Redis) Thaw() error { return r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s syscall.Signal) error {
	if err := r.proc.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("redis %s: %w", r.Addr, err)
	}
	return nil
}

// Stop ends the process, frozen or not. What it held is lost.
func (r *Redis) Stop() error {
	if err := r.Thaw(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return r.proc.stop(10 * time.Second)
}

// Close stops it for good.
func (r *Redis) Close() error { return errors.Join(r.Stop(), os.RemoveAll(r.dir)) }

// StartSentinel starts a Sentinel that watches a master under a name, alone,
// and makes a replica the master when that has been away for a second.
func StartSentinel(tb testing.TB, name string, master *Redis) *Redis {
	tb.Helper()
	host, port, _ := strings.Cut(master.Addr, ":")
	conf := fmt.Sprintf("sentinel monitor %s %s %s 1\nsentinel down-after-milliseconds %s 1000\nsentinel failover-timeout %s 3000\n",
		name, host, port, name, name)
	file := filepath.Join(tb.TempDir(), "sentinel.conf") // the server writes to it
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		tb.Fatal(err)
	}
	r := &Redis{dir: tb.TempDir()}
	sentinelPort, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	r.Addr = "127.0.0.1:" + sentinelPort
	r.args = []string{file, "--sentinel", "--port", sentinelPort, "--bind", "127.0.0.1", "--dir", r.dir}
	if err := r.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// clusterSlots is how many slots Redis Cluster has.
const clusterSlots = 16384

// StartRedisCluster starts three masters that share the slots.
func StartRedisCluster(tb testing.TB) []*Redis {
	tb.Helper()
	const size = 3
	nodes, buses := make([]*Redis, size), make([]string, size)
	for i := range nodes {
		var err error
		if buses[i], err = freePort(); err != nil {
			tb.Fatal(err)
		}
		nodes[i] = StartRedis(tb, "--cluster-enabled", "yes", "--cluster-port", buses[i])
	}
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	must := func(r *Redis, args ...any) string {
		reply, err := r.Do(ctx, args...)
		if err != nil {
			tb.Fatal(err)
		}
		return fmt.Sprint(reply)
	}
	for i, node := range nodes {
		must(node, "CLUSTER", "ADDSLOTSRANGE", i*clusterSlots/size, (i+1)*clusterSlots/size-1)
		host, port, _ := strings.Cut(node.Addr, ":")
		must(nodes[0], "CLUSTER", "MEET", host, port, buses[i])
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, node := range nodes {
		for !strings.Contains(must(node, "CLUSTER", "INFO"), "cluster_state:ok") ||
			!strings.Contains(must(node, "CLUSTER", "INFO"), fmt.Sprintf("cluster_known_nodes:%d", size)) {
			<-tick.C // must ends the test when ctx does
		}
	}
	return nodes
}
