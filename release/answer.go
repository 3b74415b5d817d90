package release

import (
	"encoding/json"
	"fmt"
	"strings"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

const (
	// MaxAnswer is the largest body of an answer in bytes: it fits one packet
	// with its headers.
	MaxAnswer = 1200
	// answerTail is what a request adds to a pre-rendered body:
	// ,"ttl":43200,"session":"…"} with a token of 170 characters.
	answerTail = len(`,"ttl":43200,"session":""}`) + 170
)

// Answer is a pre-rendered body: everything before ,"ttl":N,"session":"…"}.
// Bodies holds one for each active record key, current first; Kids their ids.
type Answer struct {
	Kids   []string
	Bodies [][]byte
}

// Body is the body whose record a client can verify: by the first of its keys
// (the X-Record-Keys header, kids with commas between them) that is active, else
// by the current one. It does not allocate.
func (a *Answer) Body(known string) []byte {
	for known != "" {
		var kid string
		kid, known, _ = strings.Cut(known, ",")
		kid = strings.Trim(kid, " \t")
		for i := range a.Kids {
			if a.Kids[i] == kid {
				return a.Bodies[i]
			}
		}
	}
	return a.Bodies[0]
}

// render makes the answer of a record; under are its signed copies.
func render(r Record, kids, under []string) (Answer, error) {
	a := Answer{Kids: kids, Bodies: make([][]byte, len(under))}
	for i, jws := range under {
		body, err := json.Marshal(struct {
			App        string   `json:"app"`
			Region     string   `json:"region"`
			Domain     string   `json:"domain"`
			Alternates []string `json:"alternates"`
			Fallback   string   `json:"fallback"`
			Release    uint64   `json:"release"`
			Record     string   `json:"record"`
		}{r.App, r.Region, r.Domain, r.Alternates, r.Fallback, r.Release, jws})
		if err != nil {
			return Answer{}, fmt.Errorf("render answer of %s/%s/%s: %w", r.App, r.Region, r.Endpoint, err)
		}
		a.Bodies[i] = body[:len(body)-1] // without the closing brace
	}
	return a, nil
}

// checkAnswers refuses a release with an answer that would be too large, and
// names every app with its largest one.
func checkAnswers(b *recordBook, apps []App) error {
	var p fault.Problems
	for i := range apps {
		largest, where := 0, ""
		for _, r := range b.recordsOf(&apps[i]) {
			a, err := render(r, b.Keys, b.Apps[r.App].under(r))
			if err != nil {
				return err
			}
			for _, body := range a.Bodies {
				if size := len(body) + answerTail; size > largest {
					largest, where = size, endpointKey(r.Region, r.Endpoint)
				}
			}
		}
		if largest > MaxAnswer {
			p = append(p, fault.Problem{Path: fmt.Sprintf("apps[%d]", i),
				Detail: fmt.Sprintf("the answer of %s for %s would have %d bytes, at most %d are allowed", apps[i].Key, where, largest, MaxAnswer),
				Hint:   "shorten its hosts or keys, or leave fewer regions to be alternates"})
		}
	}
	return p.Err("answer_too_large", "an answer would be too large")
}

// recorder gives the records of an app in the order of recordBook.recordsOf, and
// their signed copies under each of some keys.
type recorder interface {
	take(app *App) (records []Record, under [][]string, err error)
	kids() []string
	apps() int // how many have records
}

// verified are the records of a set whose signature holds.
type verified struct {
	book  *recordBook
	trust *signed.Trust
}

func (v verified) take(app *App) ([]Record, [][]string, error) { return v.book.take(app, v.trust) }
func (v verified) kids() []string                              { return v.book.Keys }
func (v verified) apps() int                                   { return len(v.book.Apps) }

// unsigned are the records of a draft: what they would say, signed by nobody.
type unsigned struct{ m *Manifest }

func (u unsigned) take(app *App) ([]Record, [][]string, error) {
	records := (&recordBook{Deployment: u.m.Deployment, Release: u.m.Number}).recordsOf(app)
	under := make([][]string, len(records))
	for i := range under {
		under[i] = []string{""}
	}
	return records, under, nil
}

func (u unsigned) kids() []string { return []string{""} }
func (u unsigned) apps() int      { return len(u.m.Document.Apps) }

// answers renders the records of all apps and makes the apps findable.
func (s *Snapshot) answers(apps []Served, from recorder) error {
	if from.apps() != len(apps) {
		return badRecords("there are records of %d apps, not of %d", from.apps(), len(apps))
	}
	for i := range apps {
		if err := apps[i].answers(from); err != nil {
			return err
		}
	}
	s.find(apps)
	return nil
}

// find makes the apps findable.
func (s *Snapshot) find(apps []Served) {
	s.Apps, s.Hosts, s.Default = make(map[string]*Served, len(apps)), map[string]*Served{}, nil
	for i := range apps {
		app := &apps[i]
		s.Apps[app.App.Key] = app
		for _, host := range app.App.Hosts {
			s.Hosts[host] = app
		}
		if app.App.Default || len(apps) == 1 {
			s.Default = app
		}
	}
}

func (s *Served) answers(from recorder) error {
	records, under, err := from.take(s.App)
	if err != nil {
		return err
	}
	if s.Fallback, err = render(records[0], from.kids(), under[0]); err != nil {
		return err
	}
	n := 1
	s.Answer = make([][]Answer, len(s.App.Regions))
	for i := range s.App.Regions {
		region := &s.App.Regions[i]
		s.Answer[i] = make([]Answer, len(region.Endpoints))
		for j := range region.Endpoints {
			if region.Endpoints[j].State == domain.Closed {
				continue
			}
			if s.Answer[i][j], err = render(records[n], from.kids(), under[n]); err != nil {
				return err
			}
			n++
		}
	}
	return nil
}
