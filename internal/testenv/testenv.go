// Package testenv starts private real servers for tests, on free ports of
// loopback under a temporary folder.
//
// A test binary that wants one has
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
//
// and its tests call MariaDB or Consul. The first call starts the server, all tests of the
// binary share it, each has a database of its own. Main owns the servers and ends
// them after the last test, then looks for goroutines that the tests left behind.
// Redis starts in milliseconds: each call of StartRedis has a server of its own,
// which ends with its test.
// A server that cannot be found or started fails the test with what to do; no
// test is skipped.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// shared is made once; its servers are started when first asked for.
var shared = sync.OnceValue(func() *servers {
	s := &servers{}
	s.mariadb = sync.OnceValues(func() (*mariaDB, error) {
		db, err := startMariaDB()
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.stops = append(s.stops, db.stop)
		}
		return db, err
	})
	s.consul = sharedConsul(s)
	return s
})

// servers are those of one test binary.
type servers struct {
	mariadb func() (*mariaDB, error)
	consul  func() (*ConsulAgent, error)
	owned   atomic.Bool // Main will stop them

	mu    sync.Mutex // guards stops
	stops []func() error
}

// Main runs the tests, ends the servers that they started and reports goroutines
// that they left. It returns the exit code.
func Main(m *testing.M, opts ...goleak.Option) int {
	s := shared()
	s.owned.Store(true)
	code := m.Run()
	if err := s.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	if code == 0 { // a failed test may have left anything
		if err := goleak.Find(opts...); err != nil {
			fmt.Fprintln(os.Stderr, "testenv:", err)
			code = 1
		}
	}
	return code
}

func (s *servers) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, stop := range s.stops {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}
