package actions

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// Need is why a second person must agree to a change.
type Need struct {
	Code   string `json:"code" enum:"new_domain,big_move,region_removed,list_removal"`
	Path   string `json:"path" example:"apps[mobile].regions[sh]"`
	Detail string `json:"detail"`

	Said fault.Text `json:"-"` // Detail
}

// Texts are the detail, and no hint, for other languages.
func (n Need) Texts() (detail, hint fault.Text) { return n.Said.For(n.Detail), fault.Text{} }

func newNeed(code, path string, why fault.Text) Need {
	return Need{Code: code, Path: path, Detail: why.String(), Said: why}
}

// problem is the need with its code, as one thing that stands in the way.
func (n Need) problem() fault.Problem {
	return fault.ProblemOf(n.Path, fault.Textf("%s (%s)", n.Said, n.Code), fault.Text{})
}

// What a second person must agree to. The last two are codes of the guard, too.
const (
	newDomain     = "new_domain"
	bigMove       = "big_move"
	regionRemoved = "region_removed"
)

// moveChance is what chance may add to a share of 10,000 requests: three standard
// deviations of a tenth. The guard of edges allows the same.
const moveChance = 90

// needs are why the step from from to next takes two people; none before the first
// release, whose hosts two people approved.
func (a *Actions) needs(ctx context.Context, from, next *release.Manifest, moved map[string]int) ([]Need, error) {
	needs := []Need{}
	if from == nil {
		return needs, nil
	}
	s, err := a.settings(ctx)
	if err != nil {
		return nil, err
	}
	was := names(&from.Document)
	for path, hosts := range names(&next.Document) {
		for _, host := range hosts {
			if !slices.Contains(was[path], host) {
				needs = append(needs, newNeed(newDomain, path, fault.Textf("%s is new here", host)))
			}
		}
	}
	for i := range from.Document.Apps {
		app := &from.Document.Apps[i]
		kept := regionsOf(&next.Document, app.Key)
		for _, r := range app.Regions {
			if !slices.Contains(kept, r.Key) {
				needs = append(needs, newNeed(regionRemoved, fmt.Sprintf("apps[%s].regions[%s]", app.Key, r.Key), fault.Textf("the region goes")))
			}
		}
	}
	for app, n := range moved {
		if limit := s.Safety.MaxMovePercent; n > limit*100+moveChance {
			needs = append(needs, newNeed(bigMove, fmt.Sprintf("apps[%s]", app),
				fault.Textf("about %.1f %% of the app's users move, more than %d %%", float64(n)/100, limit)))
		}
	}
	slices.SortFunc(needs, func(x, y Need) int {
		return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Code, y.Code), cmp.Compare(x.Detail, y.Detail))
	})
	return needs, nil
}

// names are the hosts that people are sent to, and those by which an app is found,
// by where they stand.
func names(doc *release.Document) map[string][]string {
	found := map[string][]string{}
	for i := range doc.Apps {
		app := &doc.Apps[i]
		path := fmt.Sprintf("apps[%s]", app.Key)
		found[path+".hosts"] = app.Hosts
		found[path+".fallback"] = []string{app.Fallback}
		for j := range app.Regions {
			for _, e := range app.Regions[j].Endpoints {
				at := fmt.Sprintf("%s.regions[%s]", path, app.Regions[j].Key)
				found[at] = append(found[at], e.Domain)
			}
		}
	}
	return found
}

func regionsOf(doc *release.Document, app string) (keys []string) {
	for i := range doc.Apps {
		for j := range doc.Apps[i].Regions {
			if doc.Apps[i].Key == app {
				keys = append(keys, doc.Apps[i].Regions[j].Key)
			}
		}
	}
	return keys
}

func hasNeed(needs []Need, code string) bool {
	return slices.ContainsFunc(needs, func(n Need) bool { return n.Code == code })
}
