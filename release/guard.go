package release

import (
	"fmt"
	"slices"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
)

const suffixHint = "the allowed suffixes are set at start only: --allowed-suffixes"

// Guard refuses what no compiler would find wrong: hosts outside the suffixes or
// without two people's approval, regions that vanish, apps that nobody could
// serve, and more users moved at once than one person may move. Load calls it;
// whoever publishes calls it first on a Draft. It is the last of three
// independent guards and trusts neither of the others. cur is nil at a start.
func (l *Loader) Guard(next, cur *Snapshot) error {
	m := next.Manifest
	cur = cur.released()
	for host, path := range m.Document.Domains() {
		if !l.opt.Suffixes.Allows(host) {
			return fault.New(fault.Denied, "host_outside_suffixes", "%s: %q is not a host below %s", path, host, l.opt.Suffixes).
				WithHint(suffixHint)
		}
		if at := m.Approved.Hosts[host]; at == 0 || at > m.Number {
			return fault.New(fault.Denied, "host_not_approved", "%s: %s was never approved", path, host).
				Hintf("propose it with POST /api/v1/hosts; another person approves it with POST /api/v1/approvals/%s", host)
		}
	}
	if err := guardNames(&m.Document); err != nil {
		return err
	}
	if err := guardRemoved(m, cur); err != nil {
		return err
	}
	for _, app := range Apply(&m.Document, m.Operational) {
		if err := guardServed(&app); err != nil {
			return err
		}
	}
	return guardMoves(next, cur)
}

// loadFactor is by how much a release may pass the limits of a published document
// and still load: whoever raises a limit can then do so one program after another.
const loadFactor = 2

// guardForm refuses what the compiler would not look at: more of something than
// was ever published, which costs the time and the memory of the whole process,
// and words that nothing here knows.
func guardForm(doc *Document) error {
	var p fault.Problems
	limit := func(path string, n, most int) {
		if n > loadFactor*most {
			p.Addf(path, "%d are more than may be loaded, %d", n, loadFactor*most)
		}
	}
	word := func(path, word string, known ...string) {
		if word != "" && !slices.Contains(known, word) {
			p.Addf(path, "%s is not one of %v", quote(word), known)
		}
	}
	limit("apps", len(doc.Apps), MaxApps)
	limit("lists", len(doc.Lists), MaxLists)
	limit("tables", len(doc.Tables), MaxTables)
	for i := range doc.Apps {
		app, path := &doc.Apps[i], fmt.Sprintf("apps[%d]", i)
		limit(path+".hosts", len(app.Hosts), MaxHosts)
		limit(path+".policies", len(app.Policies), MaxPolicies)
		limit(path+".regions", len(app.Regions), MaxAppRegions)
		for j := range app.Regions {
			limit(fmt.Sprintf("%s.regions[%d].endpoints", path, j), len(app.Regions[j].Endpoints), MaxRegionEndpoints)
		}
		word(path+".id_case", app.IDCase, CaseExact, CaseFold)
		word(path+".identity.user", app.Identity.User, FromTrustedProxy, FromAnyone)
		word(path+".identity.device", app.Identity.Device, FromTrustedProxy, FromAnyone)
	}
	return p.Err("bad_form", "the release is not one that was checked")
}

// guardNames refuses two apps that one request could mean.
func guardNames(doc *Document) error {
	owner := map[string]string{}
	claim := func(what, app string) error {
		if other, ok := owner[what]; ok {
			return fault.New(fault.Denied, "ambiguous_app", "%s belongs to %s and to %s", what, other, app).
				WithHint("give it to one of them")
		}
		owner[what] = app
		return nil
	}
	for i := range doc.Apps {
		app := &doc.Apps[i]
		names := []string{"app " + app.Key}
		for _, host := range app.Hosts {
			names = append(names, "host "+host)
		}
		if app.Default {
			names = append(names, "the default")
		}
		for _, name := range names {
			if err := claim(name, app.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// guardRemoved wants a mark for every region that cur has and m has not. A mark
// counts if it is newer than cur.
func guardRemoved(m *Manifest, cur *Snapshot) error {
	if cur == nil || m.Approved.RegionRemoved > cur.Number && m.Approved.RegionRemoved <= m.Number {
		return nil
	}
	for i := range cur.Manifest.Document.Apps {
		old := &cur.Manifest.Document.Apps[i]
		app := m.Document.app(old.Key)
		if app == nil {
			return fault.New(fault.Denied, "region_removed", "app %s is gone, with its %d regions", old.Key, len(old.Regions)).
				WithHint("its clients would get no answer at all; if that is meant, publish with approve_region_removed=true")
		}
		for j := range old.Regions {
			if key := old.Regions[j].Key; app.region(key) == nil {
				return fault.New(fault.Denied, "region_removed", "region %s of app %s is gone", key, old.Key).
					WithHint("turn it off instead, or publish with approve_region_removed=true")
			}
		}
	}
	return nil
}

// guardServed refuses an app whose every request would end at the fallback, and
// an active region that has nothing to serve with.
func guardServed(app *App) error {
	usable := false
	for i := range app.Regions {
		r := &app.Regions[i]
		if r.Condition() == domain.Active && !r.Serves() {
			return fault.New(fault.Denied, "region_empty", "region %s of app %s is active without an active endpoint", r.Key, app.Key).
				WithHint("activate an endpoint first, or turn the region off")
		}
		usable = usable || r.Condition() != domain.Off && r.Serves()
	}
	if !usable {
		return fault.New(fault.Denied, "last_domain", "app %s would have no region that serves", app.Key).
			WithHint("activate another region first")
	}
	return nil
}

const (
	// unmarkedMove is how much of an app's traffic one release may move to
	// another region without a second person: 10 %, in golden requests.
	unmarkedMove = goldenCount / 10
	// moveError is what chance may add: the number of 10,000 random requests in a
	// 10 % share has a standard deviation of 30, and this is three of them.
	moveError = 90
)

// guardMoves refuses a release that moves more of an app than the unmarked limit
// times the releases between cur and it, unless the move was approved after cur.
func guardMoves(next, cur *Snapshot) error {
	m := next.Manifest
	if cur == nil || m.Approved.BigMove > cur.Number && m.Approved.BigMove <= m.Number {
		return nil
	}
	steps := min(next.Number-cur.Number, goldenCount/unmarkedMove)
	for app, moved := range Moved(cur, next) {
		if limit := int(steps)*unmarkedMove + moveError; moved > limit {
			return fault.New(fault.Denied, "big_move", "app %s: %s of its traffic would move to another region, without approval at most %s may",
				app, percent(moved), percent(int(steps)*unmarkedMove)).
				WithHint("move less at a time, or publish with approve_big_move=true")
		}
	}
	return nil
}

func percent(n int) string { return fmt.Sprintf("%d.%02d %%", n/100, n%100) }
