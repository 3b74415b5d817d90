// Package fleet is how a release travels from the control nodes to every replica,
// and what comes back.
//
//	control node                                       replica
//	  Board    what is on offer: to all, to a canary     Follower  keeps the Keeper up to date
//	  Server ◄──── POST watch: Report up, release down ──── HTTP     one Source a control node
//	  Roster   who serves what, who refuses and why
//	  Outlet ────► Redis: blobs, release, "look now" ─────► Redis    a Source that needs no control node
//	  Counting what they counted, on its way to the ledger  Outbox   what nobody has kept yet
//	  Trials   what would a draft do to your requests?      Follower tries it beside its work
//
// A Source is asked for what is newer than what its replica serves and may make
// it wait: that is the nudge. It never waits for longer than 5 s ± 30 %, so
// asking again is the poll that repairs every lost nudge. What a Source brings is
// believed by nobody: Keeper.Accept verifies it like any other.
//
// The report of a replica rides on the question. A replica that has taken a
// release into use, or has refused it, asks again at once, which acknowledges it.
// What it counted rides on it too, to one control node at a time, until one says
// that it is kept.
//
// Goroutines: Follower.Run owns one for each Source, and one for each release
// until its copy is on disk, and ends them with its context; the subscription of a
// Redis stays open between questions, and its two goroutines, which are
// go-redis's, end with Close; Server answers in those of net/http; Roster.Run, in
// its caller's, keeps the Memory, and Counting.Run what was counted. Board owns none.
//
// What a failure does:
//
//   - A Source that fails is asked again after 0.5 s to 5 s, jittered; the others
//     go on, and what is served stays. Status says what failed, and since when.
//   - A nudge that is lost costs one poll.
//   - A control node that restarts knows its replicas again within a poll; those
//     that do not come are in the ledger's list and are shown as silent.
//   - A replica that is silent for SilentAfter is red in the Roster, and nobody
//     waits for it.
//   - A release that is refused is told to every control node at once, and looked
//     at again after a minute. One whose blobs nobody has is not refused: it is
//     asked for again. A newer release ends the load of an older one.
//   - A replica that serves what its control node does not know is asked for it;
//     the node believes it no more than any other source.
//   - Counts that cannot be kept stay with the replica, for ten minutes.
//   - Two processes with one id are both shown, counted and logged.
package fleet

import (
	"context"
	"time"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

const (
	// PollEvery is the mean time between two looks at a Source; each is jittered by ± 30 %.
	PollEvery = 5 * time.Second
	// SilentAfter is when a replica that no longer asks is called silent.
	SilentAfter = 15 * time.Second
)

// Replica names a process that serves releases.
type Replica struct {
	ID      string         `json:"id"`                // the same after a restart
	Boot    string         `json:"boot"`              // another at each start
	Role    string         `json:"role"`              // all, control or edge
	Address string         `json:"address,omitempty"` // of its public listener
	Build   string         `json:"build,omitempty"`   // version of the program
	Format  int            `json:"format"`            // the newest manifest format that it reads
	Place   policy.Replica `json:"place"`             // its coordinates
}

// Report is what a replica says of itself. Ages are in seconds, so that clocks
// need not agree.
type Report struct {
	Replica
	Number    uint64            `json:"number"` // 0: it serves nothing yet
	Seq       uint64            `json:"seq"`
	Digest    release.Digest    `json:"digest"`
	Age       float64           `json:"age"` // since the release was taken into use
	Source    string            `json:"source,omitempty"`
	Refusal   *release.Refusal  `json:"refusal,omitempty"`
	Sources   []SourceState     `json:"sources,omitempty"`
	DiskError string            `json:"disk_error,omitempty"`
	Override  *release.Override `json:"override,omitempty"` // in force here, see dispatch override
	Databases policy.GeoDigests `json:"databases"`          // of addresses; replicas that differ decide differently
	Errors    uint64            `json:"errors"`             // answers of 500 and more since the start
	// Counts are what the replica counted and nobody has kept yet, see Outbox.
	Counts  []Count  `json:"counts,omitempty"`
	Trial   string   `json:"trial,omitempty"`   // the last one that came from whom this goes to
	Verdict *Verdict `json:"verdict,omitempty"` // on it
	// Release is sent when a Reply asked for it: a control node that lacks it
	// cannot know otherwise that its database is behind.
	Release *release.Signed `json:"release,omitempty"`
}

// SourceState is how a replica gets along with one Source.
type SourceState struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Age     float64 `json:"age"` // seconds since it answered last; since the start if it never did
	Problem string  `json:"problem,omitempty"`
}

// Reply is the answer to a Report.
type Reply struct {
	Release *release.Signed `json:"release,omitempty"` // newer than the reported one; nil: nothing is
	Head    uint64          `json:"head"`              // the highest number that is on offer to this replica
	Send    bool            `json:"send,omitempty"`    // put your Release into the next Report
	Counted bool            `json:"counted,omitempty"` // the Counts of the report are kept
	Trial   *Trial          `json:"trial,omitempty"`   // judge it and ask again
}

// Source brings releases to a replica.
type Source interface {
	release.Blobs
	// Name is shown to operators: redis, control 10.1.0.7:8083.
	Name() string
	// Next sends the report, if there is somebody to send it to, and returns the
	// newest release that this replica should serve if that is above what it
	// reports. It returns nil after PollEvery ± 30 % without one.
	Next(ctx context.Context, r Report) (*release.Signed, error)
}

// Offer is what a control node has for its replicas.
type Offer struct {
	All     release.Signed // for everybody
	Canary  release.Signed // for Replica alone; zero: no canary runs
	Replica string
}

// Outlet is where a control node puts an Offer for replicas to find.
type Outlet interface {
	// Offer makes the offer known. blobs has everything that its releases name.
	Offer(ctx context.Context, o Offer, blobs release.Blobs) error
}

// Acknowledgement says how far a release has come.
type Acknowledgement struct {
	Replicas int     `json:"replicas" doc:"that serve the release"`
	Of       int     `json:"of" doc:"that ask for releases now, this node included if it serves"`
	After    float64 `json:"after" doc:"seconds from the change to the last of them"`
	Lagging  []Lag   `json:"lagging,omitempty" doc:"who does not serve it yet, and why"`
}

// Lag is a replica that does not serve a release.
type Lag struct {
	Replica string `json:"replica"`
	Number  uint64 `json:"number" doc:"what it serves"`
	Why     string `json:"why"`
}

// State is what a Roster says of a replica.
type State string

// The states of a replica.
const (
	Current  State = "current"  // serves what is on offer to it
	Behind   State = "behind"   // serves an older release
	Refusing State = "refusing" // refused what is on offer to it
	Silent   State = "silent"   // has not asked for SilentAfter
	Ahead    State = "ahead"    // serves a release that the database does not have
)

// Unheard is a replica that the registry sends apps to and that no control node has
// ever heard: it serves what it serves, and no change reaches it.
type Unheard struct {
	ID      string `json:"id"`
	Address string `json:"address" doc:"of its public listener"`
	Region  string `json:"region"`
}

// Member is a replica as a control node knows it.
type Member struct {
	Report
	State State     `json:"state"`
	Seen  time.Time `json:"seen"`  // when it asked last
	First time.Time `json:"first"` // when it was first seen
}
