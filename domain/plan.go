package domain

import "dispatch.example/dispatch/internal/fault"

// Plan says where the users of each region go while it takes none. It is
// computed once for an app's regions and immutable; regions are known by their
// index in the list it was made from.
type Plan struct{ detours []detour }

// detour is the way out of one region.
type detour struct {
	home  bool     // the region takes new sessions itself
	share []target // active regions of its failover list that serve
	total int      // the last upTo of share
	last  int      // whom to use when share is empty: a draining region, -1 for none
}

// target takes the points below upTo that the targets before it left.
type target struct{ region, upTo int }

// NewPlan computes the ways out of every region. It refuses a failover list
// that names an unknown region, the region itself, or one region twice; Validate
// reports the same mistakes, with those of the rest.
func NewPlan(regions []Region) (*Plan, error) {
	var problems fault.Problems
	index := indexRegions(regions)
	for i := range regions {
		checkFailover(&problems, regions, i, index)
	}
	if err := problems.Err("bad_regions", "the failover lists are wrong"); err != nil {
		return nil, err
	}
	plan := &Plan{detours: make([]detour, len(regions))}
	for i := range regions {
		plan.detours[i] = newDetour(regions, i, index)
	}
	return plan, nil
}

// newDetour reads a failover list. A region without a serving endpoint is
// passed over whatever its state says, so that whoever is sent on arrives.
func newDetour(regions []Region, self int, index map[string]int) detour {
	d := detour{home: usable(&regions[self], Active), last: -1}
	capacity := 0
	for _, key := range regions[self].Failover {
		n := index[key]
		switch r := &regions[n]; {
		case usable(r, Active):
			d.share = append(d.share, target{region: n})
			capacity += max(0, r.Capacity)
		case d.last < 0 && usable(r, Draining):
			d.last = n
		}
	}
	if d.last < 0 && usable(&regions[self], Draining) {
		d.last = self
	}
	for i := range d.share {
		part := 1 // nobody states a capacity: equally
		if capacity > 0 {
			part = max(0, regions[d.share[i].region].Capacity)
		}
		d.total += part
		d.share[i].upTo = d.total
	}
	return d
}

func usable(r *Region, state RegionState) bool { return r.Condition() == state && r.Serves() }

// Divert is the region that serves a bucket of the named one. A region that
// takes new sessions keeps its own. Otherwise the active regions of its failover
// list share by bucket in proportion to capacity, equally when all are 0; failing
// those, the first draining region of the list; failing that, the named region
// itself while it drains. It is false when none of them serves, and the app's
// fallback is all that is left. It allocates nothing.
func (p *Plan) Divert(named int, bucket uint16) (region int, ok bool) {
	d := &p.detours[named]
	if d.home {
		return named, true
	}
	at := point(bucket, d.total)
	for _, t := range d.share {
		if at < t.upTo {
			return t.region, true
		}
	}
	return d.last, d.last >= 0
}
