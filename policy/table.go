package policy

import (
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/whitelist"
)

// Env is what rules refer to by name, and where they run.
type Env struct {
	Lists    *whitelist.Index
	Tables   map[string]*Prefixes // address tables by key
	Geo      *Geo                 // city and ASN databases of this replica; nil: none
	Replica  Replica
	Sessions *SessionKeys
}

// Table is one app's rules, compiled. It is immutable.
type Table struct{ regions []domain.Region }

// Compile turns rules into a Table. Its error lists everything wrong (fault.Invalid,
// problems with paths relative to the app, such as policies[3].when.in_list).
func Compile(r Rules, env Env) (*Table, error) { panic("unbuilt") }

// Decide walks sessions, policies, otherwise and failover. It takes no lock, reads
// no clock and allocates nothing.
func (t *Table) Decide(req *Request) Decision { return t.walk(req, nil) }

// Explain is the same walk, written down.
func (t *Table) Explain(req *Request) (Decision, *Trace) {
	var tr Trace
	return t.walk(req, &tr), &tr
}

func (t *Table) walk(req *Request, tr *Trace) Decision { panic("unbuilt") }

// Regions are the rules' regions, by the indexes that decisions carry.
func (t *Table) Regions() []domain.Region { return t.regions }

// PolicyKey is the key of policy n, empty for -1.
func (t *Table) PolicyKey(n int32) string { panic("unbuilt") }

// Trace is what a walk saw, step by step.
type Trace struct{}

// Session is what a valid token says. The zero value is no session.
type Session struct{}

// SessionKeys are the current and previous keys that seal session tokens.
type SessionKeys struct{}

// OpenSession reads a token for this app, bound to either id. The Notes say why it is absent.
func (t *Table) OpenSession(token string, req *Request) (Session, Notes) { panic("unbuilt") }

// AppendSession appends the sealed token for d to dst. A session that was
// sticky keeps its start; none is given to a fallback.
func (t *Table) AppendSession(dst []byte, d Decision, req *Request, life SessionLife) (out []byte, left time.Duration) {
	panic("unbuilt")
}

// SessionLife bounds a session.
type SessionLife struct{ TTL, Max time.Duration }

// Prefixes is an address table.
type Prefixes struct{}

// Geo holds the address databases of a replica.
type Geo struct{}
