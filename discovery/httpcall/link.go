package httpcall

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

const (
	// silentFor is how long the other side of a connection may leave unacknowledged what
	// was sent, or take nothing. Without it Linux sends again for a quarter of an hour.
	silentFor = 3 * time.Second
	// patience is the same while much is sent: a live server that is busy takes nothing
	// for a while, and looks the same.
	patience = 15 * time.Second
	// much is what may be more than a server's receive buffer has room for: it has
	// 64 KiB at first, and less where others send on the connection.
	much = 16 << 10
)

// link is a connection that may have to be patient.
type link struct {
	*net.TCPConn

	mu    sync.Mutex // guards sends
	sends int        // of much, under way
}

func (l *link) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch before := l.sends; {
	case before == 0 && n > 0:
		endSilence(l.TCPConn, patience)
	case before > 0 && before+n == 0:
		endSilence(l.TCPConn, silentFor)
	}
	l.sends += n
}

// linkOf is the link that a connection is, or has its TLS over.
func linkOf(conn net.Conn) *link {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	l, _ := conn.(*link)
	return l
}

// sendsMuch says whether a request is to be sent patiently. A connection that is handed
// over stays so.
func sendsMuch(req *http.Request) bool {
	return hasBody(req) && (req.ContentLength <= 0 || req.ContentLength > much) || req.Header["Upgrade"] != nil
}

// Stages of an attempt that is traced.
const (
	unasked int32 = iota
	asked         // for a connection
	got           // one
)

// trace follows which connection an attempt gets. Only requests that need it pay for it:
// those that send much, and those over TLS, where it says whether anything was sent.
func (a *attempt) trace(much bool) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { a.stage.Store(asked) }, // again, when net/http itself begins anew
		GotConn: func(info httptrace.GotConnInfo) {
			a.stage.Store(got)
			if !much {
				return
			}
			a.letGo()
			if l := linkOf(info.Conn); l != nil {
				l.add(1)
				a.held.Store(l)
			}
		},
	}
}

// letGo ends the patience with an attempt's connection.
func (a *attempt) letGo() {
	if l := a.held.Swap(nil); l != nil {
		l.add(-1)
	}
}
