//go:build !linux

package httpcall

import (
	"net"
	"time"
)

// endSilence is for Linux; elsewhere keep-alive probes and deadlines find a cut network.
func endSilence(*net.TCPConn, time.Duration) {}
