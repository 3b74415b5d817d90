package discovery

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// selfCheckTimeout bounds the look-up of our own name and the call to ourselves.
const selfCheckTimeout = 2 * time.Second

// nic is a network interface that is up, with its addresses.
type nic struct {
	name  string
	addrs []netip.Addr
}

// ownHost is the address to announce when none is stated: podIP if the platform
// gave one, else that of the only interface which others can reach. It does not
// guess between several.
func ownHost(podIP string, nics []nic) (netip.Addr, error) {
	if podIP != "" {
		ip, err := netip.ParseAddr(podIP)
		if err != nil {
			return netip.Addr{}, fault.New(fault.Invalid, "bad_pod_ip", "POD_IP %q is no IP address", podIP).Because(err)
		}
		return ip.Unmap(), nil
	}
	var found []netip.Addr
	var names []string
	for _, n := range nics {
		reachable := slices.DeleteFunc(slices.Clone(n.addrs), func(ip netip.Addr) bool { return isBridge(n.name) || unreachableKind(ip) != "" })
		if len(reachable) == 0 {
			continue
		}
		// One address of an interface is enough; IPv4 has no privacy addresses.
		slices.SortStableFunc(reachable, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
		found = append(found, reachable[0])
		names = append(names, n.name+" "+reachable[0].String())
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return netip.Addr{}, fault.New(fault.Invalid, "no_address", "no interface has an address that others can reach").
			WithHint("state the address, or set POD_IP")
	default:
		return netip.Addr{}, fault.New(fault.Invalid, "many_addresses", "several interfaces could be meant: %s", strings.Join(names, ", ")).
			WithHint("state the address, or set POD_IP")
	}
}

// checkReach refuses an address that callers elsewhere cannot reach, or that
// nobody answers at. force lets the first pass, for machines that are alone.
func checkReach(ctx context.Context, a Address, nics []nic, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, selfCheckTimeout)
	defer cancel()
	if err := checkKind(ctx, a, nics, force); err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.String())
	if err != nil {
		return fault.New(fault.Invalid, "not_listening", "own address %s does not answer", a).Because(err).
			WithHint("listen before you register, on this address")
	}
	return conn.Close()
}

// checkKind refuses an address of a kind that callers elsewhere cannot reach.
func checkKind(ctx context.Context, a Address, nics []nic, force bool) error {
	ips := []netip.Addr{}
	if ip, ok := a.IP(); ok {
		ips = append(ips, ip)
	} else {
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", a.Host)
		if err != nil {
			return fault.New(fault.Invalid, "unknown_host", "own address %s: the name is unknown", a).Because(err)
		}
		ips = found
	}
	for _, ip := range ips {
		kind := addressKind(ip.Unmap(), nics)
		if kind == "" || force && kind != unspecified {
			continue
		}
		return fault.New(fault.Invalid, "unreachable_address", "own address %s is %s; callers elsewhere cannot reach it", a, kind).
			WithHint("state the address of this machine's network, or set POD_IP; force it only if all callers run here")
	}
	return nil
}

// CheckAddress says whether this process can serve at an address, before it does:
// it serves there for a moment and calls itself. Register checks that somebody
// answers at an address; this finds a POD_IP that belongs to another machine, where
// another may answer. force lets loopback, bridge and link-local addresses pass.
func CheckAddress(ctx context.Context, a Address, force bool) error {
	nics, err := ownNICs()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, selfCheckTimeout)
	defer cancel()
	if err := checkKind(ctx, a, nics, force); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.String())
	if err != nil {
		return fault.New(fault.Invalid, "not_own_address", "own address %s cannot be listened on", a).Because(err).
			WithHint("it belongs to another machine, or another process has the port: look at POD_IP and the port")
	}
	secret := rand.Text()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, secret) // the caller compares
	}), ReadHeaderTimeout: selfCheckTimeout}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Close
	defer serving.Wait()
	defer func() { _ = server.Close() }() // nobody else was served
	return callSelf(ctx, a, secret)
}

// callSelf wants exactly the secret.
func callSelf(ctx context.Context, a Address, secret string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.String()+"/", nil)
	if err != nil {
		return fmt.Errorf("call own address %s: %w", a, err)
	}
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fault.New(fault.Invalid, "not_listening", "own address %s does not answer", a).Because(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(len(secret))+1))
	if err != nil || string(text) != secret {
		return fault.New(fault.Invalid, "not_own_address", "at own address %s somebody else answers", a).Because(err).
			WithHint("look at POD_IP: it is the address of another machine")
	}
	return nil
}

const unspecified = "no address of one machine"

// addressKind says why others cannot reach an address, empty if they can.
func addressKind(ip netip.Addr, nics []nic) string {
	if kind := unreachableKind(ip); kind != "" {
		return kind
	}
	for _, n := range nics {
		if slices.Contains(n.addrs, ip.WithZone("")) && isBridge(n.name) {
			return "that of the bridge " + n.name
		}
	}
	return ""
}

// dockerBridge is the network that Docker gives to containers which ask for none.
var dockerBridge = netip.MustParsePrefix("172.17.0.0/16")

func unreachableKind(ip netip.Addr) string {
	switch {
	case ip.IsUnspecified() || ip.IsMulticast():
		return unspecified
	case ip.IsLoopback():
		return "loopback"
	case ip.IsLinkLocalUnicast():
		return "link-local"
	case dockerBridge.Contains(ip):
		return "in Docker's bridge network"
	}
	return ""
}

// isBridge knows bridges of container and machine managers by their names.
func isBridge(name string) bool {
	return slices.ContainsFunc([]string{"docker", "br-", "cni", "podman", "virbr", "lxcbr", "lxdbr", "nerdctl"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// ownNICs are the interfaces of this machine that are up.
func ownNICs() ([]nic, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var nics []nic
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", i.Name, err)
		}
		n := nic{name: i.Name}
		for _, addr := range addrs {
			if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
				n.addrs = append(n.addrs, prefix.Addr().Unmap())
			}
		}
		nics = append(nics, n)
	}
	return nics, nil
}
