package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// hasBody says whether the request announces one. net/http sets NoBody when it does not.
func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// readBody reads the JSON object of a POST, whatever its content type says: web
// views send text/plain to spare themselves the preflight. An object that cannot
// be read is refused rather than skipped, because the app may be named in it and
// an answer for another app is worse than none.
func (in *inputs) readBody(r *http.Request, buf []byte) ([]byte, error) {
	if !hasBody(r) {
		return buf, nil
	}
	if r.ContentLength > maxBody {
		return buf, errBodyTooLarge
	}
	buf, err := readUpTo(r.Body, buf, maxBody)
	if err != nil {
		return buf, err
	}
	return buf, in.readJSON(buf)
}

// readUpTo appends r to buf[:0] and fails past limit.
func readUpTo(r io.Reader, buf []byte, limit int) ([]byte, error) {
	if cap(buf) < limit+1 {
		buf = make([]byte, 0, limit+1)
	}
	buf = buf[:0]
	for len(buf) <= limit {
		n, err := r.Read(buf[len(buf) : limit+1])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) && len(buf) <= limit {
			return buf, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return buf, errBadBody
		}
	}
	return buf, errBodyTooLarge
}

// readJSON stores the members of one JSON object. Numbers keep their digits, of
// a repeated key the first counts, null says nothing, and a member that is an
// object or an array is counted and left out. An empty body is no body.
func (in *inputs) readJSON(body []byte) error {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return errBadBody
	}
	var raw json.RawMessage
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return errBadBody
		}
		raw = raw[:0]
		if err := dec.Decode(&raw); err != nil {
			return errBadBody
		}
		in.putMember(key.(string), raw)
	}
	if _, err := dec.Token(); err != nil {
		return errBadBody
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errBadBody
	}
	return nil
}

func (in *inputs) putMember(key string, raw json.RawMessage) {
	switch raw[0] {
	case 'n':
	case '{', '[':
		in.bad.note(badType)
	case '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			in.putKey(key, s)
		}
	default: // a number, true or false, as written
		in.putKey(key, string(raw))
	}
}
