package house

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// place is what a folder and the folders below it may import.
type place struct {
	dir  string
	tier int    // may import any place of a lower tier that is not closed
	only string // if set: these places alone, instead of the tiers below
	std  bool   // no library either: this part can be copied out and used alone
	libs string // if set: the only libraries allowed
}

// Tiers outside the order.
const (
	floor   = -1 // below everything: anybody may import it
	program = 9  // above everything: nobody imports it
)

// places is the table of docs/architecture.md. Imports go strictly downward.
var places = []place{
	{dir: "internal/fault", tier: floor, std: true},
	{dir: "internal/signed", tier: floor, only: "internal/fault"},
	{dir: "domain", tier: 0, libs: "golang.org/x/net/idna golang.org/x/net/publicsuffix"},
	{dir: "whitelist", tier: 0, libs: "github.com/dchest/siphash golang.org/x/text/unicode/norm"},
	{dir: "migrations", tier: 0},
	{dir: "policy", tier: 1, only: "internal/fault internal/signed domain whitelist",
		libs: "github.com/cespare/xxhash github.com/gaissmai/bart github.com/oschwald/maxminddb-golang github.com/dchest/siphash"},
	{dir: "discovery", tier: 1, only: "internal/fault internal/signed"},
	{dir: "probe", tier: 1, only: "internal/fault domain"},
	{dir: "release", tier: 2},
	{dir: "fleet", tier: 2, only: "internal/fault internal/signed domain whitelist policy release"},
	{dir: "ledger", tier: 2, only: "internal/fault internal/signed domain whitelist policy discovery release fleet"},
	{dir: "store", tier: 3},
	{dir: "handler", tier: 3},
	{dir: "admin", tier: 3},
	{dir: "client", tier: 3, only: "client", std: true},
	{dir: "cmd/dispatch", tier: program},
	{dir: "cmd/dispatchctl", tier: program, only: "client internal/fault"},
	{dir: "internal/testenv", tier: program, only: "internal/testenv"},
	{dir: "internal/house", tier: program, only: "internal/house", std: true},
	{dir: "bench", tier: program},
	{dir: "e2e", tier: program + 1},    // starts the programs and, outside of tests too, their servers
	{dir: "drills", tier: program + 1}, // like e2e
	{dir: "export", tier: 2, only: "internal/fault internal/signed domain whitelist policy discovery"},
	{dir: "examples", tier: 3},
}

// closed names what only some may import, whatever their tier.
var closed = []struct{ dir, by, why string }{
	{"store", "cmd/dispatch", "declare the few methods you need as an interface of your own; cmd/dispatch passes the store in"},
	{"migrations", "store cmd/dispatch", "only the store knows the schema"},
	{"discovery", "cmd/dispatch examples bench e2e drills export handler release ledger store admin", "receive what it finds through a type of your own"},
}

// testHelpers may be imported by any test: to start a server, to compare a
// signature or an error with the original.
const testHelpers = "internal/testenv internal/signed internal/fault"

func placeOf(dir string) (place, bool) {
	for _, p := range places {
		if within(dir, p.dir) {
			return p, true
		}
	}
	return place{}, false
}

func within(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

func withinAny(dir, parents string) bool {
	return slices.ContainsFunc(strings.Fields(parents), func(p string) bool { return within(dir, p) })
}

// imports holds the direction between our own packages. Tests keep to it too,
// apart from testHelpers.
func imports(r *Repo) (found []Finding) {
	r.files(func(p *Package, f *File) {
		from, known := placeOf(p.Dir)
		if !known {
			found = append(found, r.at(f.Name, "folder %s is in no tier; add it to places in internal/house/imports.go and to docs/architecture.md", p.Dir))
			return
		}
		for _, spec := range f.Imports {
			dir, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), r.Module+"/")
			if !ours || within(dir, from.dir) || f.Test && withinAny(dir, testHelpers) {
				continue
			}
			if problem := from.refuses(dir, f.Test); problem != "" {
				found = append(found, r.at(spec, "%s may not import %s: %s", p.Dir, dir, problem))
			}
		}
	})
	return found
}

// refuses says why a place may not import a folder of ours, empty if it may.
func (from place) refuses(dir string, test bool) string {
	to, known := placeOf(dir)
	switch {
	case !known:
		return "it is in no tier; see internal/house/imports.go"
	case from.only != "" && !withinAny(dir, from.only):
		return "it may import only " + from.only
	case from.only != "":
		return ""
	case to.tier >= from.tier:
		return fmt.Sprintf("imports go downward (tier %d to tier %d); declare an interface here and let cmd/dispatch pass the other in", from.tier, to.tier)
	case to.dir == "client" && from.tier != program && !test:
		return "the server does not use its own client"
	}
	for _, c := range closed {
		if within(dir, c.dir) && !withinAny(from.dir, c.by) {
			return c.why
		}
	}
	return ""
}

