//go:build !linux

package drills

import (
	"net"
	"testing"
)

// hub is an address that exists on Linux only.
const hub = "10.77.255.1"

// network exists on Linux only, see network_linux_test.go.
type network struct{}

func newNetwork(t *testing.T, _ int) *network {
	t.Helper()
	t.Fatal("network namespaces need Linux")
	return nil
}

func (n *network) host(int) string                     { return "" }
func (n *network) inside(int) []string                 { return nil }
func (n *network) mend(testing.TB, int)                {}
func (n *network) cut(testing.TB, int)                 {}
func (n *network) listen(*testing.T, int) net.Listener { return nil }
