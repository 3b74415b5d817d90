// Package export writes rules in the words of other programs. Those of an app: the
// ranges of buckets for whoever prepares databases, and configurations of HAProxy and
// nginx that give the same region without asking dispatch. Those of internal calls:
// routes and clusters of Envoy.
//
//	Plan      rules → steps: what a proxy can tell, what it cannot, the ranges
//	Ranges    steps → one line a range, complete for every rule
//	HAProxy   steps → a configuration that sets var(txn.dispatch_region)
//	Nginx     steps → a configuration that sets $dispatch_region
//	Envoy     rules and instances → files that Envoy follows
//
// A proxy never guesses. Where something that it cannot express might decide, the
// region is the word ask, and the request belongs to dispatch. So every other
// answer is the one that dispatch would give, and an app whose rules can all be
// expressed is never asked for. Notes say what is asked for, and why.
//
// What a proxy sees are headers. A request with a session token, a body, other
// query parameters, a forwarded address or an id of unusual characters is asked
// for. All functions are pure; nothing here owns a goroutine.
package export

import (
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// Ask is the region of a request that only dispatch can decide.
const Ask = "ask"

// MaxList is how many ids of one list are written out; more are asked for.
const MaxList = 100_000

// App is what an export is made of: the rules as they serve.
type App struct {
	Rules    policy.Rules
	Release  uint64
	FoldIDs  bool                    // ids are compared without case
	Absent   []string                // ids that count as none
	OpenUser bool                    // a user id is believed from anybody; else requests with one are asked for
	ListOf   map[string]whitelist.Of // kind of each list that a policy names
	IDs      map[string][]string     // their ids in normal form; a list that is absent here is asked for
}

// File is one file of an export.
type File struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Export is the files of one form and what it cannot express.
type Export struct {
	Files []File   `json:"files"`
	Notes []string `json:"notes" doc:"what is left to dispatch, and why"`
}

// span gives the buckets low to high, both included, to a region; empty: to the next rule.
type span struct {
	low, high int
	region    string
}

// step is one rule. All conditions hold, then the bucket decides.
type step struct {
	name   string
	when   []condition
	never  bool // a condition can never hold
	doubt  bool // something that a proxy cannot tell must hold, too
	spans  []span
	split  bool // without the id that it buckets by, dispatch draws by the address; a share passes on
	by     policy.BucketBy
	salt   string
	ramped bool
}

// outright is the region of a step that needs no bucket.
func (s *step) outright() (string, bool) {
	if len(s.spans) == 1 && s.spans[0] == (span{0, policy.Whole - 1, s.spans[0].region}) {
		return s.spans[0].region, true
	}
	return "", false
}

// condition is something that a proxy can tell.
type condition struct {
	kind   string   // device, user, list, cidr, or the name of a header: platform, channel, carrier
	values []string // of a header or prefixes; of list: its key
	not    bool     // must fail; a header must be there all the same
}

// plan is an app's rules as steps. The last one always decides.
type plan struct {
	App
	steps  []step
	region map[string]string // what a region becomes: itself, who stands in for it, or Ask
	notes  []string
}

func newPlan(a App) *plan {
	p := &plan{App: a, region: map[string]string{}}
	for i := range a.Rules.Regions {
		p.standIn(&a.Rules.Regions[i])
	}
	for i := range a.Rules.Policies {
		p.policy(&a.Rules.Policies[i])
	}
	last := step{name: "otherwise", by: a.Rules.BucketBy, salt: p.salt("", "otherwise")}
	p.act(&last, a.Rules.Otherwise)
	p.steps = append(p.steps, last)
	return p
}

func (p *plan) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// standIn says where people of a region go now.
func (p *plan) standIn(r *domain.Region) {
	active := func(key string) bool {
		return slices.ContainsFunc(p.Rules.Regions, func(o domain.Region) bool {
			return o.Key == key && o.Condition() == domain.Active && o.Serves()
		})
	}
	if active(r.Key) {
		p.region[r.Key] = r.Key
		return
	}
	if r.Condition() == domain.Active {
		p.region[r.Key] = Ask
		p.note("region %s has no endpoint that serves", r.Key)
		return
	}
	var heirs []string
	for _, key := range r.Failover {
		if active(key) {
			heirs = append(heirs, key)
		}
	}
	if len(heirs) == 1 {
		p.region[r.Key] = heirs[0]
		return
	}
	p.region[r.Key] = Ask
	p.note("region %s is %s and %d regions stand in for it", r.Key, r.Condition(), len(heirs))
}

// salt is the one that the policy states, else the stored one, else the default.
func (p *plan) salt(stated, key string) string {
	if stated != "" {
		return stated
	}
	if stored := p.Rules.Salts[key]; stored != "" {
		return stored
	}
	return p.Rules.App + "/" + key
}

func (p *plan) policy(rule *policy.Policy) {
	s := step{name: rule.Key, by: rule.BucketBy, salt: p.salt(rule.Salt, rule.Key)}
	if s.by == "" {
		s.by = p.Rules.BucketBy
	}
	p.conditions(&s, &rule.When, false)
	if rule.When.Not != nil {
		p.conditions(&s, rule.When.Not, true)
	}
	if s.never {
		return
	}
	p.act(&s, rule.Then)
	p.steps = append(p.steps, s)
}

// conditions translates what is written, or what must fail.
func (p *plan) conditions(s *step, w *policy.When, not bool) {
	doubt := func(what string, written bool) {
		if written {
			s.doubt = true
			p.note("policy %s: %s", s.name, what)
		}
	}
	for _, header := range []struct {
		name   string
		values policy.Strings
	}{{"platform", w.Platform}, {"channel", w.Channel}, {"carrier", w.Carrier}} {
		switch {
		case len(header.values) == 0:
		case slices.ContainsFunc(header.values, odd):
			doubt("a "+header.name+" with characters that mean something to proxies", true)
		default:
			s.when = append(s.when, condition{header.name, header.values, not})
		}
	}
	if len(w.CIDR) > 0 {
		s.when = append(s.when, condition{"cidr", w.CIDR, not})
	}
	p.listed(s, w.InList, not)
	for _, id := range []struct {
		kind string
		has  *bool
	}{{"device", w.HasDevice}, {"user", w.HasUser}} {
		if id.has != nil {
			s.when = append(s.when, condition{kind: id.kind, not: *id.has == not})
		}
	}
	doubt("app_version", w.AppVersion != "")
	doubt("locale", len(w.Locale) > 0)
	doubt("origin", len(w.Origin) > 0)
	doubt("region_of_replica", len(w.RegionOfReplica) > 0)
	doubt("country", len(w.Country) > 0)
	doubt("subdivision", len(w.Subdivision) > 0)
	doubt("asn", len(w.ASN) > 0)
	doubt("between", len(w.Between) > 0)
	doubt("attr", len(w.Attr) > 0)
}

// listed adds the condition on lists. Any of several is one condition; none of
// several is one for each.
func (p *plan) listed(s *step, keys policy.Strings, not bool) {
	for _, key := range keys {
		if _, written := p.IDs[key]; !written {
			s.doubt = true
			p.note("policy %s: list %s has more than %d ids, or they are not kept", s.name, key, MaxList)
			return
		}
	}
	switch {
	case len(keys) == 0:
	case not:
		for _, key := range keys {
			s.when = append(s.when, condition{"list", []string{key}, true})
		}
	default:
		s.when = append(s.when, condition{"list", keys, false})
	}
}

// act makes spans of what a rule does.
func (p *plan) act(s *step, action policy.Action) {
	if s.by == "" {
		s.by = policy.ByDevice
	}
	switch {
	case action.Share != nil:
		p.share(s, action.Share)
	case len(action.Split) > 0:
		s.split = true
		low := 0
		for _, part := range action.Split {
			if part.Of != nil {
				s.spans = append(s.spans, span{low, low + *part.Of - 1, part.Region})
				low += *part.Of
			}
			for _, b := range part.Buckets {
				s.spans = append(s.spans, span{b[0], b[1], part.Region})
			}
		}
	default:
		s.spans = []span{{0, policy.Whole - 1, action.Region}}
	}
	s.spans = slices.DeleteFunc(s.spans, func(r span) bool { return r.low > r.high })
	slices.SortFunc(s.spans, func(x, y span) int { return x.low - y.low })
}

func (p *plan) share(s *step, share *policy.Share) {
	switch {
	case share.Ramp != nil:
		s.doubt, s.ramped = true, true
		s.spans = []span{{0, policy.Whole - 1, share.Region}}
		p.note("policy %s: a ramp changes with time", s.name)
	case share.Of != nil:
		s.spans = []span{{0, *share.Of - 1, share.Region}}
	default:
		for _, b := range share.Buckets {
			s.spans = append(s.spans, span{b[0], b[1], share.Region})
		}
	}
}

// usesUser says whether a rule looks at the user id.
func (p *plan) usesUser() bool {
	return slices.ContainsFunc(p.steps, func(s step) bool {
		_, outright := s.outright()
		return !outright && s.by != policy.ByDevice || slices.ContainsFunc(s.when, func(c condition) bool {
			return c.kind == "user" || c.kind == "list" && slices.ContainsFunc(c.values, func(key string) bool { return p.ListOf[key] == whitelist.User })
		})
	})
}

// odd says whether a value has characters beyond those of names and versions.
func odd(value string) bool {
	return value == "" || strings.ContainsFunc(value, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	})
}

// plain are the characters of ids that proxies are trusted with, as a class of
// regular expressions; an id with any other is asked for.
const plain = `0-9A-Za-z._:@+/=~-`

func foreign(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._:@+/=~-", r))
}

// usable are the ids of plain characters. Others never reach the comparison.
func usable(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" || strings.ContainsFunc(id, foreign) })
}
