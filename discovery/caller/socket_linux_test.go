package caller

import (
	"net"
	"strconv"
	"syscall"
)

// socket is a listening one with a backlog of its own, which nobody accepts from.
type socket struct {
	fd      int
	address string
}

// fullSocket listens with the least backlog there is.
func fullSocket() (s socket, err error) {
	if s.fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
		return s, err
	}
	if err = syscall.Bind(s.fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err == nil {
		err = syscall.Listen(s.fd, 0)
	}
	var at syscall.Sockaddr
	if err == nil {
		at, err = syscall.Getsockname(s.fd)
	}
	if err != nil {
		s.close()
		return s, err
	}
	s.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*syscall.SockaddrInet4).Port))
	return s, nil
}

func (s socket) close() { _ = syscall.Close(s.fd) } // nothing was written
