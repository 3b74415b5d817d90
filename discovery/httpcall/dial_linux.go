package httpcall

import (
	"net"
	"syscall"
	"time"
)

// userTimeout is TCP_USER_TIMEOUT of linux/tcp.h, which package syscall lacks.
const userTimeout = 0x12

// endSilence makes a connection fail when what was sent is not acknowledged for so
// long: a cut network is found before a deadline that is further away.
func endSilence(tcp *net.TCPConn, after time.Duration) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = raw.Control(func(fd uintptr) {
		// A kernel without it waits as long as it did before.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, int(after.Milliseconds()))
	})
}
