package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The default of a finished gray is a draft, and the command says which.
func TestGrayDefaultNamesItsDraft(t *testing.T) {
	t.Parallel()
	asked := new(notes[string])
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.take(strings.TrimSpace(r.Method + " " + r.URL.Path + " " + string(body)))
		_, _ = io.WriteString(w, `{"app":"mobile","policy":"gray","state":"finished","share":"10000","draft":"k3v9"}`)
	}))
	t.Cleanup(s.Close)
	got := ctl(t, s.URL, streams{}, "gray", "default", "mobile/gray", "--reason", "it took all", "--confirm", "gray")
	if got.exit != 0 || got.out != "mobile/gray is finished, at 10000 of 10,000\ndraft k3v9 makes its region the default: dispatchctl draft show k3v9\n" {
		t.Errorf("it printed %+v", got)
	}
	if all := asked.all(); len(all) != 2 || !strings.HasPrefix(all[1], "POST /api/v1/grays/mobile/gray ") || !strings.Contains(all[1], `"action":"default"`) {
		t.Errorf("it asked %q", all)
	}
}
