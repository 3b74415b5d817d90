package policy

import (
	"fmt"
	"strings"
	"time"
)

// StepKind is the kind of a step of a walk.
type StepKind string

// The steps.
const (
	StepSession   StepKind = "session"
	StepPolicy    StepKind = "policy"
	StepOtherwise StepKind = "otherwise"
	StepFailover  StepKind = "failover"
	StepEndpoint  StepKind = "endpoint"
	StepFallback  StepKind = "fallback"
)

// Outcome is how a step ended.
type Outcome string

// The outcomes.
const (
	Decides  Outcome = "decides"
	PassesOn Outcome = "passes on"      // the conditions hold and the share does not take the request
	NoMatch  Outcome = "does not match" // some condition does not hold
	Skipped  Outcome = "skipped"        // the index knew that it cannot match
	Void     Outcome = "void"           // the session no longer counts
)

// Trace is what a walk saw, step by step. It holds no ids. What lies outside the
// walk, such as the release and the app's id_case, stands beside it where it is shown.
type Trace struct {
	App        string     `json:"app"`
	Now        time.Time  `json:"now"`
	Addr       string     `json:"addr,omitempty"`
	AddrSource string     `json:"addr_source,omitempty"`
	Replica    Replica    `json:"replica"`
	Geo        GeoDigests `json:"geo"`
	Steps      []Step     `json:"steps"`
	Reason     Reason     `json:"reason"`
	Region     string     `json:"region"` // empty: the app's fallback
	Endpoint   string     `json:"endpoint,omitempty"`
	Policy     string     `json:"policy,omitempty"`
	Notes      []string   `json:"notes,omitempty"`
}

// Step is one step of a walk.
type Step struct {
	Kind    StepKind `json:"step"`
	Key     string   `json:"key,omitempty"` // of the policy
	Outcome Outcome  `json:"outcome"`
	Why     string   `json:"why,omitempty"`
	Region  string   `json:"region,omitempty"` // that the step names
	Checks  []Check  `json:"checks,omitempty"`
	Draw    *Draw    `json:"draw,omitempty"`
}

// Check is one condition of a policy, also those after the first that fails.
type Check struct {
	Condition string `json:"condition"` // as it is written
	Got       string `json:"got"`       // what the request has, and where that came from
	Holds     bool   `json:"holds"`
	Unknown   bool   `json:"unknown,omitempty"` // absent or unreadable, so it holds neither way
}

// Draw is how a bucket was found and what it met.
type Draw struct {
	Salt   string `json:"salt"`
	By     string `json:"by"` // which id, or the prefix that stood in for it
	Bucket int    `json:"bucket"`
	Parts  []Part `json:"parts,omitempty"`
	Enters string `json:"enters,omitempty"` // when this bucket would be taken
}

// Part is an interval of buckets, both ends included, and its region.
type Part struct {
	From   int    `json:"from"`
	To     int    `json:"to"`
	Region string `json:"region"`
}

// step begins a step. Like outcome it does nothing without a trace.
func (tr *Trace) step(kind StepKind, key string) {
	if tr != nil {
		tr.Steps = append(tr.Steps, Step{Kind: kind, Key: key})
	}
}

func (tr *Trace) outcome(outcome Outcome, why string) {
	if tr != nil {
		s := tr.last()
		s.Outcome, s.Why = outcome, why
	}
}

func (tr *Trace) last() *Step { return &tr.Steps[len(tr.Steps)-1] }

// String is the trace for people, one line a step and one a condition.
func (tr *Trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "app %s at %s\n", tr.App, tr.Now.Format(time.RFC3339))
	if tr.Addr != "" {
		fmt.Fprintf(&b, "address %s (from %s)\n", tr.Addr, orNone(tr.AddrSource))
	}
	for i := range tr.Steps {
		tr.Steps[i].write(&b)
	}
	region := tr.Region
	if region == "" {
		region = "the app's fallback"
	}
	fmt.Fprintf(&b, "→ %s: %s", tr.Reason, region)
	if tr.Endpoint != "" {
		fmt.Fprintf(&b, ", endpoint %s", tr.Endpoint)
	}
	if len(tr.Notes) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(tr.Notes, ", "))
	}
	b.WriteByte('\n')
	return b.String()
}

func (s *Step) write(b *strings.Builder) {
	b.WriteString(string(s.Kind))
	if s.Key != "" {
		b.WriteString(" " + s.Key)
	}
	b.WriteString(": " + string(s.Outcome))
	if s.Region != "" {
		b.WriteString(" " + s.Region)
	}
	if s.Why != "" {
		b.WriteString(", " + s.Why)
	}
	b.WriteByte('\n')
	for _, c := range s.Checks {
		mark := "✗"
		if c.Holds {
			mark = "✓"
		}
		fmt.Fprintf(b, "  %s %s: %s\n", mark, c.Condition, c.Got)
	}
	if d := s.Draw; d != nil {
		fmt.Fprintf(b, "  bucket %d by %s, salt %s", d.Bucket, d.By, d.Salt)
		for _, p := range d.Parts {
			fmt.Fprintf(b, "; [%d, %d] %s", p.From, p.To, p.Region)
		}
		if d.Enters != "" {
			b.WriteString("; " + d.Enters)
		}
		b.WriteByte('\n')
	}
}

func orNone(text string) string {
	if text == "" {
		return "nowhere stated"
	}
	return text
}
