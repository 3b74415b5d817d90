//go:build unix

package testenv

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BlackHole is an address of this machine that answers no attempt to connect: its
// backlog is full.
func BlackHole(tb testing.TB) string {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		tb.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		tb.Fatal(err)
	}
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.(*unix.SockaddrInet4).Port}).String()
	for range 16 {
		c, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address // it is full
		}
		tb.Cleanup(func() { _ = c.Close() })
	}
	tb.Fatal("the backlog takes 16 connections")
	return ""
}
