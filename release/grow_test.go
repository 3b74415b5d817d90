package release

import (
	"strconv"
	"testing"
	"time"

	"dispatch.example/dispatch/policy"
)

// crowd is who of 1,000,000 people is inside a gray of the corporate app.
type crowd struct {
	ids     []string
	inside  []bool
	flipped int
}

func newCrowd() *crowd {
	c := &crowd{ids: make([]string, 1_000_000), inside: make([]bool, 1_000_000)}
	for i := range c.ids {
		c.ids[i] = "u" + strconv.Itoa(i)
	}
	return c
}

// ask asks for everybody and is how many are inside. Who was inside and is not is counted.
func (c *crowd) ask(s *Snapshot, now time.Time) (inside int) {
	table := s.Apps["corporate"].Table
	req := policy.Request{Now: now}
	for i, id := range c.ids {
		req.Device = id
		in := table.Decide(&req).Reason == policy.ByPolicy
		if c.inside[i] && !in {
			c.flipped++
		}
		if c.inside[i] = in; in {
			inside++
		}
	}
	return inside
}

// growing is the bank with a gray in its corporate app, serving.
func growing(t *testing.T, share policy.Share) (*bank, *Manifest) {
	t.Helper()
	b := newBank(t)
	m := next(b.first, func(d *Document, _ *Operational, c *Change) {
		share.Region = "gz"
		app := d.app("corporate")
		app.Policies = []policy.Policy{{Key: "gray", MatchAll: true, Then: policy.Action{Share: &share}}}
		app.Otherwise, c.Approve.BigMove = policy.Action{Region: "bj"}, true
	})
	return b, m
}

// release makes the next release, which changes what has nothing to do with the
// gray, publishes it and, every second time, restarts the edge from its disk.
func (c *crowd) release(t *testing.T, b *bank, m *Manifest, dir string, change func(*Document, *Operational)) (*Manifest, *Snapshot) {
	t.Helper()
	m = next(m, func(d *Document, o *Operational, ch *Change) {
		d.app("corporate").Name = "release " + strconv.FormatUint(m.Number+1, 10)
		change(d, o)
		carried, held := o.Carry(&m.Document, d, false)
		if len(held) > 0 {
			t.Fatal(Held(held))
		}
		*o, ch.Approve.BigMove = carried, true
	})
	k := b.keeper(must(OpenDisk(dir)))
	if m.Number > 3 {
		if err := k.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.accept(t, k, m)
	if m.Number%2 == 0 {
		k = b.keeper(must(OpenDisk(dir)))
		if err := k.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return m, k.Current()
}

// P20 of safety.md, across releases: a gray that grows by hand from 5 to 20, 50
// and 100 % takes nobody back, though documents are published in between and edges
// restart. Growing to where it is and people who come early or late change nothing.
func TestP20GrowingByHandMovesNobodyBack(t *testing.T) {
	t.Parallel()
	of := 0
	b, m := growing(t, policy.Share{Of: &of})
	c, dir := newCrowd(), t.TempDir()
	var serving *Snapshot
	expect := "0"
	for _, step := range []int{500, 2_000, 5_000, 10_000} {
		m, serving = c.release(t, b, m, dir, func(d *Document, o *Operational) {
			grown, err := SetShare{App: "corporate", Policy: "gray", Expect: expect, To: step}.On(d, *o)
			if err != nil {
				t.Fatal(err)
			}
			*o = grown
		})
		expect = strconv.Itoa(step)
		if inside := c.ask(serving, madeAt()); !near(inside, step) {
			t.Errorf("at %d: %d of 1,000,000 are inside", step, inside)
		}
		m, serving = c.release(t, b, m, dir, func(*Document, *Operational) {})
		c.ask(serving, madeAt().Add(time.Hour))
	}
	if c.flipped != 0 {
		t.Errorf("%d of 1,000,000 were moved back", c.flipped)
	}
}

// P20 of safety.md for a ramp: the same, at the instants at which it passes those shares.
func TestP20GrowingByRampMovesNobodyBack(t *testing.T) {
	t.Parallel()
	ramp := policy.Ramp{From: 0, To: 10_000, Start: madeAt(), End: madeAt().Add(100 * time.Hour)} // 1 % an hour
	b, m := growing(t, policy.Share{Ramp: &ramp})
	c, dir := newCrowd(), t.TempDir()
	var serving *Snapshot
	for _, step := range []int{500, 2_000, 5_000, 10_000} {
		m, serving = c.release(t, b, m, dir, func(*Document, *Operational) {})
		if inside := c.ask(serving, ramp.Start.Add(time.Duration(step)*time.Hour/100)); !near(inside, step) {
			t.Errorf("at %d: %d of 1,000,000 are inside", step, inside)
		}
	}
	_, serving = c.release(t, b, m, dir, func(d *Document, _ *Operational) {
		all := policy.Whole // what the warning of a ramp that is over asks for
		d.app("corporate").Policies[0].Then.Share.Ramp, d.app("corporate").Policies[0].Then.Share.Of = nil, &all
	})
	if inside := c.ask(serving, ramp.End.AddDate(1, 0, 0)); inside != len(c.ids) || c.flipped != 0 {
		t.Errorf("%d of 1,000,000 were moved back, %d are inside in the end", c.flipped, inside)
	}
}

// near says whether a count of 1,000,000 is within 5 sigma of a share.
func near(count, of int) bool {
	const sigma = 500 // the most that a share of 1,000,000 has
	return count >= of*100-5*sigma && count <= of*100+5*sigma
}
