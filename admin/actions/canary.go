package actions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
)

// canary is what this process has seen of the canary that runs. Times are its own,
// from its first look on: clocks of nodes need not agree, and a node that takes over
// from one that died waits as long again.
type canary struct {
	number  uint64
	since   time.Time // the first look
	serving time.Time // the first look that found it serving; zero: none did
	known   bool      // boot and errors are those of the first look that found it
	boot    string
	errors  uint64
}

// verdict is what becomes of a canary.
type verdict int

const (
	goOn verdict = iota
	promote
	stop
)

// doubtful are the codes of refusals that say nothing of our release: a part that no
// source has yet may come, and a forgery that bears its number must not end it. One
// that is not taken in time ends either way.
var doubtful = map[string]bool{"missing_part": true, "bad_signature": true, "unknown_key": true, "stale": true}

// judge looks at the canary. It serves for as long as enough without an error that
// was not there before, and everybody may; it refuses, fails, is started anew or is
// not heard of in time, and nobody else will.
func (c *canary) judge(r ledger.Rollout, members []fleet.Member, enough time.Duration) (verdict, string) {
	if c.number != r.Head {
		*c = canary{number: r.Head, since: time.Now()}
	}
	late := time.Since(c.since) >= canaryTakes
	i := slices.IndexFunc(members, func(m fleet.Member) bool { return m.ID == r.Canary })
	if i < 0 {
		return tardy(late, r.Canary+" has not asked for it within "+canaryTakes.String())
	}
	m := &members[i]
	if !c.known {
		c.known, c.boot, c.errors = true, m.Boot, m.Errors
	}
	switch refusal := m.Refusal; {
	case refusal != nil && refusal.Number == r.Head && m.Number < r.Head && !doubtful[refusal.Code]:
		return stop, firstLine(fmt.Sprintf("%s refused it (%s): %s", m.ID, refusal.Code, refusal.Reason))
	case m.State == fleet.Silent:
		return tardy(late, m.ID+" fell silent")
	case m.Boot != c.boot:
		return stop, m.ID + " was started anew"
	case m.Number < r.Head:
		return tardy(late, fmt.Sprintf("%s did not take it within %s and serves release %d", m.ID, canaryTakes, m.Number))
	case m.Errors > c.errors:
		return stop, fmt.Sprintf("%s answered %d requests with errors", m.ID, m.Errors-c.errors)
	}
	if c.serving.IsZero() {
		c.serving = time.Now()
	}
	// The report must be from after that time, too.
	if time.Since(c.serving) >= enough && m.Age >= enough.Seconds() {
		return promote, fmt.Sprintf("%s served it for %s without an error", m.ID, enough)
	}
	return goOn, ""
}

func tardy(late bool, why string) (verdict, string) {
	if late {
		return stop, why
	}
	return goOn, ""
}

// firstLine is what of a reason goes into the audit trail.
func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return strings.ToValidUTF8(text[:min(len(text), maxWhy)], "")
}

// maxWhy bounds, in bytes, why a canary was stopped.
const maxWhy = 500
