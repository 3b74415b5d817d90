package fault

import (
	"encoding/json"
	"errors"
	"net/http"
)

// Status is the HTTP status of a kind.
func Status(kind Kind) int {
	switch kind {
	case Invalid:
		return http.StatusUnprocessableEntity
	case Unauthenticated:
		return http.StatusUnauthorized
	case Denied:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case Conflict:
		return http.StatusConflict
	case Precondition:
		return http.StatusPreconditionRequired
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case Misdirected:
		return http.StatusMisdirectedRequest
	case Throttled:
		return http.StatusTooManyRequests
	case Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// Body is an RFC 9457 problem: what the caller of an API sees of an error.
type Body struct {
	Type     string    `json:"type,omitempty"`
	Title    string    `json:"title"`
	Status   int       `json:"status"`
	Code     string    `json:"code"`
	Detail   string    `json:"detail,omitempty"`
	Hint     string    `json:"hint,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	Data     any       `json:"data,omitempty"`
	Said     Said      `json:"-"`
}

// BodyOf is what a caller may see of err. Internal errors say nothing more than
// that they are internal.
func BodyOf(err error) Body {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind == Internal {
		return Body{Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError,
			Code: "internal", Detail: "internal error"}
	}
	status := Status(e.Kind)
	return Body{Title: http.StatusText(status), Status: status, Code: e.Code,
		Detail: e.Detail, Hint: e.Hint, Problems: e.Problems, Data: e.Data, Said: e.Said}
}

// Write answers err as application/problem+json.
func Write(w http.ResponseWriter, err error) {
	body := BodyOf(err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(body.Status)
	_ = json.NewEncoder(w).Encode(body) // the caller has gone; nothing is left to tell them
}
