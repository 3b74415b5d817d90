package discovery

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Address is where an instance listens. Host is an IP address in its shortest
// form or a name in lower case, so that equal addresses are equal values.
type Address struct {
	Host string
	Port uint16
}

// ParseAddress reads host:port; an IPv6 host has brackets.
func ParseAddress(text string) (Address, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return Address{}, fmt.Errorf("address %q: not host:port (an IPv6 host needs brackets)", text)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return Address{}, fmt.Errorf("address %q: the port is no number from 1 to 65535", text)
	}
	return newAddress(host, int(number))
}

// newAddress checks and normalises; host has no brackets.
func newAddress(host string, port int) (Address, error) {
	if port < 1 || port > 65535 {
		return Address{}, fmt.Errorf("port %d is not from 1 to 65535", port)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return Address{ip.Unmap().String(), uint16(port)}, nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !isHostName(host) {
		return Address{}, fmt.Errorf("host %q is neither an IP address nor a host name", host)
	}
	return Address{host, uint16(port)}, nil
}

// isHostName wants letters, digits, - and _ between dots. What looks like an
// IPv4 address but is none (10.1.0, 010.1.0.7) is no name.
func isHostName(host string) bool {
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	_, err := strconv.ParseUint(labels[len(labels)-1], 10, 64)
	return err != nil && len(host) <= 253
}

// IP is the host as an IP address; ok is false for a name.
func (a Address) IP() (ip netip.Addr, ok bool) {
	ip, err := netip.ParseAddr(a.Host)
	return ip, err == nil
}

// String is host:port, with brackets around an IPv6 host.
func (a Address) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port))) }

// MarshalText is String.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is ParseAddress.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}

func compare(a, b string) int { return cmp.Compare(a, b) }
