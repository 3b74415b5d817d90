package policy

import (
	"fmt"
	"time"
)

// Ramp is a share that grows by the time of the request: From until Start, To
// from End on, and evenly in between, in 10,000ths. It only grows, so that it
// takes nobody back.
type Ramp struct {
	From  int       `json:"from"`
	To    int       `json:"to"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// At is the share at an instant: buckets 0 to At-1 are in. It counts in whole
// milliseconds: all the years that a document may name, times 10,000, fit an int64.
func (r *Ramp) At(now time.Time) int {
	gone, all := now.UnixMilli()-r.Start.UnixMilli(), r.End.UnixMilli()-r.Start.UnixMilli()
	switch {
	case gone <= 0:
		return r.From
	case gone >= all:
		return r.To
	}
	return r.From + int(int64(r.To-r.From)*gone/all)
}

// Enters is when the ramp takes a bucket, and false for one that it never does. A
// bucket that it has from the beginning enters at the zero time.
func (r *Ramp) Enters(bucket int) (at time.Time, ever bool) {
	switch {
	case bucket < r.From:
		return time.Time{}, true
	case bucket >= r.To:
		return time.Time{}, false
	}
	all, way := r.End.UnixMilli()-r.Start.UnixMilli(), int64(r.To-r.From)
	gone := (int64(bucket+1-r.From)*all + way - 1) / way
	return time.UnixMilli(r.Start.UnixMilli() + gone).UTC(), true
}

// String is the ramp as screens show it.
func (r *Ramp) String() string {
	return fmt.Sprintf("%d to %d, %s to %s", r.From, r.To, r.Start.Format(time.RFC3339), r.End.Format(time.RFC3339))
}

// ramp checks a ramp and is the buckets that it takes in the end.
func (c *compiler) ramp(path string, r *Ramp, region int16) []span {
	good := true
	for _, end := range []struct {
		key string
		of  int
	}{{".from", r.From}, {".to", r.To}} {
		if end.of < 0 || end.of > Whole {
			c.addf(path+end.key, "%d is not between 0 and %d (10,000ths)", end.of, Whole)
			good = false
		}
	}
	if r.From >= r.To {
		c.addf(path+".to", "%d is not above from, %d: a ramp only grows, because a share that shrinks sends people back", r.To, r.From)
		good = false
	}
	if r.End.UnixMilli() <= r.Start.UnixMilli() {
		c.addf(path+".end", "%s is not after start, %s", r.End.Format(time.RFC3339), r.Start.Format(time.RFC3339))
		good = false
	}
	if !good {
		return nil
	}
	return []span{{0, int16(r.To - 1), region}}
}

// enters says when a share would take the bucket.
func (a *action) enters(bucket int) string {
	reaches := fmt.Sprintf("enters when the share reaches %d", bucket+1)
	if a.ramp == nil {
		return reaches
	}
	switch at, ever := a.ramp.Enters(bucket); {
	case !ever:
		return fmt.Sprintf("%s; its ramp ends at %d", reaches, a.ramp.To)
	case at.IsZero():
		return fmt.Sprintf("%s; its ramp begins at %d", reaches, a.ramp.From)
	default:
		return fmt.Sprintf("%s, at %s", reaches, at.Format(time.RFC3339))
	}
}