// onlyIn lists libraries that some places hide from the rest; where "" is nowhere.
var onlyIn = []struct{ lib, where, why string }{
	{"gorm.io/", "store", "others speak our types; add a method to the store"},
	{"github.com/glebarez/", "store internal/testenv", "others speak our types; add a method to the store"},
	{"github.com/pressly/goose/", "store migrations", "migrations run through the store"},
	{"github.com/labstack/", "handler admin bench", "both hand an http.Handler to cmd/dispatch"},
	{"github.com/danielgtaylor/huma/", "admin", "the admin API is the only typed one"},
	{"github.com/cespare/xxhash/", "policy", "one hash, one place, one set of vectors"},
	{"github.com/gaissmai/bart", "policy", "others hand an address to a policy.Table"},
	{"github.com/oschwald/maxminddb-golang/", "policy", "others hand an address to a policy.Table"},
	{"github.com/dchest/siphash", "whitelist policy", "lists and session tokens are the only keyed hashes"},
	{"github.com/hashicorp/consul/", "discovery internal/testenv", "others receive what discovery found"},
	{"github.com/redis/", "fleet cmd/dispatch internal/testenv bench e2e", "nobody else may wait for Redis"},
	{"github.com/alecthomas/kong", "cmd", "flags are read in one place and passed on"},
	{"log", "", "use log/slog, passed in"},
	{"text/template", "bench e2e internal/testenv", "what people see is written with html/template, which escapes"},
	{"math/rand", "", "use math/rand/v2, or crypto/rand for anything secret"},
	{"io/ioutil", "", "use io and os"},
	{"github.com/stretchr/", "", "tests compare with if and t.Errorf"},
	{"github.com/pkg/errors", "", "use fmt.Errorf with %w"},
}

// libraries holds which place may use which library. Tests may compare with any,
// except for those that nobody uses.
func libraries(r *Repo) (found []Finding) {
	r.files(func(p *Package, f *File) {
		from, _ := placeOf(p.Dir)
		for _, spec := range f.Imports {
			lib := strings.Trim(spec.Path.Value, `"`)
			for _, o := range onlyIn {
				if isLibrary(lib, o.lib) && (!f.Test || o.where == "") && !withinAny(p.Dir, o.where) {
					found = append(found, r.at(spec, "%s is for %s only: %s", lib, orNobody(o.where), o.why))
				}
			}
			outside := strings.Contains(strings.Split(lib, "/")[0], ".") && !within(lib, r.Module)
			if !outside || f.Test {
				continue
			}
			if from.std {
				found = append(found, r.at(spec, "%s uses the standard library only; do without %s", from.dir, lib))
			}
			if from.libs != "" && !slices.ContainsFunc(strings.Fields(from.libs), func(l string) bool { return isLibrary(lib, l) }) {
				found = append(found, r.at(spec, "%s may use only %s; do without %s", from.dir, from.libs, lib))
			}
		}
	})
	return found
}

// isLibrary says whether lib is the library, or a package or major version of it.
// Of the standard library only the very package counts: log is not log/slog.
func isLibrary(lib, library string) bool {
	if !strings.Contains(strings.Split(library, "/")[0], ".") {
		return lib == library
	}
	return within(lib, strings.TrimSuffix(library, "/"))
}

func orNobody(where string) string {
	if where == "" {
		return "nobody"
	}
	return where
}

// drawers are folder names that say nothing about what is inside.
const drawers = " util utils common helper helpers misc model models service services pkg config base shared lib "

// folders holds that a folder's name is its package's name and says what it holds.
func folders(r *Repo) (found []Finding) {
	r.files(func(p *Package, f *File) {
		for element := range strings.SplitSeq(p.Dir, "/") {
			if strings.Contains(drawers, " "+element+" ") {
				found = append(found, r.at(f.Name, "folder %s is a drawer; name it after what it holds", element))
			}
		}
		name := strings.TrimSuffix(p.Name, "_test")
		if name != "main" && name != path.Base(p.Dir) {
			found = append(found, r.at(f.Name, "package %s lies in folder %s; give both one name", p.Name, p.Dir))
		}
	})
	return found
}
