package export

import (
	"fmt"
	"net/url"
	"strings"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// HAProxy is a configuration for HAProxy 2.6 and later: rules for a frontend, and a
// file for each list. dir is where the lists will lie.
func HAProxy(a App, dir string) Export {
	p := newPlan(a)
	h := &haproxy{plan: p, dir: dir}
	h.head()
	for i := range p.steps {
		h.step(i, &p.steps[i])
	}
	out := Export{Files: []File{{a.Rules.App + ".haproxy.cfg", h.b.String()}}, Notes: p.notes}
	for _, key := range h.lists {
		out.Files = append(out.Files, File{key + ".lst", strings.Join(usable(p.IDs[key]), "\n") + "\n"})
	}
	return out
}

type haproxy struct {
	*plan
	dir   string
	b     strings.Builder
	lists []string // that a step named
}

func (h *haproxy) line(format string, args ...any) {
	fmt.Fprintf(&h.b, "  "+format+"\n", args...)
}

// open ends a rule that decides nothing more.
const open = "!{ var(txn.dispatch_region) -m found }"

// ids are where each id comes from.
var ids = []struct{ kind, header string }{{"device", "X-Device-Id"}, {"user", "X-User-Id"}}

// head finds the ids, and asks for every request that has more than headers.
func (h *haproxy) head() {
	fmt.Fprintf(&h.b, "# App %s of release %d. Put these lines into a frontend of mode http.\n# var(txn.dispatch_region) is a region, or ask: then dispatch must decide.\n", h.Rules.App, h.Release)
	h.line("http-request set-var(txn.dispatch_region) str(%s) unless { method GET }", Ask)
	for _, header := range []string{"X-Session-Token", "X-Session-Id", "X-Forwarded-For", "Forwarded", "X-Origin-Region"} {
		h.line("http-request set-var(txn.dispatch_region) str(%s) if { req.fhdr(%s) -m found }", Ask, header)
	}
	h.line("http-request set-var(txn.dispatch_region) str(%s) if { query -m found } !{ query -m str app=%s }", Ask, h.Rules.App)
	fold := ""
	if h.FoldIDs {
		fold = ",lower"
	}
	for _, id := range ids {
		v := "txn.dispatch_" + id.kind
		if id.kind == "user" && !h.OpenUser {
			if h.usesUser() {
				h.line("http-request set-var(txn.dispatch_region) str(%s) if { req.fhdr(%s) -m found }", Ask, id.header)
			}
			continue
		}
		h.line("http-request set-var(%s) req.fhdr(%s,1)%s if { req.fhdr(%s,1) -m len gt 0 }", v, id.header, fold, id.header)
		h.line("http-request set-var(txn.dispatch_region) str(%s) if { var(%s) -m reg '[^%s]' }", Ask, v, plain)
		h.line("http-request set-var(txn.dispatch_region) str(%s) if { var(%s) -m len gt %d }", Ask, v, whitelist.MaxID)
		for _, none := range usable(h.Absent) {
			h.line("http-request unset-var(%s) if { var(%s) -m str -i %s }", v, v, none)
		}
	}
}

func (h *haproxy) step(i int, s *step) {
	fmt.Fprintf(&h.b, "  # %s\n", s.name)
	when, region := h.conditions(i, s), ""
	if s.doubt {
		h.line("http-request set-var(txn.dispatch_region) str(%s) if %s%s", Ask, open, when)
		return
	}
	if to, outright := s.outright(); outright {
		h.line("http-request set-var(txn.dispatch_region) str(%s) if %s%s", h.region[to], open, when)
		return
	}
	key, bucket := h.key(i, s), fmt.Sprintf("txn.dispatch_bucket%d", i)
	if s.split {
		h.note("%s: a request without the id that it draws by", s.name)
		h.line("http-request set-var(txn.dispatch_region) str(%s) if %s%s !{ var(%s) -m found }", Ask, open, when, key)
	}
	// xxh64 gives a signed number and the bucket is that of an unsigned one: 2^64 mod 10000 is 1616.
	h.line("http-request set-var(txn.dispatch_text) str(%s%%00),concat(,%s.enc),url_dec if { var(%s) -m found }", strings.ReplaceAll(url.PathEscape(s.salt), ",", "%2C"), key, key)
	h.line("http-request set-var(txn.dispatch_hash) var(txn.dispatch_text),xxh64 if { var(%s) -m found }", key)
	h.line("http-request set-var(%s) var(txn.dispatch_hash),mod(%d) if { var(%s) -m found }", bucket, policy.Whole, key)
	h.line("http-request set-var(%s) var(%s),add(11616),mod(%d) if { var(%s) -m found } { var(txn.dispatch_hash) -m int lt 0 }", bucket, bucket, policy.Whole, key)
	for _, r := range s.spans {
		region = h.region[r.region]
		h.line("http-request set-var(txn.dispatch_region) str(%s) if %s%s { var(%s) -m found } { var(%s) -m int %d:%d }", region, open, when, key, bucket, r.low, r.high)
	}
}

// key sets the id that the step hashes, and the same percent-encoded: only so can
// HAProxy join it to the zero byte behind the salt.
func (h *haproxy) key(i int, s *step) string {
	key := fmt.Sprintf("txn.dispatch_key%d", i)
	first, second := "device", ""
	switch s.by {
	case policy.ByUser:
		first = "user"
	case policy.ByDeviceThenUser:
		second = "user"
	case policy.ByUserThenDevice:
		first, second = "user", "device"
	}
	h.line("http-request set-var(%s) var(txn.dispatch_%s) if { var(txn.dispatch_%s) -m found }", key, first, first)
	if second != "" {
		h.line("http-request set-var(%s) var(txn.dispatch_%s) if { var(txn.dispatch_%s) -m found } !{ var(%s) -m found }", key, second, second, key)
	}
	h.line("http-request set-var(%s.enc) var(%s),url_enc if { var(%s) -m found }", key, key, key)
	return key
}

// conditions are the anonymous ACLs of a step, each behind a space.
func (h *haproxy) conditions(i int, s *step) string {
	var b strings.Builder
	for n, c := range s.when {
		not := ""
		if c.not {
			not = "!"
		}
		switch c.kind {
		case "device", "user":
			fmt.Fprintf(&b, " %s{ var(txn.dispatch_%s) -m found }", not, c.kind)
		case "cidr":
			fmt.Fprintf(&b, " %s{ src %s }", not, strings.Join(c.values, " "))
		case "list":
			name := fmt.Sprintf("dispatch_%d_%d", i, n)
			for _, key := range c.values {
				h.line("acl %s var(txn.dispatch_%s) -m str -f %s/%s.lst", name, h.ListOf[key], h.dir, key)
				h.lists = appendNew(h.lists, key)
			}
			fmt.Fprintf(&b, " %s%s", not, name)
		default:
			header := "X-" + strings.ToUpper(c.kind[:1]) + c.kind[1:]
			if c.not {
				fmt.Fprintf(&b, " { req.fhdr(%s,1) -m len gt 0 }", header)
			}
			fmt.Fprintf(&b, " %s{ req.fhdr(%s,1) -m str -i %s }", not, header, strings.Join(c.values, " "))
		}
	}
	return b.String()
}

func appendNew(all []string, key string) []string {
	for _, have := range all {
		if have == key {
			return all
		}
	}
	return append(all, key)
}
