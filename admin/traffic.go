package admin

import (
	"context"
	"strings"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

type trafficInput struct {
	App     string `query:"app" maxLength:"64" doc:"of this app alone"`
	Region  string `query:"region" maxLength:"64" doc:"of answers that gave this region"`
	Policy  string `query:"policy" maxLength:"64" doc:"of answers that this policy decided"`
	Release uint64 `query:"release" doc:"of answers from this release"`
	By      string `query:"by" example:"region,reason" doc:"any of app, region, endpoint, policy, reason, release, with commas; the rest is summed over"`
	Since   string `query:"since" default:"1h" example:"1h" doc:"how far back, at most 90 days: 2160h"`
	Every   string `query:"every" default:"1m" example:"1m" doc:"the length of a step, in whole minutes; 0: one figure for all the time. What is older than a day is known by the hour"`
}

type trafficOutput struct {
	Body struct {
		Since  time.Time     `json:"since"`
		Every  string        `json:"every"`
		Counts []fleet.Count `json:"counts" doc:"the oldest step first; a step without answers is left out. The last one still grows"`
	}
}

func (a *API) traffic(ctx context.Context, in *trafficInput) (*trafficOutput, error) {
	var p fault.Problems
	f := ledger.CountFilter{App: in.App, Region: in.Region, Policy: in.Policy, Release: in.Release}
	if in.By != "" {
		f.By = strings.Split(in.By, ",")
	}
	since, err := time.ParseDuration(in.Since)
	if err != nil || since <= 0 || since > ledger.CountsKept {
		p.Addf("since", "%q is not a time of at most %s, such as 90m", in.Since, ledger.CountsKept)
	}
	if f.Every, err = time.ParseDuration(in.Every); err != nil {
		p.Addf("every", "%q is not a time such as 5m", in.Every)
	}
	if err := p.Err("bad_traffic", "the question cannot be answered"); err != nil {
		return nil, err
	}
	f.Since = a.do.Now().UTC().Add(-since).Truncate(time.Minute)
	out := &trafficOutput{}
	out.Body.Since, out.Body.Every = f.Since, f.Every.String()
	if out.Body.Counts, err = a.do.Traffic(ctx, f); err != nil {
		return nil, err
	}
	return out, nil
}
