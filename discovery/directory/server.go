package directory

import (
	"net/http"

	"dispatch.example/dispatch/discovery/rules"
)

// RulesBoard is where the newest rules of the region are.
type RulesBoard interface {
	// Current is the newest release, zero before the first, and a channel that is
	// closed when there is another.
	Current() (s rules.Signed, changed <-chan struct{})
}

// Server answers callers and instances: the paths of package wire. Whoever mounts
// it checks token or certificate.
type Server struct{}

// NewServer makes one.
func NewServer(d *Directory, board RulesBoard) (*Server, error) { panic("unbuilt") }

// ServeHTTP answers under /discovery/.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("unbuilt") }

// Stop answers every question that waits, and refuses new ones.
func (s *Server) Stop() { panic("unbuilt") }
