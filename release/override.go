package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

const (
	// MaxOverride is the longest that an override may last: a day, by which
	// somebody must have made a release of it.
	MaxOverride = 24 * time.Hour
	// maxOverrideActions is more than the regions of the largest deployment known.
	maxOverrideActions = 100
	// maxOverrideText bounds an override in writing, in bytes.
	maxOverrideText = 64 << 10
)

// Override is break glass on one replica, or signed for all: emergency actions
// laid over whatever release is in use, until a time. It chooses among domains
// whose records are already signed and can bring no new one.
type Override struct {
	ID         string           `json:"id"`
	Deployment string           `json:"deployment,omitempty"` // whom the signed form is for; empty: for the replica that is asked
	Actions    []OverrideAction `json:"actions"`
	By         string           `json:"by"` // a login of the machine, or the id of the key that signed it
	Reason     string           `json:"reason"`
	Created    time.Time        `json:"created"`
	Until      time.Time        `json:"until"`
}

// OverrideAction is exactly one of its fields. What it expects counts when the
// override is made; from then on the action holds, whatever a release says.
type OverrideAction struct {
	Swap   *Swap      `json:"swap,omitempty"`
	Region *SetRegion `json:"region_state,omitempty"` // Expect may be empty
}

// String is the action as people name it.
func (a OverrideAction) String() string {
	switch {
	case a.Swap != nil:
		return fmt.Sprintf("swap %s/%s %s → %s", a.Swap.App, a.Swap.Region, a.Swap.From, a.Swap.To)
	case a.Region != nil:
		return fmt.Sprintf("region_state %s/%s %s", a.Region.App, a.Region.Region, a.Region.State)
	}
	return "nothing"
}

// on is the operational state after the action. Its own rules hold as in every
// other lane: no region without an endpoint, no app without a region (P21).
func (a OverrideAction) on(doc *Document, ops Operational, first bool) (Operational, error) {
	if a.Swap != nil {
		s := *a.Swap
		_, r, err := target(doc, ops, s.App, s.Region)
		if err != nil {
			return ops, err
		}
		if from, to := endpointOf(r, s.From), endpointOf(r, s.To); from != nil && to != nil && !from.Serves() && to.Serves() {
			return ops, nil // it is so already
		}
		if !first {
			s.Expect = ""
		}
		return s.On(doc, ops)
	}
	s := *a.Region
	_, r, err := target(doc, ops, s.App, s.Region)
	if err != nil {
		return ops, err
	}
	if r.Condition() == s.State {
		return ops, nil
	}
	if !first || s.Expect == "" {
		s.Expect = r.Condition()
	}
	return s.On(doc, ops)
}

// on is the operational state of a release under the override, and what of it
// does not fit the release and is left out.
func (o *Override) on(m *Manifest, first bool) (ops Operational, unfit fault.Problems) {
	ops = m.Operational
	for i, a := range o.Actions {
		next, err := a.on(&m.Document, ops, first)
		if err == nil {
			ops = next
			continue
		}
		p := fault.Problem{Path: fmt.Sprintf("actions[%d]", i), Detail: a.String() + ": " + err.Error()}
		if e, ok := errors.AsType[*fault.Error](err); ok {
			p.Detail, p.Hint = a.String()+": "+e.Detail, e.Hint
		}
		unfit = append(unfit, p)
	}
	return ops, unfit
}

