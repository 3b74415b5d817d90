package release

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// Limits of a published document. Replicas load up to loadFactor times these
// numbers, so what was published always loads.
const (
	MaxApps            = 256
	MaxHosts           = 64 // of an app
	MaxAppRegions      = 64
	MaxRegionEndpoints = 32
	MaxPolicies        = 1_000 // of an app
	MaxLists           = 1_024
	MaxTables          = 64
)

// Bounds of a session. The longest is the life of a signed record.
const (
	MinSessionTTL = time.Minute
	MaxSessionTTL = 24 * time.Hour
	MaxSessionMax = 7 * 24 * time.Hour
)

// CheckContext is what a document is checked against. The zero value of each
// field but Suffixes and Now leaves out the checks that need it.
type CheckContext struct {
	Source       *Source                     // of the document, for line numbers
	Suffixes     domain.Suffixes             // below which every domain must lie
	Now          time.Time                   // for the expiry of lists
	Previous     *Document                   // the one in use, to see renames
	Operational  *Operational                // the state it will be published with, see Carry
	Lists        map[string]int              // stored lists and how many ids they hold
	Tables       map[string]*policy.Prefixes // address tables by key; a known table that is absent here may give any label
	Geo          *policy.Geo                 // address databases of the replica, to warn of rules that need them
	AllowExpired bool                        // expired lists warn instead of blocking, for relive
}

// Check says what is wrong with a document that was read: every mistake at once,
// as one *fault.Error with paths and, given the Source, lines. Warnings are what
// may be published and yet is seldom meant.
func Check(doc *Document, c CheckContext) (warnings []fault.Problem, err error) {
	k := &checker{CheckContext: c, doc: doc}
	k.apps()
	k.lists()
	k.tables()
	k.renames()
	c.Source.Locate(k.problems)
	c.Source.Locate(k.warnings)
	byLine := func(a, b fault.Problem) int { return a.Line - b.Line }
	slices.SortStableFunc(k.problems, byLine)
	slices.SortStableFunc(k.warnings, byLine)
	return k.warnings, k.problems.Err("bad_document", "the document has mistakes")
}

// checker collects what one Check finds.
type checker struct {
	CheckContext
	doc      *Document
	problems fault.Problems
	warnings fault.Problems
}

func (k *checker) addHint(path, hint, format string, args ...any) {
	k.problems = append(k.problems, fault.Problem{Path: path, Detail: fmt.Sprintf(format, args...), Hint: hint})
}

// addError adds what err says at path.
func (k *checker) addError(path string, err error) {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		k.addHint(path, e.Hint, "%s", e.Detail)
		return
	}
	k.addHint(path, "", "%v", err)
}

// limit refuses more of something than a release may have.
func (k *checker) limit(path string, n, most int) {
	if n > most {
		k.addHint(path, "", "%d are more than a release may have, %d", n, most)
	}
}

// keys checks keys of one kind: their form, and that no two look alike (e36).
type keys struct {
	*checker
	kind  string
	first map[string]string // folded key → path
}

func (k *checker) keys(kind string) keys { return keys{k, kind, map[string]string{}} }

func (k keys) check(path, key string) {
	if err := domain.CheckKey(key); err != nil {
		k.addError(path, err)
	}
	if key == "" {
		return
	}
	if first, taken := k.first[domain.FoldKey(key)]; taken {
		k.addHint(path, "choose another key", "%s %s looks like the one at %s", k.kind, quote(key), k.at(first))
		return
	}
	k.first[domain.FoldKey(key)] = path
}

// at names a place in the document by path and, if known, line.
func (k *checker) at(path string) string {
	if k.Source == nil {
		return path
	}
	return fmt.Sprintf("%s on line %d", path, k.Source.root.find(path))
}

// host checks a host that answers may name: normal form, inside the suffixes.
func (k *checker) host(path, host string) {
	if k.normalHost(path, host) && !k.Suffixes.Allows(host) {
		k.addHint(path, "use a host below "+k.Suffixes.String()+"; --allowed-suffixes of the servers says which are",
			"host %s lies outside the allowed suffixes", quote(host))
	}
}

func (k *checker) normalHost(path, host string) bool {
	normal, err := domain.NormalHost(host)
	if err != nil {
		k.addError(path, err)
		return false
	}
	if normal != host {
		k.addHint(path, "write "+normal, "host %s is not in normal form", quote(host))
		return false
	}
	return true
}
