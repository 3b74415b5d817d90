package handler

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// maxLogged is how much of a client's own text a record keeps, in bytes.
const maxLogged = 64

// renderer turns decisions into JSON lines.
type renderer struct {
	hash func(of whitelist.Of, id string) whitelist.Hash
	tail []byte // ,"replica":…,"databases":…}\n: the same in every line of this process
}

func newRenderer(replica policy.Replica, databases policy.GeoDigests, hash func(whitelist.Of, string) whitelist.Hash) (renderer, error) {
	r, err := json.Marshal(replica)
	if err != nil {
		return renderer{}, fmt.Errorf("render replica coordinates: %w", err)
	}
	d, err := json.Marshal(databases)
	if err != nil {
		return renderer{}, fmt.Errorf("render database digests: %w", err)
	}
	return renderer{hash: hash, tail: fmt.Appendf(nil, ",\"replica\":%s,\"databases\":%s}\n", r, d)}, nil
}

// append renders one line. It is written by hand because it runs in every request.
func (r *renderer) append(b []byte, d *decision) []byte {
	b = append(b, `{"time":"`...)
	b = d.req.Now.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","id":"`...)
	b = appendID(b, d.id)
	b = append(b, '"')
	b = appendTrace(b, &d.at.Hop)
	b = appendField(b, "app", d.app.App.Key)
	b = append(b, `,"release":`...)
	b = strconv.AppendUint(b, d.snap.Number, 10)
	b = append(b, `,"digest":"`...)
	b = hex.AppendEncode(b, d.snap.Digest[:])
	b = append(b, '"')
	b = appendOutcome(b, d)
	b = r.appendRequest(b, &d.req)
	return append(b, r.tail...)
}

// appendOutcome renders what was decided. Candidates are the regions that the
// last step chose among: the named one, and its failover list if it was left.
func appendOutcome(b []byte, d *decision) []byte {
	regions := d.app.Table.Regions()
	b = appendField(b, "reason", d.out.Reason.String())
	if d.out.Policy >= 0 {
		b = appendField(b, "policy", d.app.Table.PolicyKey(d.out.Policy))
	}
	b = append(b, `,"bucket":`...)
	b = strconv.AppendInt(b, int64(d.out.Bucket), 10)
	if d.out.Named >= 0 {
		named := &regions[d.out.Named]
		b = append(b, `,"candidates":[`...)
		b = appendString(b, named.Key)
		if d.out.Named != d.out.Region {
			for _, key := range named.Failover {
				b = appendString(append(b, ','), key)
			}
		}
		b = append(b, ']')
	}
	if d.out.Region >= 0 {
		region := &regions[d.out.Region]
		b = appendField(b, "region", region.Key)
		b = appendField(b, "endpoint", region.Endpoints[d.out.Endpoint].Key)
	}
	b = append(b, `,"notes":[`...)
	first := true
	for note := range d.out.Notes.All() {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendString(b, note)
	}
	return append(b, ']')
}

// appendRequest renders what the decision depended on. Ids and attributes are
// keyed hashes, the address its /24 or /56 and what gave it.
func (r *renderer) appendRequest(b []byte, req *policy.Request) []byte {
	b = r.appendHash(b, "device", whitelist.Device, req.Device)
	b = r.appendHash(b, "user", whitelist.User, req.User)
	if p := clientPrefix(req.Addr); p.IsValid() {
		b = append(b, `,"prefix":"`...)
		b = p.AppendTo(b)
		b = append(b, '"')
		b = appendField(b, "addr_source", req.AddrSource)
	}
	for _, f := range [...]struct{ name, value string }{
		{"app_version", req.AppVersion}, {"platform", req.Platform}, {"channel", req.Channel},
		{"carrier", req.Carrier}, {"locale", req.Locale}, {"origin", req.Hint},
	} {
		if f.value != "" {
			b = appendField(b, f.name, cut(f.value))
		}
	}
	b = appendSession(b, &req.Session)
	if len(req.Attrs) == 0 || r.hash == nil {
		return b
	}
	b = append(b, `,"attrs":{`...)
	for i, a := range req.Attrs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, cut(a.Name)), ':')
		h := r.hash("attr", a.Value)
		b = append(hex.AppendEncode(append(b, '"'), h[:]), '"')
	}
	return append(b, '}')
}

// appendSession renders what the client's token said, nothing without a valid one.
func appendSession(b []byte, s *policy.Session) []byte {
	if s.Region == "" {
		return b
	}
	b = append(b, `,"session":{"start":"`...)
	b = s.Start.UTC().AppendFormat(b, time.RFC3339)
	b = append(b, `","expires":"`...)
	b = s.Expires.UTC().AppendFormat(b, time.RFC3339)
	b = append(b, '"')
	for _, f := range [...]struct{ name, value string }{
		{"region", s.Region}, {"endpoint", s.Endpoint}, {"policy", s.Policy}, {"bound", string(s.Bound)},
	} {
		if f.value != "" {
			b = appendField(b, f.name, f.value)
		}
	}
	b = append(b, `,"region_epoch":`...)
	b = strconv.AppendUint(b, uint64(s.RegionEpoch), 10)
	b = append(b, `,"policy_epoch":`...)
	b = strconv.AppendUint(b, uint64(s.PolicyEpoch), 10)
	return append(b, '}')
}

func (r *renderer) appendHash(b []byte, name string, of whitelist.Of, id string) []byte {
	if id == "" || r.hash == nil {
		return b
	}
	h := r.hash(of, id)
	b = append(append(append(b, `,"`...), name...), `":"`...)
	return append(hex.AppendEncode(b, h[:]), '"')
}

// clientPrefix is the network that stands for a client without an id: /24 or /56.
func clientPrefix(a netip.Addr) netip.Prefix {
	bits := 56
	if a.Is4() {
		bits = 24
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no address
	}
	return p
}

func appendID(b []byte, id [2]uint64) []byte {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], id[0])
	binary.BigEndian.PutUint64(raw[8:], id[1])
	return hex.AppendEncode(b, raw[:])
}

// cut bounds a client's text, at the start of a character.
func cut(s string) string {
	if len(s) <= maxLogged {
		return s
	}
	n := maxLogged
	for n > maxLogged-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func appendField(b []byte, name, value string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendString(b, value)
}

// appendString renders s as a JSON string. Everything outside printable ASCII
// is escaped, so that no log viewer or terminal acts on what a client sent.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	plain := 0 // up to here all is in b
	for i := 0; i < len(s); {
		if c := s[i]; c >= ' ' && c <= '~' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[plain:i]...)
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		plain = i
		if r == '"' || r == '\\' {
			b = append(b, '\\', byte(r))
			continue
		}
		if r <= 0xffff {
			b = fmt.Appendf(b, `\u%04x`, r)
			continue
		}
		r -= 0x10000
		b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return append(append(b, s[plain:]...), '"')
}
