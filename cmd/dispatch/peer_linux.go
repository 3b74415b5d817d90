package main

import (
	"fmt"
	"net"
	"syscall"
)

// peerUID is the user at the other end of a Unix socket.
func peerUID(c net.Conn) (uid int, err error) {
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("find the peer of %s: not a Unix socket", c.LocalAddr())
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find the peer of a Unix socket: %w", err)
	}
	var cred *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, fmt.Errorf("find the peer of a Unix socket: %w", err)
	}
	return int(cred.Uid), nil
}
