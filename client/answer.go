package client

import (
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

const (
	// maxTTL bounds the ttl, which is not signed: a hijacked server must not be able to keep
	// a client away for good. A session lasts 12 h by default.
	maxTTL = 24 * time.Hour
	// maxNumber is the highest release number, 2^53−1: every language's numbers hold it.
	maxNumber = 1<<53 - 1
)

// trust is what answers are measured against. It never changes.
type trust struct {
	deployment string
	app        string
	keys       map[string]ed25519.PublicKey
	suffixes   []string
	builtIn    string
}

// answer is the body of a 200. After parse its domains are those of the record.
type answer struct {
	App        string   `json:"app"`
	Region     string   `json:"region"`
	Domain     string   `json:"domain"`
	Alternates []string `json:"alternates"`
	Fallback   string   `json:"fallback"`
	Release    uint64   `json:"release"`
	Record     string   `json:"record"`
	TTL        *int64   `json:"ttl"` // seconds
	Session    string   `json:"session"`

	kid         string // empty without pinned keys
	issued, end int64  // the record's iat and exp
}

func (a *answer) ttl() time.Duration {
	return time.Duration(min(*a.TTL, int64(maxTTL/time.Second))) * time.Second
}

// parse holds every check that needs neither the time nor what the client remembers.
func (t *trust) parse(body []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return answer{}, refuse(BadAnswer, "read answer: %w", err)
	}
	if a.TTL == nil || *a.TTL < 0 {
		return answer{}, refuse(BadAnswer, "ttl is missing or negative")
	}
	if strings.Trim(a.Session, tokenBytes) != "" || len(a.Session) > maxHeaderValue {
		return answer{}, refuse(BadAnswer, "session is no base64url of at most %d bytes", maxHeaderValue)
	}
	if len(t.keys) > 0 {
		if err := t.believe(&a); err != nil {
			return answer{}, err
		}
	} else if a.App != t.app {
		return answer{}, refuse(BadAnswer, "answer is for app %q", a.App)
	}
	named := append([]string{a.Domain}, a.Alternates...)
	if a.Fallback != "" {
		named = append(named, a.Fallback)
	}
	for _, d := range named {
		if !inside(d, t.suffixes) {
			return answer{}, refuse(BadDomain, "domain %q is outside the suffixes", d)
		}
	}
	return a, nil
}

const tokenBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// believe checks the record and that the answer around it says the same.
func (t *trust) believe(a *answer) error {
	r, kid, err := t.open(a.Record)
	if err != nil {
		return err
	}
	same := a.App == r.App && a.Region == r.Region && a.Domain == r.Domain &&
		slices.Equal(a.Alternates, r.Alternates) && a.Fallback == r.Fallback && a.Release == r.Release
	if !same {
		return refuse(Mismatch, "the answer differs from its record")
	}
	a.kid, a.issued, a.end = kid, r.Issued, r.Expires
	return nil
}
