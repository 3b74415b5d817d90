package ledger

import (
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
)

const (
	// Instance is the kind of paper that says what a person decided about an
	// instance: its id is SERVICE/ID, its body a directory.Verdict.
	Instance = "instance"
	// OfRules is what a second person signs before rules of key services are
	// published: the id is their stream, Digest that of the rules and of the release
	// that they follow. Its Author is the stream: who publishes is known only then.
	OfRules = "rules"
)

// The states of a paper of kind Instance. What was Lifted counts no more.
const (
	Accepted = "accepted"
	Refused  = "refused"
	Isolated = "isolated"
	Lifted   = "lifted"
)

// PicksKept is how long records of picks can be explained.
const PicksKept = 90 * 24 * time.Hour

// Pick is what is kept of one decision of a caller.
type Pick struct {
	Record wire.Record
	View   *route.View          // of the table that decided; nil: kept no longer, or it never came
	List   []discovery.Instance // that the view names; nil: kept no longer
}
