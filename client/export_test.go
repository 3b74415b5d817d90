package client

import (
	"encoding/json"
	"testing"
	"time"
)

// Mark lets tests state and read ratchets.
type Mark = mark

// SetWall makes the wall clock jump without the monotonic one.
func (c *Client) SetWall(wall func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = wall
}

// Verdict is what became of one answer.
type Verdict struct {
	Domains []string
	Marks   map[string]Mark
	Why     Reason
}

// Judge parses and admits one body as if the client remembered seen and lastGood.
func (c *Client) Judge(body []byte, clock time.Time, seen map[string]Mark, lastGood string) Verdict {
	refused := func(err error) Verdict { return Verdict{Marks: seen, Why: reasonOf(err)} }
	a, err := c.trust.parse(body)
	if err != nil {
		return refused(err)
	}
	next, err := marks(seen).admit(&a, clock, []string{c.trust.builtIn, lastGood})
	if err != nil {
		return refused(err)
	}
	return Verdict{Domains: a.route(c.trust.builtIn, Fresh, "").Domains(), Marks: next}
}

// MaxBody is the largest answer that is read.
const MaxBody = maxBody

// Reasons are all that can be reported.
func Reasons() []Reason { return gravity() }

// LaterBy is a stored state as if its answer had been received later by d, which is what it
// looks like to a clock that was set back by d.
func LaterBy(t testing.TB, raw []byte, d time.Duration) []byte {
	t.Helper()
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	s.Received += d.Milliseconds()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
