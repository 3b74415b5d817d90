// Package baggage carries a call's lane from hop to hop in W3C baggage, for HTTP
// and gRPC alike:
//
//	baggage: env_id=t2,base_env=t0,dispatch_person=li,other=kept
//
//	caller:  Out(ctx, lane, header) ──► header      callee:  In(ctx, header, person) ──► ctx
//	edge:    Strip(header) ──► header without a lane
//
// The lane's members come first, whatever else there is. Members of others are kept
// as they are, also over a hop that does not know them, while the header stays
// within the 64 members and 8,192 bytes that every hop must pass on.
//
// A lane that cannot be read is refused with a *fault.Error: to ignore it would send
// the call to another environment. It owns no goroutine and keeps nothing.
package baggage

import (
	"context"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/fault"
)

const (
	// Header is the name in HTTP. In gRPC the metadata key is the same in lower case.
	Header = "Baggage"
	// PersonHeader is how people name a person by hand, with Postman or from a front
	// end: the version of that person's own instances. It counts where the baggage
	// names none, and travels on as baggage.
	PersonHeader = "X-Dispatch-Version"

	maxMembers = 64
	maxBytes   = 8192
	maxValue   = 128 // bytes, as of a coordinate
	laneBytes  = 64  // of an ordinary lane: t2, t0, a short name
)

type restKey struct{}

// In returns a context for the lane that header values and, where they name no
// person, a PersonHeader carry. Without any it is ctx.
func In(ctx context.Context, header []string, person string) (context.Context, error) {
	lane, rest, err := read(header)
	if err != nil {
		return nil, err
	}
	if lane.Person == "" && person != "" {
		if err := check(PersonHeader, person); err != nil {
			return nil, err
		}
		lane.Person = person
	}
	if rest != "" {
		ctx = context.WithValue(ctx, restKey{}, rest)
	}
	if lane == (route.Query{}) {
		return ctx, nil
	}
	return caller.WithLane(ctx, lane), nil
}

// Out is the header of a call: the lane, then what the request has already, then
// what came in with ctx. It is empty when there is nothing to say. The lane
// replaces one that the request has.
func Out(ctx context.Context, lane route.Query, header []string) string {
	var b strings.Builder
	members := 0
	for _, m := range [...]struct{ name, value string }{
		{caller.BaggageEnv, lane.Env}, {caller.BaggageBase, lane.Base}, {caller.BaggagePerson, lane.Person},
	} {
		if m.value != "" {
			if b.Len() == 0 {
				b.Grow(laneBytes)
			}
			add(&b, m.name)
			b.WriteByte('=')
			b.WriteString(url.PathEscape(m.value))
			members++
		}
	}
	rest, _ := ctx.Value(restKey{}).(string)
	if len(header) == 0 && rest == "" {
		return b.String()
	}
	seen := map[string]bool{}
	for _, values := range append(header[:len(header):len(header)], rest) {
		for member := range strings.SplitSeq(values, ",") {
			member = strings.TrimSpace(member)
			name := nameOf(member)
			if name == "" || isLane(name) || seen[name] || members == maxMembers || b.Len()+1+len(member) > maxBytes {
				continue
			}
			seen[name] = true
			members++
			add(&b, member)
		}
	}
	return b.String()
}

// Strip is the header without a lane.
func Strip(header []string) string { return Out(context.Background(), route.Query{}, header) }

func add(b *strings.Builder, member string) {
	if b.Len() > 0 {
		b.WriteByte(',')
	}
	b.WriteString(member)
}

// read splits a lane from the members of others.
func read(header []string) (lane route.Query, rest string, err error) {
	var others strings.Builder
	for _, values := range header {
		for member := range strings.SplitSeq(values, ",") {
			member = strings.TrimSpace(member)
			switch name := nameOf(member); {
			case name == "":
			case !isLane(name):
				if others.Len() < maxBytes { // Out cuts exactly
					add(&others, member)
				}
			default:
				if err := set(&lane, name, member); err != nil {
					return lane, "", err
				}
			}
		}
	}
	return lane, others.String(), nil
}

// set takes one member of the lane.
func set(lane *route.Query, name, member string) error {
	_, text, _ := strings.Cut(member, "=")
	text, _, _ = strings.Cut(text, ";") // properties say nothing to us
	value, err := url.PathUnescape(strings.TrimSpace(text))
	if err != nil {
		return fault.New(fault.Invalid, "bad_lane", "baggage %s is not percent-encoded", name).Because(err)
	}
	if err := check("baggage "+name, value); err != nil {
		return err
	}
	field := map[string]*string{caller.BaggageEnv: &lane.Env, caller.BaggageBase: &lane.Base, caller.BaggagePerson: &lane.Person}[name]
	if *field != "" && *field != value {
		return fault.New(fault.Invalid, "bad_lane", "baggage %s is stated twice, differently", name)
	}
	*field = value
	return nil
}

// check wants what a coordinate may be, or nothing.
func check(what, value string) error {
	if len(value) > maxValue || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) || value != strings.TrimSpace(value) {
		return fault.New(fault.Invalid, "bad_lane", "%s names nothing: it has more than %d bytes, blanks at an end, control characters or bytes that are no UTF-8", what, maxValue)
	}
	return nil
}

func nameOf(member string) string {
	name, _, ok := strings.Cut(member, "=")
	if !ok {
		return "" // no member at all
	}
	return strings.TrimSpace(name)
}

func isLane(name string) bool {
	return name == caller.BaggageEnv || name == caller.BaggageBase || name == caller.BaggagePerson
}
