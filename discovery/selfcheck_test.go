package discovery

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func nics(pairs ...string) []nic {
	var all []nic
	for i := 0; i < len(pairs); i += 2 {
		n := nic{name: pairs[i]}
		for text := range strings.FieldsSeq(pairs[i+1]) {
			n.addrs = append(n.addrs, netip.MustParseAddr(text))
		}
		all = append(all, n)
	}
	return all
}

// T24: the address that others reach, or none; never a guess.
func TestOwnHost(t *testing.T) {
	t.Parallel()
	lo := []string{"lo", "127.0.0.1 ::1"}
	for _, c := range []struct {
		name, pod string
		nics      []nic
		want      string // an address, or what the error says
	}{
		{"lo, docker0, eth0", "", nics(append(lo, "docker0", "172.17.0.1", "eth0", "10.1.0.7 fe80::1")...), "10.1.0.7"},
		{"a bridge of another network", "", nics(append(lo, "br-4f", "172.20.0.1", "eth0", "10.1.0.7")...), "10.1.0.7"},
		{"IPv4 before IPv6", "", nics("eth0", "2001:db8::7 10.1.0.7"), "10.1.0.7"},
		{"IPv6 alone", "", nics("eth0", "fe80::1 2001:db8::7"), "2001:db8::7"},
		{"POD_IP", "10.2.0.9", nics("eth0", "10.1.0.7"), "10.2.0.9"},
		{"POD_IP as IPv6", "2001:db8::9", nil, "2001:db8::9"},
		{"POD_IP is a word", "auto", nil, `POD_IP "auto"`},
		{"loopback alone", "", nics(lo...), "no interface"},
		{"link-local alone", "", nics("eth0", "169.254.7.7 fe80::1"), "no interface"},
		{"two networks", "", nics("eth0", "10.1.0.7", "eth1", "192.168.0.7"), "eth0 10.1.0.7, eth1 192.168.0.7"},
	} {
		ip, err := ownHost(c.pod, c.nics)
		if err == nil && ip.String() != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s, %v; want %s", c.name, ip, err, c.want)
		}
	}
}

// B16: an address that is of no use to others, or that nobody answers at, is refused.
func TestCheckReach(t *testing.T) {
	t.Parallel()
	here := listener(t)
	closed := here
	closed.Port = 1
	for _, c := range []struct {
		name    string
		address Address
		force   bool
		says    string
	}{
		{"loopback", here, false, "is loopback"},
		{"loopback, forced", here, true, ""},
		{"loopback by name", Address{"localhost", here.Port}, false, "is loopback"},
		{"IPv6 loopback", Address{"::1", here.Port}, false, "is loopback"},
		{"link-local", Address{"169.254.1.1", 80}, false, "is link-local"},
		{"IPv6 link-local", Address{"fe80::1", 80}, false, "is link-local"},
		{"Docker's bridge", Address{"172.17.0.2", 80}, false, "Docker's bridge network"},
		{"a bridge here", Address{"10.88.0.1", 80}, false, "the bridge cni-podman0"},
		{"unspecified", Address{"0.0.0.0", 80}, false, "no address of one machine"},
		{"unspecified, forced", Address{"0.0.0.0", 80}, true, "no address of one machine"},
		{"IPv6 unspecified, forced", Address{"::", 80}, true, "no address of one machine"},
		{"multicast, forced", Address{"224.0.0.1", 80}, true, "no address of one machine"},
		{"nobody listens", closed, true, "does not answer"},
		{"no such name", Address{"no-such-name.invalid", 80}, true, "the name is unknown"},
	} {
		err := checkReach(t.Context(), c.address, nics("cni-podman0", "10.88.0.1"), c.force)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

func TestOwnInterfaces(t *testing.T) {
	t.Parallel()
	all, err := ownNICs()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		for _, ip := range n.addrs {
			if ip.IsLoopback() {
				return
			}
		}
	}
	t.Errorf("no loopback among %v", all)
}

// B16: before it serves, a process finds out whether an address is its own.
func TestCheckAddress(t *testing.T) {
	t.Parallel()
	taken := listener(t)
	free := listener(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	for _, c := range []struct {
		name    string
		address Address
		force   bool
		says    string
	}{
		{"a free port", free, true, ""},
		{"again: the port was given back", free, true, ""},
		{"loopback", free, false, "is loopback"},
		{"another process has the port", taken, true, "cannot be listened on"},
		{"another machine's, T24", Address{"203.0.113.9", free.Port}, true, "it belongs to another machine"},
		{"IPv6", Address{"::1", free.Port}, false, "is loopback"},
	} {
		err := CheckAddress(t.Context(), c.address, c.force)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

func TestCallSelfWantsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secret and more")) }))
	defer server.Close()
	a, err := ParseAddress(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := callSelf(t.Context(), a, "secret"); err == nil || !strings.Contains(err.Error(), "somebody else answers") {
		t.Errorf("another's answer: %v", err)
	}
	if err := callSelf(t.Context(), a, "secret and more"); err != nil {
		t.Error(err)
	}
}
