package handler

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

const (
	// judgeAtOnce and judgePause keep a trial out of the way of requests: 200 requests
	// are 0.5 ms of work, so a trial has a third of one processor for a tenth of a second.
	judgeAtOnce = 200
	judgePause  = time.Millisecond
	// judgeExamples is how many of those that move are named, as keyed hashes.
	judgeExamples = 10
)

// Judge tries the requests of the last hour that this process remembers under both
// snapshots, each at its own time and with its own session. Only counts and keyed
// hashes come out. An app that base lacks is left out; one that draft lacks answers
// nobody, which counts as the empty region.
func (h *Handler) Judge(ctx context.Context, base, draft *release.Snapshot) fleet.Verdict {
	now := h.now()
	sample := h.sample.take(now)
	j := judging{base: base, draft: draft, hash: h.hashID, apps: map[string]*judged{}}
	v := fleet.Verdict{Each: sample.each, Apps: []fleet.AppVerdict{}}
	for n := range sample.refs {
		if n%judgeAtOnce == 0 && !rest(ctx) {
			v.Problem = "it took too long"
			return v
		}
		j.request(sample.at(n))
	}
	if len(sample.refs) > 0 {
		v.Since = now.Sub(time.Unix(sample.refs[0].at, 0))
	}
	for _, app := range slices.Sorted(maps.Keys(j.apps)) {
		v.Apps = append(v.Apps, j.apps[app].verdict())
	}
	return v
}

// rest lets requests go first. It is false when ctx has ended.
func rest(ctx context.Context) bool {
	timer := time.NewTimer(judgePause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// judging is one trial on its way.
type judging struct {
	base, draft *release.Snapshot
	hash        func(whitelist.Of, string) whitelist.Hash // nil: no examples
	apps        map[string]*judged
}

// judged is what became of one app so far.
type judged struct {
	fleet.AppVerdict
	moves map[[2]string]uint64
}

// request tries one request of an app.
func (j *judging) request(app string, req policy.Request) {
	before := j.base.Apps[app]
	if before == nil {
		return
	}
	a := j.apps[app]
	if a == nil {
		a = &judged{moves: map[[2]string]uint64{}}
		a.App, a.Before, a.After, a.Later = app, map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
		j.apps[app] = a
	}
	after := j.draft.Apps[app]
	was, next := regionOf(before, req), regionOf(after, j.spelled(before, after, req))
	a.Sampled++
	a.Before[was]++
	a.After[next]++
	switch later := j.afterSession(before, after, req); {
	case was != next:
		a.Later[next]++
		j.moved(a, was, next, &req)
	case later[0] != later[1]:
		a.Held++
		a.Later[later[1]]++
	default:
		a.Later[next]++
	}
}

// afterSession is where the request goes under both snapshots without its session.
func (j *judging) afterSession(before, after *release.Served, req policy.Request) (regions [2]string) {
	if req.Session.Region == "" {
		return regions
	}
	req.Session = policy.Session{}
	return [2]string{regionOf(before, req), regionOf(after, j.spelled(before, after, req))}
}

// spelled is the request with its ids as the draft's app spells them: another rule
// for case, or for what counts as no id, comes with the draft.
func (j *judging) spelled(before, after *release.Served, req policy.Request) policy.Request {
	if after != nil && after.IDs != before.IDs {
		req.Device, _ = after.IDs.Normalize(req.Device) // absent is empty
		req.User, _ = after.IDs.Normalize(req.User)
	}
	return req
}

// moved counts a request that the draft sends elsewhere.
func (j *judging) moved(a *judged, from, to string, req *policy.Request) {
	a.Moved++
	a.moves[[2]string{from, to}]++
	of, id := whitelist.Device, req.Device
	if id == "" {
		of, id = whitelist.User, req.User
	}
	for _, lists := range []*whitelist.Index{j.base.Lists, j.draft.Lists} {
		if listed(lists, whitelist.Device, req.Device) || listed(lists, whitelist.User, req.User) {
			a.Listed++
			break
		}
	}
	if id == "" || j.hash == nil || len(a.Examples) == judgeExamples {
		return
	}
	if example := j.hash(of, id).String(); !slices.Contains(a.Examples, example) {
		a.Examples = append(a.Examples, example)
	}
}

// listed says whether an id is on any list.
func listed(lists *whitelist.Index, of whitelist.Of, id string) bool {
	return lists != nil && id != "" && !lists.Lookup(of, id).Empty()
}

// regionOf is the region that a request gets, empty for the fallback and without an app.
func regionOf(s *release.Served, req policy.Request) string {
	if s == nil {
		return ""
	}
	d := s.Table.Decide(&req)
	if d.Region < 0 {
		return ""
	}
	return s.Table.Regions()[d.Region].Key
}

func (a *judged) verdict() fleet.AppVerdict {
	a.Moves = []fleet.Move{}
	for pair, n := range a.moves {
		a.Moves = append(a.Moves, fleet.Move{From: pair[0], To: pair[1], N: n})
	}
	slices.SortFunc(a.Moves, func(x, y fleet.Move) int {
		return cmp.Or(cmp.Compare(y.N, x.N), cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To))
	})
	return a.AppVerdict
}
