package actions

import (
	"context"
	"fmt"
	"math"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/policy"
)

// GraySeen is which part of an app's first answers a share really took. Requests
// that stay where their session is are not counted: they draw no bucket.
type GraySeen struct {
	N        uint64  `json:"n" doc:"first answers of the app"`
	Of       uint64  `json:"of" doc:"of them, those that the policy sent to its region"`
	Expected float64 `json:"expected" doc:"0 to 1, as the share stands"`
	Part     float64 `json:"part" doc:"0 to 1, as it was seen"`
	Low      float64 `json:"low" doc:"lower end of its 95 % confidence band (Wilson)"`
	High     float64 `json:"high"`
}

// seenFor is how far back a share is looked at that no step began later.
const seenFor = time.Hour

// seen compares a share with the counters; nil without a request.
func (a *Actions) seen(ctx context.Context, g GrayStatus, since time.Time) (*GraySeen, error) {
	if hour := a.now().Add(-seenFor); since.Before(hour) {
		since = hour
	}
	counts, err := a.Traffic(ctx, ledger.CountFilter{App: g.App, Since: fullMinute(since), By: []string{"policy", "region", "reason"}})
	if err != nil {
		return nil, fmt.Errorf("read counters of %s: %w", g.App, err)
	}
	var s GraySeen
	for _, c := range counts {
		if c.Reason == policy.Sticky.String() {
			continue
		}
		s.N += c.N
		if c.Policy == g.Policy && c.Region == g.Region {
			s.Of += c.N
		}
	}
	if s.N == 0 {
		return nil, nil
	}
	var of int
	if _, err := fmt.Sscan(g.Share, &of); err == nil {
		s.Expected = float64(of) / policy.Whole
	}
	s.Part = float64(s.Of) / float64(s.N)
	s.Low, s.High = wilson(s.Of, s.N)
	return &s, nil
}

// fullMinute is the first minute that lies after the instant whole: counters are by
// the minute, and one that began before it counts what came before.
func fullMinute(t time.Time) time.Time {
	if m := t.Truncate(time.Minute); !m.Equal(t) {
		return m.Add(time.Minute)
	}
	return t
}

// wilson is the 95 % confidence band of a part of n that was seen: k of them. Unlike
// the plain one it holds for few requests and for parts near 0 and 1.
func wilson(k, n uint64) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	const z = 1.959964 // of 95 %, two-sided
	p, m := float64(k)/float64(n), float64(n)
	middle := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return max(0, middle-half), min(1, middle+half)
}

// sample is how many requests the policy sent to its region since the step began.
func (a *Actions) sample(ctx context.Context, g *grayFile) (n uint64, err error) {
	if g.Since.IsZero() {
		return 0, nil
	}
	to := refOf(g.paper.ID)
	counts, err := a.Traffic(ctx, ledger.CountFilter{App: to.App, Policy: to.Policy, Region: g.Plan.Region, Since: fullMinute(g.Since)})
	if err != nil {
		return 0, fmt.Errorf("read counters of gray %s: %w", g.paper.ID, err)
	}
	for _, c := range counts {
		n += c.N
	}
	return n, nil
}

// bakeLeft is how long the step has to serve yet.
func (a *Actions) bakeLeft(g *grayFile) time.Duration {
	if g.Since.IsZero() {
		return time.Duration(g.Plan.Bake)
	}
	return max(0, time.Duration(g.Plan.Bake)-a.now().Sub(g.Since)).Round(time.Second)
}

// waits is what the next step still waits for; nothing: it is ready.
func (a *Actions) waits(ctx context.Context, g *grayFile, s sharing) ([]fault.Text, error) {
	var waits []fault.Text
	if g.Since.IsZero() {
		return []fault.Text{fault.Textf("not every replica serves release %d yet", g.Release)}, nil
	}
	if left := a.bakeLeft(g); left > 0 {
		waits = append(waits, fault.Textf("bake: %s left of %s", left, time.Duration(g.Plan.Bake)))
	}
	n, err := a.sample(ctx, g)
	if err != nil {
		return nil, err
	}
	if n < g.Plan.Sample {
		waits = append(waits, fault.Textf("sample: %d of %d requests", n, g.Plan.Sample))
	}
	switch watch := a.grayWatch.seen(g); {
	case a.now().Sub(watch.at) > 2*GrayWindow+signalTime:
		waits = append(waits, fault.Textf("signals: none was asked in the last minute"))
	case watch.passed < windowsNeeded:
		waits = append(waits, fault.Textf("signals: all passed in %d of %d windows in a row", watch.passed, windowsNeeded))
	}
	if s.position() != fmt.Sprint(g.share()) {
		waits = append(waits, fault.Textf("the share is %s and the plan stands at %d", s.position(), g.share()))
	}
	return waits, nil
}

// progress completes a gray by how far its step has come.
func (a *Actions) progress(ctx context.Context, f *grayFile, g *Gray) (err error) {
	g.Since, g.BakeLeft = f.Since, a.bakeLeft(f).Seconds()
	if g.Sample, err = a.sample(ctx, f); err != nil {
		return err
	}
	watch := a.grayWatch.seen(f)
	g.Windows, g.Readings = watch.passed, append(g.Readings, f.Readings...)
	if f.paper.State == GrayRunning && len(watch.readings) > 0 {
		g.Readings = watch.readings
	}
	if f.paper.State != GrayRunning || g.Next == 0 {
		return nil
	}
	s, err := shareIn(a.Keeper.Current().Manifest, g.App, g.Policy)
	if err != nil {
		return err
	}
	waits, err := a.waits(ctx, f, s)
	if err != nil {
		return err
	}
	for _, wait := range waits {
		g.Waits = append(g.Waits, wait.String())
	}
	g.WaitsFor, g.Ready = waits, len(waits) == 0
	return nil
}
