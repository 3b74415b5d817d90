package release

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
)

func TestAnswersAreWhatTheirRecordsSay(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.keys.Record = must(b.keys.Record.Rotate())
	snap := b.load(t, b.first, nil)
	for key, app := range snap.Apps {
		answers := []Answer{app.Fallback}
		for _, region := range app.Answer {
			answers = append(answers, region...)
		}
		for _, a := range answers {
			for i, body := range a.Bodies {
				var got struct {
					Record
					App    string `json:"app"`
					Signed string `json:"record"`
					TTL    int
				}
				if err := json.Unmarshal(append(append([]byte{}, body...), `,"ttl":1200,"session":"x"}`...), &got); err != nil {
					t.Fatalf("%s: %v", body, err)
				}
				want := payload(t, got.Signed)
				got.Record.App, got.Record.Issuer, got.Record.Endpoint, got.Record.Issued, got.Record.Expires =
					got.App, want.Issuer, want.Endpoint, want.Issued, want.Expires
				if fmt.Sprint(got.Record) != fmt.Sprint(want) || got.App != key {
					t.Errorf("answer %+v\nrecord %+v", got.Record, want)
				}
				if a.Kids[i] != b.keys.Record.IDs()[i] {
					t.Errorf("kid %s, want %s", a.Kids[i], b.keys.Record.IDs()[i])
				}
			}
		}
	}
	closed := snap.Apps["mobile"].Answer[0][2]
	if len(closed.Bodies) != 0 {
		t.Errorf("a closed endpoint has an answer: %s", closed.Bodies[0])
	}
}

func TestBodyByKnownKeys(t *testing.T) {
	a := Answer{Kids: []string{"new", "old"}, Bodies: [][]byte{[]byte("by new"), []byte("by old")}}
	for known, want := range map[string]string{
		"": "by new", "new": "by new", "old": "by old", "old,new": "by old", " old\t, new": "by old",
		"other": "by new", "other, old": "by old", ",,": "by new", "ol": "by new", strings.Repeat("x,", 5000) + "old": "by old",
	} {
		if got := string(a.Body(known)); got != want {
			t.Errorf("%.20q: %s, want %s", known, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { a.Body("other, old") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRenderEscapes(t *testing.T) {
	t.Parallel()
	r := Record{App: `a"b`, Region: "<é\u2028>", Alternates: []string{}}
	a := must(render(r, []string{"k"}, []string{"jws"}))
	var got struct{ App, Region string }
	if err := json.Unmarshal(append(a.Bodies[0], '}'), &got); err != nil || got.App != r.App || got.Region != r.Region {
		t.Errorf("%s: %v", a.Bodies[0], err)
	}
	if strings.Contains(string(a.Bodies[0]), "null") {
		t.Errorf("null in %s", a.Bodies[0])
	}
}

func TestSignRefusesTooLargeAnswers(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	long := func(n int) string { return strings.Repeat("very-", 9) + fmt.Sprintf("long-%d.bank.example", n) }
	m := next(b.first, func(doc *Document, _ *Operational, c *Change) {
		doc.Apps[1].Fallback = long(0)
		for i := range 4 {
			doc.Apps[1].Regions = append(doc.Apps[1].Regions, domain.Region{Key: fmt.Sprintf("r%d", i),
				Endpoints: []domain.Endpoint{{Key: "e", Domain: long(i + 1)}}})
		}
	})
	_, err := Sign(m, b.keys, madeAt())
	wantCode(t, err, "answer_too_large")
	if e, ok := err.(*fault.Error); !ok || len(e.Problems) != 1 || !strings.Contains(e.Problems[0].Detail, "corporate") ||
		!strings.Contains(e.Problems[0].Detail, "1200") {
		t.Errorf("the error must name the app and the sizes: %v", err)
	}
}
