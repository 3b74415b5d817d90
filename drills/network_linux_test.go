package drills

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// netPrefix is that of every namespace made here; nothing else is touched.
const netPrefix = "dsp-drill-"

// network is a hub and hosts behind it, each in a network namespace with a link of
// its own:
//
//	hub 10.77.I.1 ──veth── host I 10.77.I.2      hub also has 10.77.255.1
//
// Neighbours are static, so that a host which is cut off is silence: no answer, no
// reset and no "unreachable" either. There is no way out of it.
type network struct {
	name  string
	hosts int
}

// networks counts them, for their names.
var networks atomic.Int64

// newNetwork makes a network that ends with the test.
func newNetwork(t *testing.T, hosts int) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root")
	}
	sweep(t)
	n := &network{name: fmt.Sprintf("%s%d-%d", netPrefix, os.Getpid(), networks.Add(1)), hosts: hosts}
	t.Cleanup(func() {
		for i := range hosts + 1 {
			if err := ip("", "netns del "+n.space(i)); err != nil {
				t.Error(err)
			}
		}
	})
	must(t, ip("", "netns add "+n.space(0)))
	must(t, ip(n.space(0), "link set lo up\naddr add "+hub+"/32 dev lo"))
	for i := 1; i <= hosts; i++ {
		must(t, ip("", "netns add "+n.space(i)))
		must(t, ip(n.space(0), fmt.Sprintf("link add h%d type veth peer name eth0 netns %s\naddr add %s/30 dev h%d\nlink set h%d up", i, n.space(i), n.gate(i), i, i)))
		must(t, ip(n.space(i), fmt.Sprintf("link set lo up\naddr add %s/30 dev eth0", n.host(i))))
		n.mend(t, i)
	}
	return n
}

// hub is the address in the hub that every host reaches.
const hub = "10.77.255.1"

// space is the namespace of a host; 0 is the hub.
func (n *network) space(i int) string { return fmt.Sprintf("%s-%d", n.name, i) }

// host is the address of a host, from 1.
func (n *network) host(i int) string { return fmt.Sprintf("10.77.%d.2", i) }

// gate is the hub's end of the link to a host.
func (n *network) gate(i int) string { return fmt.Sprintf("10.77.%d.1", i) }

// inside is the beginning of a command that runs on host i; 0 is the hub.
func (n *network) inside(i int) []string { return []string{"ip", "netns", "exec", n.space(i)} }

// cut takes host i off the network: what is sent to it is lost, and so is what it sends.
func (n *network) cut(t testing.TB, i int) {
	t.Helper()
	must(t, ip(n.space(i), "link set eth0 down"))
}

// mend brings host i to the network, at first and after a cut.
func (n *network) mend(t testing.TB, i int) {
	t.Helper()
	must(t, ip(n.space(i), "link set eth0 up\nroute add default via "+n.gate(i)))
	far, err := hardware(n.space(i), "eth0")
	must(t, err)
	near, err := hardware(n.space(0), fmt.Sprintf("h%d", i))
	must(t, err)
	must(t, ip(n.space(0), fmt.Sprintf("neigh replace %s lladdr %s dev h%d nud permanent", n.host(i), far, i)))
	must(t, ip(n.space(i), fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud permanent", n.gate(i), near)))
}

// listen listens in the hub for this process, which is outside.
func (n *network) listen(t *testing.T, port int) net.Listener {
	t.Helper()
	type result struct {
		l   net.Listener
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, which is in the hub now, ends with the goroutine
		var r result
		space, err := os.Open(filepath.Join("/run/netns", n.space(0)))
		if err == nil {
			err = errors.Join(unix.Setns(int(space.Fd()), unix.CLONE_NEWNET), space.Close())
		}
		if r.err = err; err == nil {
			r.l, r.err = net.Listen("tcp", net.JoinHostPort(hub, strconv.Itoa(port)))
		}
		done <- r
	}()
	r := <-done
	must(t, r.err)
	return r.l
}

// ip runs commands of ip, one a line, inside a namespace or here.
func ip(space, commands string) error {
	args := []string{"-batch", "-"}
	if space != "" {
		args = append([]string{"-n", space}, args...)
	}
	cmd := exec.Command("ip", args...)
	cmd.Stdin = strings.NewReader(commands + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.ReplaceAll(commands, "\n", "; "), err, out)
	}
	return nil
}

// hardware is the link address of a device.
func hardware(space, device string) (string, error) {
	out, err := exec.Command("ip", "-n", space, "-brief", "link", "show", device).Output()
	if fields := strings.Fields(string(out)); err == nil && len(fields) > 2 {
		return fields[2], nil
	}
	return "", fmt.Errorf("link address of %s in %s: %w: %s", device, space, err, out)
}

// sweep removes what a run that was killed left behind.
func sweep(t *testing.T) {
	t.Helper()
	spaces, _ := filepath.Glob("/run/netns/" + netPrefix + "*") // the pattern is well formed
	for _, path := range spaces {
		name := filepath.Base(path)
		text, _, _ := strings.Cut(strings.TrimPrefix(name, netPrefix), "-")
		pid, err := strconv.Atoi(text)
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue // it lives, or the name is not ours
		}
		_ = ip("", "netns del "+name) // another drill may have swept it
	}
}
