package policy

import (
	"net/netip"
	"time"
)

// Request is all that a decision may depend on besides the release and the
// replica. Ids are in normal form (whitelist.Normalizer); empty means absent.
type Request struct {
	Now        time.Time
	Device     string
	User       string
	AppVersion string
	Platform   string
	Channel    string
	Carrier    string
	Locale     string
	Hint       string // origin hint; empty unless a trusted proxy gave it
	Addr       netip.Addr
	AddrSource string // where Addr was read, such as peer or x-forwarded-for; only Explain and decision records show it
	Attrs      []Attr // for attr conditions, in order of arrival; the first of a name counts
	Session    Session
}

// Attr is one attr.NAME input.
type Attr struct{ Name, Value string }

// attr is the first value of a name. Names are few, so a scan is enough.
func (r *Request) attr(name string) (value string, ok bool) {
	for i := range r.Attrs {
		if r.Attrs[i].Name == name {
			return r.Attrs[i].Value, true
		}
	}
	return "", false
}

// Replica is where this process stands. It is part of what a decision depends on.
type Replica struct {
	Cluster string `json:"cluster,omitempty"`
	Region  string `json:"region,omitempty"`
	Env     string `json:"env,omitempty"`
	Version string `json:"version,omitempty"`
}
