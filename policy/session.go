package policy

import (
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/whitelist"
)

// Session is what a valid token says. The zero value is no session. It names
// things by key, so a recorded one can be walked again under another release.
type Session struct {
	Region      string       `json:"region"`
	Endpoint    string       `json:"endpoint,omitempty"` // empty: it is gone
	Policy      string       `json:"policy,omitempty"`   // empty: otherwise, or it is gone
	RegionEpoch uint32       `json:"region_epoch,omitempty"`
	PolicyEpoch uint32       `json:"policy_epoch,omitempty"`
	Start       time.Time    `json:"start"`
	Expires     time.Time    `json:"expires"`
	Bound       whitelist.Of `json:"bound,omitempty"` // which of the ids it is bound to; empty: neither
}

// SessionLife bounds a session.
type SessionLife struct{ TTL, Max time.Duration }

// clockSkew is how far the clocks of two replicas may differ before a token
// that one of them sealed is refused by the other.
const clockSkew = time.Minute

// OpenSession reads a token for this app, bound to either id. The Notes say why it is absent.
func (t *Table) OpenSession(token string, req *Request) (Session, Notes) {
	if token == "" {
		return Session{}, 0
	}
	var p payload
	seal, ok := t.unseal(token, &p)
	if !ok || p.app != seal.app {
		return Session{}, BadSession
	}
	s := Session{Start: time.Unix(p.start, 0), Expires: time.Unix(p.expires, 0),
		RegionEpoch: p.regionEpoch, PolicyEpoch: p.policyEpoch, Policy: seal.policies[p.policy], Bound: p.bound.of()}
	if req.Now.After(s.Expires.Add(clockSkew)) || s.Start.After(req.Now.Add(clockSkew)) {
		return Session{}, BadSession
	}
	if id := req.idOf(s.Bound); s.Bound != "" && (id == "" || seal.key.name(string(s.Bound), id) != p.id) {
		return Session{}, BadSession
	}
	n, ok := seal.regions[p.region]
	if !ok {
		return Session{}, StaleSession // the region is gone
	}
	s.Region = t.regions[n].Key
	if e, ok := seal.endpoints[p.endpoint]; ok && e.region == n {
		s.Endpoint = t.regions[n].Endpoints[e.endpoint].Key
	}
	return s, 0
}

// AppendSession appends the sealed token for d to dst. A session that was
// sticky keeps its start, its policy and the id it is bound to; while its region
// drains it also keeps its expiry. None is given to a fallback, or without
// session keys: then left is the TTL alone, after which the client asks again.
func (t *Table) AppendSession(dst []byte, d Decision, req *Request, life SessionLife) (out []byte, left time.Duration) {
	if d.Region < 0 || len(t.sessions) == 0 {
		return dst, life.TTL
	}
	seal := &t.sessions[0]
	p := t.newPayload(seal, d, req)
	p.expires = min(req.Now.Add(life.TTL).Unix(), p.start+int64(life.Max/time.Second))
	if d.Reason == Sticky && t.regions[d.Region].Condition() == domain.Draining {
		p.expires = min(p.expires, req.Session.Expires.Unix())
	}
	left = max(0, time.Unix(p.expires, 0).Sub(req.Now))
	return seal.key.appendToken(dst, &p), left
}

// newPayload is all of a token but its expiry.
func (t *Table) newPayload(seal *sealing, d Decision, req *Request) payload {
	region := &t.regions[d.Region]
	p := payload{app: seal.app, start: req.Now.Unix(), regionEpoch: region.Epoch,
		region: seal.region[d.Region], endpoint: seal.endpoint[d.Region][d.Endpoint]}
	bound := whitelist.Of("")
	policy := t.PolicyKey(d.Policy)
	p.policyEpoch = t.epochs[policy]
	if d.Reason == Sticky {
		s := &req.Session
		p.start, policy, p.policyEpoch, bound = s.Start.Unix(), s.Policy, s.PolicyEpoch, s.Bound
	}
	if policy != "" {
		p.policy = seal.key.name(nameOfPolicy, policy)
	}
	if bound == "" && req.Device != "" {
		bound = whitelist.Device
	}
	if bound == "" && req.User != "" {
		bound = whitelist.User
	}
	if bound != "" {
		p.bound, p.id = bindingTo(bound), seal.key.name(string(bound), req.idOf(bound))
	}
	return p
}

// idOf is the request's id of one kind, empty for none.
func (r *Request) idOf(of whitelist.Of) string {
	switch of {
	case whitelist.Device:
		return r.Device
	case whitelist.User:
		return r.User
	}
	return ""
}
