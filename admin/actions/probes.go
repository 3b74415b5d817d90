package actions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/probe"
)

// HostHealth is what all probers together know of a host.
type HostHealth struct {
	Host     string             `json:"host"`
	State    string             `json:"state" enum:"unknown,up,down" doc:"up: as many probers as the settings ask for see it up; down: most see it down"`
	Since    time.Time          `json:"since,omitzero"`
	Last     time.Time          `json:"last" doc:"of the last probe"`
	Up       int                `json:"up" doc:"probers that see it up"`
	Of       int                `json:"of" doc:"probers that probed it lately and are trusted"`
	Problem  string             `json:"problem,omitempty" doc:"of the last probe that failed, while one does"`
	Dangling bool               `json:"dangling,omitempty" doc:"it is an alias of a name that does not exist: whoever registers that name answers for it"`
	Expires  time.Time          `json:"expires,omitzero" doc:"of its certificate, the earliest that was seen"`
	Recent   []ledger.ProbeShot `json:"recent" doc:"the last five probes of all probers, newest first"`
	Probers  []ledger.Probe     `json:"probers"`
}

// Health is the health of every registered host. Without probers On is false.
type Health struct {
	On         bool                  `json:"on"`
	Distrusted bool                  `json:"distrusted,omitempty" doc:"most fail at once: the probers are suspected, nothing acts on them"`
	Hosts      map[string]HostHealth `json:"hosts"`
}

// recentShots is how many probes of a host are shown.
const recentShots = 5

// Health is what probers know. A prober whose last probes failed for most hosts
// that it saw up is suspected: its failures count for nothing, what answers it does.
func (a *Actions) Health(ctx context.Context) (Health, error) {
	s, err := a.settings(ctx)
	if err != nil {
		return Health{}, err
	}
	return a.health(ctx, s.Safety)
}

func (a *Actions) health(ctx context.Context, s SafetySettings) (Health, error) {
	h := Health{On: a.Probes, Hosts: map[string]HostHealth{}}
	if !h.On {
		return h, nil
	}
	rows, err := a.Ledger.Probes(ctx)
	if err != nil {
		return h, fmt.Errorf("read probes: %w", err)
	}
	now, fresh := a.now(), time.Duration(s.ProbeFresh)
	recent := func(r ledger.Probe) bool { return now.Sub(r.Last).Abs() <= fresh }
	suspects := suspected(rows, recent)
	h.Distrusted = len(suspects) > 0 && !slices.ContainsFunc(rows, func(r ledger.Probe) bool { return recent(r) && !suspects[r.Prober] })
	byHost := map[string][]ledger.Probe{}
	for _, r := range rows {
		byHost[r.Host] = append(byHost[r.Host], r)
	}
	for host, rows := range byHost {
		h.Hosts[host] = merged(host, rows, s.ProbeQuorum, func(r ledger.Probe) bool {
			return recent(r) && (!suspects[r.Prober] || answered(r))
		})
	}
	return h, nil
}

// answered says whether the last probe found the host.
func answered(r ledger.Probe) bool { return len(r.Recent) > 0 && r.Recent[0].OK }

// suspected are the probers that see most of their hosts fail at once.
func suspected(rows []ledger.Probe, recent func(ledger.Probe) bool) map[string]bool {
	seen := map[string]probe.Sight{}
	for _, r := range rows {
		if recent(r) {
			sight := seen[r.Prober]
			sight.Add(r.State, answered(r))
			seen[r.Prober] = sight
		}
	}
	suspects := map[string]bool{}
	for prober, sight := range seen {
		if sight.Suspect() {
			suspects[prober] = true
		}
	}
	return suspects
}

// merged is one host's rows as one; counts says which rows speak for its state.
func merged(host string, rows []ledger.Probe, quorum int, counts func(ledger.Probe) bool) HostHealth {
	h := HostHealth{Host: host, State: probe.Unknown, Probers: rows, Recent: []ledger.ProbeShot{}}
	since, down := map[string]time.Time{}, 0
	for _, r := range rows {
		if r.Last.After(h.Last) {
			h.Last = r.Last
		}
		if !r.Expires.IsZero() && (h.Expires.IsZero() || r.Expires.Before(h.Expires)) {
			h.Expires = r.Expires
		}
		h.Recent = append(h.Recent, r.Recent...)
		if !counts(r) {
			continue
		}
		h.Of++
		if r.State == probe.Up {
			h.Up++
		}
		if r.State == probe.Down {
			down++
		}
		if r.Since.After(since[r.State]) {
			since[r.State] = r.Since
		}
		h.Problem = cmp.Or(h.Problem, r.Problem)
		h.Dangling = h.Dangling || strings.HasPrefix(r.Problem, probe.DanglingCNAME)
	}
	slices.SortStableFunc(h.Recent, func(x, y ledger.ProbeShot) int { return y.At.Compare(x.At) })
	h.Recent = h.Recent[:min(len(h.Recent), recentShots)]
	switch {
	case h.Up > 0 && h.Up >= min(quorum, h.Of):
		h.State = probe.Up
	case down*2 > h.Of:
		h.State = probe.Down
	}
	h.Since = since[h.State]
	return h
}

// up says whether the host is seen up, by as many probers as the settings ask for.
func (h Health) up(host string, s SafetySettings) bool {
	_, lacks := h.lacks(host, s)
	return !lacks
}

// lacks says why nobody can say that the host is up, if nobody can.
func (h Health) lacks(host string, s SafetySettings) (why fault.Text, lacks bool) {
	seen := h.Hosts[host]
	switch {
	case seen.State == probe.Up:
		return fault.Text{}, false
	case seen.Of == 0 && h.Distrusted:
		return fault.Textf("%s: the probers are distrusted, most hosts fail at once", host), true
	case seen.Of == 0:
		return fault.Textf("%s: nobody has probed it within %s", host, time.Duration(s.ProbeFresh)), true
	case seen.State == probe.Down:
		return fault.Textf("%s: down since %sZ: %s", host, seen.Since.UTC().Format(time.TimeOnly), seen.Problem), true
	}
	return fault.Textf("%s: seen up by %d of %d probers, %d are needed", host, seen.Up, seen.Of, min(s.ProbeQuorum, seen.Of)), true
}
