package release

import (
	"cmp"
	"fmt"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// Carry takes the operational state over from the document old, nil before the
// first one, to doc. What was changed by hand stays, as long as the document says
// there what it said before; a document that now says the same ends the change by
// hand. One that says a third thing is in held, and the state stays. With release
// the document wins wherever it differs, and held is what it undid.
//
// What vanished from the document loses its state and keeps its epoch, so that
// nothing that comes back under its key honours an old session. A region that
// vanishes or turns off gets a new epoch. Salts are stored, stated or not, and
// outlive a stated one that is removed.
func (o Operational) Carry(old, doc *Document, release bool) (next Operational, held []fault.Problem) {
	next = Operational{Apps: map[string]AppState{}, Frozen: o.Frozen}
	for i := range doc.Apps {
		app := &doc.Apps[i]
		c := &carrier{key: app.Key, path: fmt.Sprintf("apps[%d]", i), was: o.Apps[app.Key], next: AppState{}.clone(),
			old: old.app(app.Key), app: app, release: release}
		next.Apps[app.Key] = c.carry()
		held = append(held, c.held...)
	}
	for key, state := range o.Apps {
		if _, stays := next.Apps[key]; stays {
			continue
		}
		c := &carrier{key: key, was: state, next: AppState{}.clone(), old: old.app(key)}
		if gone := c.carry(); len(gone.Regions)+len(gone.Policies)+len(gone.Salts) > 0 {
			next.Apps[key] = gone
		}
	}
	return next, held
}

// carrier carries the state of one app.
type carrier struct {
	key, path string
	was, next AppState
	old, app  *App // old is nil for a new app, app for one that vanished
	release   bool
	held      []fault.Problem
}

func (c *carrier) carry() AppState {
	if c.app != nil {
		c.present()
	}
	c.vanished()
	c.salts()
	return c.next
}

func (c *carrier) present() {
	for i := range c.app.Regions {
		path := fmt.Sprintf("%s.regions[%d]", c.path, i)
		c.region(path, &c.app.Regions[i])
		for j := range c.app.Regions[i].Endpoints {
			c.endpoint(fmt.Sprintf("%s.endpoints[%d]", path, j), &c.app.Regions[i], j)
		}
	}
	for i := range c.app.Policies {
		c.policy(fmt.Sprintf("%s.policies[%d].then.share", c.path, i), i)
	}
}

// keeps decides over one value: ours, set by hand, against what the document
// said and says. Values are compared as shown.
func (c *carrier) keeps(path, ours, said, says string) bool {
	if says == ours {
		return false
	}
	if says == said && !c.release {
		return true
	}
	detail := fault.Textf("the document changes %s to %s, but %s was set by hand", said, says, ours)
	if says == said {
		detail = fault.Textf("the document says %s, but %s was set by hand", says, ours)
	}
	c.held = append(c.held, fault.ProblemOf(path, detail, fault.Textf("write %s, or release the hold", ours)))
	return !c.release
}

func (c *carrier) region(path string, r *domain.Region) {
	ops, now, before := c.was.Regions[r.Key], r.Condition(), c.old.region(r.Key)
	if ops.State != "" {
		said := now
		if before != nil {
			said = before.Condition()
		}
		if !c.keeps(path+".state", string(ops.State), string(said), string(now)) {
			ops.State = ""
		}
	}
	was := c.was.Regions[r.Key].State
	if was == "" && before != nil {
		was = before.Condition()
	}
	if ops.State != "" {
		now = ops.State
	}
	if now == domain.Off && was != "" && was != domain.Off {
		ops.Epoch++
	}
	c.keepRegion(r.Key, ops)
}

func (c *carrier) keepRegion(key string, ops RegionOps) {
	if ops != (RegionOps{}) {
		c.next.Regions[key] = ops
	}
}

func (c *carrier) endpoint(path string, r *domain.Region, n int) {
	e, key := &r.Endpoints[n], endpointKey(r.Key, r.Endpoints[n].Key)
	ops, known := c.was.Endpoints[key]
	if !known {
		return
	}
	before := endpointOf(c.old.region(r.Key), e.Key)
	if before == nil {
		before = e
	}
	if ops.State != "" && !c.keeps(path+".state", string(ops.State), string(stateOf(before)), string(stateOf(e))) {
		ops.State = ""
	}
	if ops.Weight != nil && !c.keeps(path+".weight", fmt.Sprint(*ops.Weight), fmt.Sprint(weightOf(before)), fmt.Sprint(weightOf(e))) {
		ops.Weight = nil
	}
	if ops != (EndpointOps{}) {
		c.next.Endpoints[key] = ops
	}
}

func (c *carrier) policy(path string, n int) {
	p := &c.app.Policies[n]
	ops := c.was.Policies[p.Key]
	if ops.Share != nil {
		before := c.old.policy(p.Key)
		if before == nil {
			before = p
		}
		if !c.keeps(path, fmt.Sprint(*ops.Share), positionOf(before.Then.Share), positionOf(p.Then.Share)) {
			ops.Share = nil
		}
	}
	if ops != (PolicyOps{}) {
		c.next.Policies[p.Key] = ops
	}
}

// vanished keeps the epochs of what the document no longer has. The region of a
// vanished one gets a new epoch once, when it goes.
func (c *carrier) vanished() {
	for key, ops := range c.was.Regions {
		if c.app.region(key) == nil && c.old.region(key) == nil {
			c.keepRegion(key, RegionOps{Epoch: ops.Epoch})
		}
	}
	if c.old != nil {
		for i := range c.old.Regions {
			if key := c.old.Regions[i].Key; c.app.region(key) == nil {
				c.keepRegion(key, RegionOps{Epoch: c.was.Regions[key].Epoch + 1})
			}
		}
	}
	for key, ops := range c.was.Policies {
		if c.app.policy(key) == nil && ops.Epoch > 0 {
			c.next.Policies[key] = PolicyOps{Epoch: ops.Epoch}
		}
	}
}

// salts stores the salt of everything that has one. Of what vanished, only a
// salt that differs from its default is kept: the default comes back by itself.
func (c *carrier) salts() {
	for _, s := range c.app.salts() {
		c.next.Salts[s.key] = s.in(c.was.Salts)
	}
	for key, value := range c.was.Salts {
		if _, present := c.next.Salts[key]; !present && value != defaultSalt(c.key, key) {
			c.next.Salts[key] = value
		}
	}
}

func stateOf(e *domain.Endpoint) domain.EndpointState { return cmp.Or(e.State, domain.Serving) }

func weightOf(e *domain.Endpoint) int {
	if e.Weight == nil {
		return domain.DefaultWeight
	}
	return *e.Weight
}

// positionOf shows how much a share takes.
func positionOf(s *policy.Share) string {
	switch {
	case s == nil:
		return "no share"
	case s.Of != nil:
		return fmt.Sprint(*s.Of)
	case s.Ramp != nil:
		return "ramp " + s.Ramp.String()
	default:
		return fmt.Sprintf("buckets %v", s.Buckets)
	}
}
