package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestKindAndCodeSurviveWrapping(t *testing.T) {
	cause := errors.New("disk full")
	err := fmt.Errorf("publish mobile: %w", New(Conflict, "stale_base", "made from release %d", 7).Because(cause))
	if KindOf(err) != Conflict || CodeOf(err) != "stale_base" || !errors.Is(err, cause) {
		t.Errorf("kind %d, code %q, cause found %v", KindOf(err), CodeOf(err), errors.Is(err, cause))
	}
	if KindOf(cause) != Internal || CodeOf(cause) != "internal" {
		t.Errorf("an error that is not ours has kind %d and code %q", KindOf(cause), CodeOf(cause))
	}
}

// Every kind has a status of its own; what has none would look like our own failure.
func TestEveryKindHasItsStatus(t *testing.T) {
	seen := map[int]Kind{}
	for kind := Internal; kind <= Unavailable; kind++ {
		status := Status(kind)
		if other, taken := seen[status]; taken {
			t.Errorf("kinds %d and %d are both %d", other, kind, status)
		}
		seen[status] = kind
	}
	if seen[http.StatusInternalServerError] != Internal {
		t.Error("500 is not for internal errors")
	}
}

func TestInternalErrorsKeepTheirTextInside(t *testing.T) {
	for _, err := range []error{errors.New("dial db: password hunter2"), New(Internal, "load_panic", "secret detail")} {
		w := httptest.NewRecorder()
		Write(w, err)
		if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "hunter2") || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

func TestAProblemListsEverything(t *testing.T) {
	var p Problems
	if p.Err("bad_document", "wrong") != nil {
		t.Error("no problem is an error")
	}
	p.Addf("apps[0].key", "is %q", "A B")
	p = append(p, Problem{File: "bank.yaml", Line: 3, Path: "apps[0].fallback", Detail: "is missing", Hint: "write a host"})
	err := p.Err("bad_document", "the document has mistakes")
	w := httptest.NewRecorder()
	Write(w, fmt.Errorf("check: %w", err))
	var body Body
	if e := json.Unmarshal(w.Body.Bytes(), &body); e != nil {
		t.Fatal(e)
	}
	if w.Code != http.StatusUnprocessableEntity || w.Header().Get("Content-Type") != "application/problem+json" ||
		body.Code != "bad_document" || len(body.Problems) != 2 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	want := "the document has mistakes\n  apps[0].key: is \"A B\"\n  bank.yaml:3: apps[0].fallback: is missing (write a host)"
	if err.Error() != want {
		t.Errorf("for people it reads\n%s\nwant\n%s", err, want)
	}
}

// What other languages need beside the English is in no JSON, and follows the English.
func TestASentenceKeepsItsValuesApart(t *testing.T) {
	err := New(Conflict, "frozen", "changes are frozen until %s: %s", "Monday", "%s").Hintf("wait %d s", 3)
	err.Problems = []Problem{ProblemOf("safety", Textf("%d %% more", 5), Word("100 % off"))}
	if detail, hint := BodyOf(err).Texts(); detail.Format != "changes are frozen until %s: %s" || len(detail.Args) != 2 || hint.Format != "wait %d s" ||
		err.Detail != "changes are frozen until Monday: %s" || err.Hint != "wait 3 s" {
		t.Errorf("%+v %+v of %q", detail, hint, err)
	}
	text, e := json.Marshal(BodyOf(err))
	if e != nil || string(text) != `{"title":"Conflict","status":409,"code":"frozen","detail":"changes are frozen until Monday: %s","hint":"wait 3 s",`+
		`"problems":[{"path":"safety","detail":"5 % more","hint":"100 % off"}]}` {
		t.Errorf("%s %v", text, e)
	}
	err.Detail = "thawed"
	if detail, _ := err.Texts(); detail.Format != "thawed" || len(detail.Args) != 0 {
		t.Errorf("another English is said as %+v", detail)
	}
	if all := Join("%s; %s", []Text{Word("a"), Textf("%d", 2), Word("c")}); all.String() != "a; 2; c" || Join("%s; %s", nil).String() != "" {
		t.Errorf("joined they are %q", all)
	}
}
