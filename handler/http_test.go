package handler

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/route/*.response.json anew")

// response is what the files of testdata/route hold.
type response struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header"`
	Body   json.RawMessage   `json:"body,omitempty"`
}

// TestRouteFiles answers each *.request.http and compares with *.response.json.
// A line "# peer ADDRESS:PORT" before the request says who connects.
func TestRouteFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/route/*.request.http")
	if err != nil || len(files) == 0 {
		t.Fatalf("no request files: %v", err)
	}
	f := newFixture(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".request.http"), func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			f.handler.Public().ServeHTTP(w, readRequest(t, file))
			got, err := json.MarshalIndent(shown(w), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			answer := strings.TrimSuffix(file, ".request.http") + ".response.json"
			if *update {
				if err := os.WriteFile(answer, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(answer)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s\ngot  %s\nwant %s", answer, got, want)
			}
		})
	}
}

func readRequest(t *testing.T, file string) *http.Request {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	peer := "203.0.113.9:40000"
	for bytes.HasPrefix(text, []byte("#")) {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		if p, ok := strings.CutPrefix(string(line), "# peer "); ok {
			peer = p
		}
	}
	head, body, _ := bytes.Cut(text, []byte("\n\n"))
	head = bytes.ReplaceAll(head, []byte("\n"), []byte("\r\n"))
	body = bytes.TrimSuffix(body, []byte("\n"))
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(append(head, "\r\n\r\n"...))))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	r = r.WithContext(t.Context())
	r.RemoteAddr = peer
	if len(body) > 0 {
		r.Body, r.ContentLength = http.NoBody, int64(len(body))
		r.Body = readCloser{bytes.NewReader(body)}
	}
	return r
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// shown is an answer with what differs from run to run left out: the signed
// record, and the session token, of which only the length stays.
func shown(w *httptest.ResponseRecorder) response {
	out := response{Status: w.Code, Header: map[string]string{}}
	for name, values := range w.Header() {
		out.Header[name] = strings.Join(values, " | ")
	}
	var body map[string]any
	if json.Unmarshal(w.Body.Bytes(), &body) != nil {
		out.Body, _ = json.Marshal(w.Body.String())
		return out
	}
	for _, name := range []string{"record", "session"} {
		if s, ok := body[name].(string); ok && s != "" {
			body[name] = "…"
		}
	}
	out.Body, _ = json.Marshal(body)
	return out
}