// check lists everything that is wrong with the override itself.
func (o *Override) check() error {
	var p fault.Problems
	for _, text := range []struct{ path, value string }{{"id", o.ID}, {"by", o.By}, {"reason", o.Reason}} {
		switch {
		case strings.TrimSpace(text.value) == "":
			p.Addf(text.path, "is missing")
		case len(text.value) > 500 || strings.ContainsFunc(text.value, unicode.IsControl):
			p.Addf(text.path, "must be at most 500 bytes without control characters")
		}
	}
	if len(o.Actions) == 0 && !o.ends() || len(o.Actions) > maxOverrideActions {
		p.Addf("actions", "%d of them, there must be 1 to %d", len(o.Actions), maxOverrideActions)
	}
	for i, a := range o.Actions {
		if (a.Swap == nil) == (a.Region == nil) {
			p.Addf(fmt.Sprintf("actions[%d]", i), "must be a swap or a region_state")
		}
	}
	switch life := o.Until.Sub(o.Created); {
	case o.Created.IsZero() || o.Until.IsZero():
		p.Addf("until", "created and until must be given")
	case life <= 0:
		p.Addf("until", "is not after created")
	case life > MaxOverride:
		p.Addf("until", "is %s after created, at most %s are allowed", life, MaxOverride)
	}
	return p.Err("bad_override", "the override is wrong")
}

// ends says whether the override only ends those for all replicas: it is for them
// and has no actions.
func (o *Override) ends() bool { return len(o.Actions) == 0 && o.Deployment != "" }

// left is how long the override still lasts: until its end, and never longer than
// it was made for, however far the clock went back.
func (o *Override) left(now time.Time) time.Duration {
	return min(o.Until.Sub(now), o.Until.Sub(o.Created))
}

// SignOverride makes the form of an override that every replica of its deployment
// takes: a JWS of typ dispatch-override. It needs the publisher key and nothing else.
func SignOverride(o *Override, publisher signed.Keys) ([]byte, error) {
	if o.Deployment == "" {
		return nil, fault.New(fault.Invalid, "bad_override", "an override for all replicas must name their deployment").WithHint("give --deployment")
	}
	by := *o
	by.By = publisher.Current().ID()
	if err := by.check(); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(&by)
	if err != nil {
		return nil, fmt.Errorf("sign override %s: %w", o.ID, err)
	}
	jws, err := publisher.Current().Sign(signed.TypOverride, payload)
	if err != nil {
		return nil, fmt.Errorf("sign override %s: %w", o.ID, err)
	}
	return []byte(jws), nil
}

// OpenOverride verifies and reads what SignOverride made. By is the key that signed it.
func OpenOverride(data []byte, trust *signed.Trust) (*Override, error) {
	if len(data) > maxOverrideText {
		return nil, fault.New(fault.TooLarge, "bad_override", "the override has %d bytes, more than %d", len(data), maxOverrideText)
	}
	payload, kid, err := trust.Verify(signed.TypOverride, string(bytes.TrimSpace(data)))
	if err != nil {
		return nil, refuseSignature(fmt.Errorf("override: %w", err))
	}
	var o Override
	if err := decodeStrict(payload, &o); err != nil {
		return nil, fault.New(fault.Invalid, "bad_override", "the override cannot be read").Because(err)
	}
	if o.By = kid; o.Deployment == "" {
		return nil, fault.New(fault.Invalid, "bad_override", "the override names no deployment")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	return &o, nil
}

// lay is base under an override, and what of that does not fit base. Only apps
// whose state changes are compiled anew, from the tables, lists and keys of base.
// All answers are those of base: their records are signed, and nothing here could
// sign others. first is for an override that is just being made.
func (l *Loader) lay(base *Snapshot, o *Override, first bool) (s *Snapshot, unfit fault.Problems, err error) {
	defer recoverLoad(base.Number, &s, &err)
	m, laid := *base.Manifest, *base
	m.Operational, unfit = o.on(base.Manifest, first)
	laid.Manifest, laid.Override, laid.under = &m, o, base
	c := compilation{loader: l, next: &laid, cur: base, sameEnv: true}
	apps, err := c.apps()
	if err != nil {
		return nil, unfit, err
	}
	for i := range apps {
		app := &apps[i]
		if err := guardServed(app.App); err != nil {
			return nil, unfit, err
		}
		before := base.Apps[app.App.Key]
		app.Answer, app.Fallback = before.Answer, before.Fallback
	}
	laid.find(apps)
	if err := (walker{l.golden, l.opt.Suffixes.Allows}).walk(&laid, base); err != nil {
		return nil, unfit, err
	}
	laid.Manifest = base.Manifest
	return &laid, unfit, nil
}
