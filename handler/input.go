package handler

import (
	"net/http"
	"strings"

	"dispatch.example/dispatch/policy"
)

// Limits of one request. Longer queries are 414, bodies 413; header blocks past
// maxHeader are answered 431 by net/http.
const (
	maxQuery  = 2 << 10
	maxBody   = 8 << 10
	maxHeader = 16 << 10 // request line and headers; web views bring cookies
	maxAttrs  = 16       // attr.NAME inputs; more are counted and dropped
)

// field is one named input of /route.
type field uint8

const (
	fApp field = iota
	fDevice
	fUser
	fVersion
	fPlatform
	fChannel
	fCarrier
	fLocale
	fSession
	fHint
	fSessionID // its header is read by readSessionID
	numFields
)

// headers are the canonical header names by field.
var headers = [fSessionID]string{
	fApp: "X-App", fDevice: "X-Device-Id", fUser: "X-User-Id", fVersion: "X-App-Version",
	fPlatform: "X-Platform", fChannel: "X-Channel", fCarrier: "X-Carrier", fLocale: "X-Locale",
	fSession: "X-Session-Token", fHint: "X-Origin-Region",
}

// recordKeys names the record keys that a client knows, separated by commas.
const recordKeys = "X-Record-Keys"

// fieldOf is the field that a query or JSON key names.
func fieldOf(key string) (field, bool) {
	switch key {
	case "app":
		return fApp, true
	case "device_id":
		return fDevice, true
	case "user_id":
		return fUser, true
	case "app_version":
		return fVersion, true
	case "platform":
		return fPlatform, true
	case "channel":
		return fChannel, true
	case "carrier":
		return fCarrier, true
	case "locale":
		return fLocale, true
	case "session":
		return fSession, true
	case "session_id":
		return fSessionID, true
	case "origin":
		return fHint, true
	}
	return 0, false
}

// inputs are what one request says, before any of it is believed. Headers are
// read first, then the query, then the body; the first value of a field counts.
type inputs struct {
	value [numFields]string
	set   uint16 // one bit a field: a blank value that came first counts too
	attrs []policy.Attr
	bad   badInputs
}

// reset forgets the request and keeps the memory.
func (in *inputs) reset() {
	clear(in.attrs)
	*in = inputs{attrs: in.attrs[:0]}
}

func (in *inputs) put(f field, value string) {
	if in.set&(1<<f) == 0 {
		in.set |= 1 << f
		in.value[f] = value
	}
}

// putKey stores a query or JSON input; keys that mean nothing are ignored.
func (in *inputs) putKey(key, value string) {
	if f, ok := fieldOf(key); ok {
		in.put(f, value)
		return
	}
	name, ok := strings.CutPrefix(key, "attr.")
	if !ok || name == "" {
		return
	}
	for _, a := range in.attrs {
		if a.Name == name {
			return
		}
	}
	if len(in.attrs) == maxAttrs {
		in.bad.note(badAttrs)
		return
	}
	in.attrs = append(in.attrs, policy.Attr{Name: name, Value: value})
}

// readHeaders stores the first value of each header. Go's server has brought
// the names into canonical form, so the map is asked directly.
func (in *inputs) readHeaders(h http.Header) {
	for f, name := range headers {
		if v := h[name]; len(v) > 0 {
			in.put(field(f), v[0])
		}
	}
}

// readQuery splits a raw query at & alone: a semicolon is a character like any
// other. Escapes are undone once; one that is malformed stays as it is written.
func (in *inputs) readQuery(raw string) {
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key != "" {
			in.putKey(in.unescape(key), in.unescape(value))
		}
	}
}

// unescape undoes percent-encoding and plus. It allocates only when there is some.
func (in *inputs) unescape(s string) string {
	i := strings.IndexAny(s, "%+")
	if i < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	b.WriteString(s[:i])
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == '+':
			b.WriteByte(' ')
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			b.WriteByte(unhex(s[i+1])<<4 | unhex(s[i+2]))
			i += 2
		default:
			if c == '%' {
				in.bad.note(badEscape)
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}
