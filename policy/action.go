package policy

import (
	"fmt"
	"slices"
	"time"
)

// action is a compiled Action.
type action struct {
	region int16 // named outright; -1: by bucket
	split  bool  // else a share, which passes on what it does not take
	spans  []span
	full   bool  // the spans cover every bucket, at any time
	ramp   *Ramp // of the one span, which holds the buckets that it takes in the end
	by     BucketBy
	salt   salt
}

// span gives the buckets lo to hi, both included, to a region.
type span struct{ lo, hi, region int16 }

// draw is what an action made of a request. Region -1 passes it on.
type draw struct {
	region, bucket int16
	noID           bool
}

// takesAll says whether no request gets past the action.
func (a *action) takesAll() bool { return a.region >= 0 || a.full }

// everybody says whether the action takes each bucket at an instant.
func (a *action) everybody(now time.Time) bool {
	return a.full || a.ramp != nil && a.ramp.At(now) == Whole
}

// find is the region that a bucket belongs to, -1 for none. Spans are sorted. Of
// a ramp it is where the bucket belongs in the end.
func (a *action) find(bucket int16) int16 {
	low, high := 0, len(a.spans)
	for low < high {
		middle := (low + high) / 2
		if a.spans[middle].hi < bucket {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < len(a.spans) && a.spans[low].lo <= bucket {
		return a.spans[low].region
	}
	return -1
}

// act draws for the request. Without the id that it hashes, a share of all
// buckets takes the request, a smaller one passes it on, and a split uses the
// address's prefix.
func (w *walker) act(a *action) draw {
	if a.region >= 0 {
		return draw{region: a.region, bucket: -1}
	}
	id := w.id(a.by)
	if id == "" && !a.split {
		if a.everybody(w.req.Now) {
			return draw{region: a.spans[0].region, bucket: -1}
		}
		return draw{region: -1, bucket: -1, noID: true}
	}
	bucket := int16(w.bucket(&a.salt, id))
	if a.ramp != nil && int(bucket) >= a.ramp.At(w.req.Now) {
		return draw{region: -1, bucket: bucket}
	}
	return draw{region: a.find(bucket), bucket: bucket, noID: id == ""}
}

// action compiles what a policy or otherwise does. A mistake leaves parts out
// and is added to the problems.
func (c *compiler) action(path string, a Action, draws drawn) action {
	out := action{region: -1, by: draws.by, salt: newSalt(draws.salt)}
	forms := 0
	if a.Region != "" {
		forms++
		out.region = c.region(path+".region", a.Region)
	}
	if a.Share != nil {
		forms++
		out.spans, out.ramp = c.share(path+".share", *a.Share, 0), a.Share.Ramp
	}
	if a.Split != nil {
		forms++
		out.split = true
		out.spans = c.split(path+".split", a.Split)
	}
	if forms != 1 {
		c.addf(path, "say exactly one of region, share and split; %d are given", forms)
	}
	slices.SortFunc(out.spans, func(a, b span) int { return int(a.lo) - int(b.lo) })
	out.full = c.apart(path, out.spans) && covered(out.spans) == Whole && out.ramp == nil
	return out
}

// drawn is how an action draws buckets.
type drawn struct {
	by   BucketBy
	salt string
}

// split compiles the parts of a split: all by of, one after another, or all by
// buckets, as they are written.
func (c *compiler) split(path string, parts []Share) []span {
	var spans []span
	sum, byOf := 0, 0
	for i, part := range parts {
		at := fmt.Sprintf("%s[%d]", path, i)
		if part.Ramp != nil {
			c.addf(at+".ramp", "is only for a share; the parts of a split always make a whole")
			part.Ramp = nil
		}
		added := c.share(at, part, sum)
		spans = append(spans, added...)
		if part.Of != nil {
			byOf++
			sum += *part.Of
		} else {
			sum += covered(added)
		}
	}
	if byOf != 0 && byOf != len(parts) {
		c.addf(path, "%d of %d parts say of and the rest buckets; write all of them in one form", byOf, len(parts))
	}
	if sum != Whole {
		c.addf(path, "the parts add to %d, not %d", sum, Whole)
	}
	return spans
}

// share compiles one share whose of begins at bucket from.
func (c *compiler) share(path string, s Share, from int) []span {
	region := c.region(path+".region", s.Region)
	switch {
	case s.Ramp != nil && (s.Of != nil || s.Buckets != nil):
		c.addf(path, "says both ramp and of or buckets; keep one")
		return nil
	case s.Ramp != nil:
		return c.ramp(path+".ramp", s.Ramp, region)
	case s.Of != nil && s.Buckets != nil:
		c.addf(path, "says both of and buckets; keep one")
	case s.Of != nil:
		of := *s.Of
		if of < 0 || of > Whole {
			c.addf(path+".of", "%d is not between 0 and %d (10,000ths)", of, Whole)
			return nil
		}
		if of == 0 || from < 0 || from+of > Whole { // a sum that is not Whole is the split's problem
			return nil
		}
		return []span{{int16(from), int16(from + of - 1), region}}
	case s.Buckets == nil:
		c.addf(path, "says neither of nor buckets nor ramp")
	}
	var spans []span
	for i, b := range s.Buckets {
		if b[0] < 0 || b[0] > b[1] || b[1] >= Whole {
			c.addf(fmt.Sprintf("%s.buckets[%d]", path, i), "[%d, %d] is no interval inside [0, %d]", b[0], b[1], Whole-1)
			continue
		}
		spans = append(spans, span{int16(b[0]), int16(b[1]), region})
	}
	return spans
}

// apart says whether no two of the sorted spans share a bucket, and adds a
// problem for each two that do.
func (c *compiler) apart(path string, spans []span) bool {
	clean := true
	for i := 1; i < len(spans); i++ {
		if a, b := spans[i-1], spans[i]; a.hi >= b.lo {
			c.addf(path, "buckets [%d, %d] and [%d, %d] overlap", a.lo, a.hi, b.lo, b.hi)
			clean = false
		}
	}
	return clean
}

func covered(spans []span) int {
	sum := 0
	for _, s := range spans {
		sum += int(s.hi) - int(s.lo) + 1
	}
	return sum
}

// common is the first pair of spans of a and b that share a bucket.
func common(a, b []span) (x, y span, found bool) {
	for _, x := range a {
		for _, y := range b {
			if x.lo <= y.hi && y.lo <= x.hi {
				return x, y, true
			}
		}
	}
	return span{}, span{}, false
}
