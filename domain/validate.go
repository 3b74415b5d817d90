package domain

import (
	"fmt"

	"dispatch.example/dispatch/internal/fault"
)

// Validate lists everything wrong with an app's regions that can be seen from
// them alone. Paths begin with regions[n]. Whether a host lies inside the
// allowed suffixes is not asked here.
func Validate(regions []Region) fault.Problems {
	var problems fault.Problems
	if len(regions) > MaxRegions {
		problems.Addf("regions", "%d regions; at most %d are allowed", len(regions), MaxRegions)
	}
	index := indexRegions(regions)
	keys := newKeySet("region")
	for i := range regions {
		r, path := &regions[i], fmt.Sprintf("regions[%d]", i)
		keys.check(&problems, path+".key", r.Key)
		checkRegion(&problems, path, r)
		checkFailover(&problems, regions, i, index)
	}
	return problems
}

func checkRegion(problems *fault.Problems, path string, r *Region) {
	switch r.Condition() {
	case Active, Draining, Off:
	default:
		problems.Addf(path+".state", "state %s is unknown; it is one of %s, %s, %s", quote(string(r.State)), Active, Draining, Off)
	}
	checkRange(problems, path+".capacity", r.Capacity, MaxCapacity)
	if len(r.Endpoints) > MaxEndpoints {
		problems.Addf(path+".endpoints", "%d endpoints; at most %d are allowed", len(r.Endpoints), MaxEndpoints)
	}
	keys := newKeySet("endpoint")
	for i := range r.Endpoints {
		e, path := &r.Endpoints[i], fmt.Sprintf("%s.endpoints[%d]", path, i)
		keys.check(problems, path+".key", e.Key)
		checkEndpoint(problems, path, e)
	}
	if r.Condition() == Active && !r.Serves() {
		*problems = append(*problems, fault.Problem{Path: path + ".endpoints",
			Detail: fmt.Sprintf("region %s is active but none of its endpoints is", quote(r.Key)),
			Hint:   "make one endpoint active, or the region off"})
	}
}

func checkEndpoint(problems *fault.Problems, path string, e *Endpoint) {
	switch normal, err := NormalHost(e.Domain); {
	case err != nil:
		addError(problems, path+".domain", err)
	case normal != e.Domain:
		*problems = append(*problems, fault.Problem{Path: path + ".domain",
			Detail: fmt.Sprintf("host %s is not in normal form", quote(e.Domain)), Hint: "write " + normal})
	}
	if e.Cluster != "" {
		if err := CheckKey(e.Cluster); err != nil {
			addError(problems, path+".cluster", err)
		}
	}
	switch e.State {
	case "", Serving, Standby, Closed:
	default:
		problems.Addf(path+".state", "state %s is unknown; it is one of %s, %s, %s", quote(string(e.State)), Serving, Standby, Closed)
	}
	if e.Weight != nil {
		checkRange(problems, path+".weight", *e.Weight, MaxWeight)
	}
}

// checkFailover checks the failover list of regions[self]; index is indexRegions(regions).
func checkFailover(problems *fault.Problems, regions []Region, self int, index map[string]int) {
	seen := map[string]int{}
	for i, key := range regions[self].Failover {
		path := fmt.Sprintf("regions[%d].failover[%d]", self, i)
		to, known := index[key]
		first, twice := seen[key]
		switch {
		case !known:
			problems.Addf(path, "region %s is unknown", quote(key))
		case to == self:
			problems.Addf(path, "region %s fails over to itself", quote(key))
		case twice:
			problems.Addf(path, "region %s is already named at regions[%d].failover[%d]", quote(key), self, first)
		default:
			seen[key] = i
		}
	}
}

func checkRange(problems *fault.Problems, path string, value, most int) {
	if value < 0 || value > most {
		problems.Addf(path, "%d is not between 0 and %d", value, most)
	}
}

// indexRegions finds regions by key; of two with one key, an error elsewhere, the first counts.
func indexRegions(regions []Region) map[string]int {
	index := make(map[string]int, len(regions))
	for i := range regions {
		if _, taken := index[regions[i].Key]; !taken {
			index[regions[i].Key] = i
		}
	}
	return index
}

// keySet finds keys of one kind that are equal or look alike.
type keySet struct {
	kind string
	seen map[string]usedKey // by FoldKey
}

type usedKey struct{ key, path string }

func newKeySet(kind string) keySet { return keySet{kind: kind, seen: map[string]usedKey{}} }

func (k keySet) check(problems *fault.Problems, path, key string) {
	if err := CheckKey(key); err != nil {
		addError(problems, path, err)
	}
	if key == "" {
		return
	}
	if first, taken := k.seen[FoldKey(key)]; taken {
		problems.Addf(path, "%s %s looks like %s at %s", k.kind, quote(key), quote(first.key), first.path)
		return
	}
	k.seen[FoldKey(key)] = usedKey{key, path}
}
