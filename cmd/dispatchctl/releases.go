package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

type releasesCmd struct {
	List   releasesListCmd   `cmd:"" default:"withargs" help:"Releases, newest first."`
	Show   releasesShowCmd   `cmd:"" help:"One release; -o json has its document and signature."`
	Review releasesReviewCmd `cmd:"" help:"Sign an emergency that somebody else made."`
	Adopt  releasesAdoptCmd  `cmd:"" help:"Bring what is served into a database that was restored from a backup."`
}

type releasesListCmd struct {
	Limit  int    `default:"20" help:"How many."`
	Before uint64 `placeholder:"N" help:"Only releases below this number."`
}

// Run prints a page.
func (c *releasesListCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Releases []struct {
			Number  uint64    `json:"number"`
			Created time.Time `json:"created"`
			Action  string    `json:"action"`
			By      string    `json:"by"`
			Reason  string    `json:"reason"`
		} `json:"releases"`
	}
	query := url.Values{"limit": {strconv.Itoa(c.Limit)}}
	if c.Before > 0 {
		query.Set("before", strconv.FormatUint(c.Before, 10))
	}
	answer, err := p.get(ctx, "/releases?"+query.Encode(), &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"RELEASE", "CREATED", "ACTION", "BY", "REASON"}}
	for _, r := range v.Releases {
		rows = append(rows, []string{version(r.Number), moment(r.Created), r.Action, r.By, r.Reason})
	}
	return p.show(answer, table(rows, false))
}

type releasesShowCmd struct {
	N uint64 `arg:"" help:"Its number."`
}

// manifest is what people look for in a release.
type manifest struct {
	Format  int       `json:"format"`
	Number  uint64    `json:"number"`
	Parent  uint64    `json:"parent"`
	Created time.Time `json:"created"`
	Cause   struct {
		Action string `json:"action"`
		By     string `json:"by"`
		Reason string `json:"reason"`
	} `json:"cause"`
	Operational struct {
		Apps   map[string]map[string]json.RawMessage `json:"apps"`
		Frozen bool                                  `json:"frozen"`
	} `json:"operational"`
	Approved json.RawMessage `json:"approved"`
}

// Run prints who made it and why, and what stands beside the document: it is what
// changes at night.
func (c *releasesShowCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Manifest manifest `json:"manifest"`
	}
	answer, err := p.get(ctx, "/releases/"+strconv.FormatUint(c.N, 10), &v)
	if err != nil {
		return err
	}
	return p.show(answer, printable(v.Manifest.text()))
}

func (m manifest) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "release   %s, made on %s, format %d\ncreated   %s\naction    %s\nby        %s\nreason    %s\n",
		version(m.Number), version(m.Parent), m.Format, moment(m.Created), m.Cause.Action, m.Cause.By, m.Cause.Reason)
	if m.Operational.Frozen {
		b.WriteString("frozen    nothing normal changes\n")
	}
	for _, app := range slices.Sorted(maps.Keys(m.Operational.Apps)) {
		for _, what := range slices.Sorted(maps.Keys(m.Operational.Apps[app])) {
			if what != "salts" { // they draw buckets; nobody sets them
				fmt.Fprintf(&b, "%-9s %s %s\n", app, what, m.Operational.Apps[app][what])
			}
		}
	}
	if len(m.Approved) > 0 {
		fmt.Fprintf(&b, "approved  %s\n", m.Approved)
	}
	return b.String()
}

type releasesAdoptCmd struct{ change }

// Run asks for the release that the control node serves.
func (c *releasesAdoptCmd) Run(ctx context.Context, p *program) error {
	return c.do(ctx, p, deed{what: "The release that this node serves goes into its database, and its hosts count as approved by you",
		word: "adopt", path: "/releases/adopt", body: reasoned{c.Reason}})
}

type reliveCmd struct {
	N uint64 `arg:"" help:"The release whose document shall serve again; swaps and region states stay as they are now."`
	atOnce
}

// Run is one of the emergencies: it skips the canary.
func (c *reliveCmd) Run(ctx context.Context, p *program) error {
	n := strconv.FormatUint(c.N, 10)
	path := "/releases/" + n + "/relive"
	return c.do(ctx, p, deed{what: "The document of release " + n + " serves again, everywhere", word: "release " + n, path: path,
		confirmed: func(typed string) any {
			if typed == n { // where no environment stands before it
				typed = "release " + n
			}
			return struct {
				Reason   string   `json:"reason"`
				Confirm  string   `json:"confirm"`
				Override []string `json:"override,omitempty"`
			}{c.Reason, typed, c.Override}
		},
		preview: func(ctx context.Context, p *program) (string, error) {
			var v struct {
				Confirm string   `json:"confirm"`
				Preview *preview `json:"preview"`
			}
			if _, err := p.get(ctx, path, &v); err != nil {
				return "", err
			}
			if v.Preview != nil {
				fmt.Fprint(p.log, printable(v.Preview.String()))
			}
			return v.Confirm, nil
		}})
}

type releasesReviewCmd struct {
	N uint64 `arg:"" help:"The release that the emergency made."`
	change
}

// Run signs an emergency as its second person.
func (c *releasesReviewCmd) Run(ctx context.Context, p *program) error {
	n := strconv.FormatUint(c.N, 10)
	if _, err := c.send(ctx, p, deed{what: "You have looked at release " + n + " and stand by it", word: n, path: "/releases/" + n + "/review", body: reasoned{c.Reason}}, nil); err != nil {
		return err
	}
	return p.show([]byte("{}"), version(c.N)+" is signed\n")
}

// reasoned is the body of a write that says nothing else.
type reasoned struct {
	Reason string `json:"reason"`
}
