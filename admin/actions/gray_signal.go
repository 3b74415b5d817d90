package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// The kinds of signal.
const (
	SignalProbe      = "probe"      // every serving host of the region is up
	SignalErrors     = "errors"     // few of the policy's answers name another region than it does
	SignalPrometheus = "prometheus" // an instant query compares well with a threshold
	SignalWebhook    = "webhook"    // an address answers {"pass": true}
)

// Signal says whether a gray goes well.
type Signal struct {
	Kind      string  `json:"kind" enum:"probe,errors,prometheus,webhook"`
	URL       string  `json:"url,omitempty" maxLength:"500" example:"https://prometheus.bank.example" doc:"prometheus: its base; webhook: what is asked. Its host must be one of --signal-hosts"`
	Query     string  `json:"query,omitempty" maxLength:"2000" doc:"prometheus: an expression with one value"`
	Op        string  `json:"op,omitempty" enum:"<,<=,>,>=" doc:"prometheus: it passes when value op threshold"`
	Threshold float64 `json:"threshold,omitempty" doc:"prometheus: what to compare with; errors: the largest part, default 0.01"`
}

// The states of a reading.
const (
	Pass   = "pass"
	Fail   = "fail"
	NoData = "no_data"
)

// Reading is what a signal said.
type Reading struct {
	Signal string    `json:"signal" example:"probe"`
	State  string    `json:"state" enum:"pass,fail,no_data"`
	Value  string    `json:"value,omitempty"`
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at"`
}

const (
	// signalTime bounds the asking of one signal.
	signalTime = 3 * time.Second
	// maxSignal bounds an answer in bytes.
	maxSignal = 64 << 10
	// errorsWindow is how far back the errors signal looks.
	errorsWindow = 5 * time.Minute
	// probeOld is when a probe's word is no longer taken.
	probeOld = time.Minute
	// mostErrors is the largest part of answers elsewhere, if a plan says nothing.
	mostErrors = 0.01
)

func (s *Signal) settle() {
	if s.Kind == SignalErrors && s.Threshold == 0 {
		s.Threshold = mostErrors
	}
	s.URL, s.Query = strings.TrimSpace(s.URL), strings.TrimSpace(s.Query)
}

// name is what people call the signal.
func (s *Signal) name() string {
	switch s.Kind {
	case SignalPrometheus:
		return fmt.Sprintf("%s %s %s", s.Query, s.Op, number(s.Threshold))
	case SignalWebhook:
		return s.URL
	case SignalErrors:
		return "errors ≤ " + number(s.Threshold)
	}
	return s.Kind
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func (s *Signal) check(wrong *fault.Problems, path string, allowed []string) {
	switch s.Kind {
	case SignalProbe, SignalErrors:
		if s.URL != "" || s.Query != "" || s.Op != "" || s.Kind == SignalProbe && s.Threshold != 0 {
			wrong.Addf(path, "%s takes no url, query or op", s.Kind)
		}
		if s.Threshold < 0 || s.Threshold > 1 {
			wrong.Addf(path+".threshold", "%s is not between 0 and 1", number(s.Threshold))
		}
		return
	case SignalPrometheus:
		if s.Query == "" {
			wrong.Addf(path+".query", "is missing")
		}
		if !slices.Contains([]string{"<", "<=", ">", ">="}, s.Op) {
			wrong.Addf(path+".op", "%q is not one of <, <=, >, >=", s.Op)
		}
		if math.IsNaN(s.Threshold) || math.IsInf(s.Threshold, 0) {
			wrong.Addf(path+".threshold", "is no number")
		}
	case SignalWebhook:
		if s.Query != "" || s.Op != "" || s.Threshold != 0 {
			wrong.Addf(path, "a webhook takes a url and nothing else")
		}
	default:
		wrong.Addf(path+".kind", "%q is not one of %s, %s, %s, %s", s.Kind, SignalProbe, SignalErrors, SignalPrometheus, SignalWebhook)
		return
	}
	if problem := allowedURL(s.URL, allowed); problem != "" {
		wrong.Addf(path+".url", "%s", problem)
	}
}

// readSignals asks all signals of a plan at once.
func (a *Actions) readSignals(ctx context.Context, g *grayFile, s sharing) []Reading {
	readings := make([]Reading, len(g.Plan.Signals))
	var asking sync.WaitGroup
	for i := range g.Plan.Signals {
		asking.Go(func() {
			limited, cancel := context.WithTimeout(ctx, signalTime)
			defer cancel()
			signal := &g.Plan.Signals[i]
			r := a.ask(limited, signal, g, s)
			r.Signal, r.At = signal.name(), a.now()
			r.Detail = firstLine(r.Detail)
			readings[i] = r
		})
	}
	asking.Wait()
	return readings
}

func (a *Actions) ask(ctx context.Context, signal *Signal, g *grayFile, s sharing) Reading {
	switch signal.Kind {
	case SignalProbe:
		return a.askProbes(ctx, s)
	case SignalErrors:
		return a.askErrors(ctx, signal, g, s)
	}
	// The list may be another one than when it was planned.
	if problem := allowedURL(signal.URL, a.Signals); problem != "" {
		return nothing("%s %s", signal.URL, problem)
	}
	if signal.Kind == SignalWebhook {
		return askWebhook(ctx, signal)
	}
	return askPrometheus(ctx, signal)
}

func nothing(format string, args ...any) Reading {
	return Reading{State: NoData, Detail: fmt.Sprintf(format, args...)}
}

func judged(pass bool, value, detail string) Reading {
	r := Reading{State: Fail, Value: value, Detail: detail}
	if pass {
		r.State = Pass
	}
	return r
}

// askProbes is whether every host that serves in the region is up.
func (a *Actions) askProbes(ctx context.Context, s sharing) Reading {
	health, err := a.Health(ctx)
	switch {
	case err != nil:
		return nothing("probes cannot be read: %v", err)
	case !health.On:
		return nothing("no prober runs")
	case health.Distrusted:
		return nothing("most hosts fail at once, so the probers are suspected")
	}
	var up, down []string
	for _, region := range s.app.Regions {
		for i := range region.Endpoints {
			e := &region.Endpoints[i]
			if region.Key != s.share.Region || !e.Serves() {
				continue
			}
			h, known := health.Hosts[e.Domain]
			switch {
			case !known || h.State != "up" && h.State != "down":
				return nothing("%s was not probed", e.Domain)
			case a.now().Sub(h.Last) > probeOld:
				return nothing("%s was last probed %s ago", e.Domain, a.now().Sub(h.Last).Round(time.Second))
			case h.State == "up":
				up = append(up, e.Domain)
			default:
				down = append(down, e.Domain)
			}
		}
		if region.Key == s.share.Region && region.Condition() != domain.Active {
			return judged(false, string(region.Condition()), "region "+region.Key+" is "+string(region.Condition()))
		}
	}
	if len(up)+len(down) == 0 {
		return judged(false, "0", "region "+s.share.Region+" has no serving endpoint")
	}
	return judged(len(down) == 0, fmt.Sprintf("%d/%d", len(up), len(up)+len(down)), strings.Join(down, ", "))
}

// askErrors is whether what the policy decides arrives in its region.
func (a *Actions) askErrors(ctx context.Context, signal *Signal, g *grayFile, s sharing) Reading {
	since := a.now().Add(-errorsWindow)
	if g.Since.After(since) {
		since = g.Since
	}
	counts, err := a.Traffic(ctx, ledger.CountFilter{App: s.app.Key, Policy: s.policy.Key, Since: since.Truncate(time.Minute), By: []string{"region"}})
	if err != nil {
		return nothing("counters cannot be read: %v", err)
	}
	var elsewhere, all uint64
	for _, c := range counts {
		all += c.N
		if c.Region != s.share.Region {
			elsewhere += c.N
		}
	}
	if all == 0 {
		return nothing("the policy decided no request")
	}
	part := float64(elsewhere) / float64(all)
	return judged(part <= signal.Threshold, strconv.FormatFloat(part, 'f', 4, 64), fmt.Sprintf("%d of %d answers name another region", elsewhere, all))
}

// askPrometheus is an instant query. Whatever is not one number is no data.
func askPrometheus(ctx context.Context, signal *Signal) Reading {
	text, problem := fetchJSON(ctx, strings.TrimSuffix(signal.URL, "/")+"/api/v1/query?"+url.Values{"query": {signal.Query}}.Encode())
	if problem != "" {
		return nothing("%s", problem)
	}
	var answer struct {
		Status string
		Error  string
		Data   struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status != "success" {
		return nothing("prometheus says %s", cmp.Or(answer.Error, "nothing that can be read"))
	}
	var point []json.RawMessage
	switch answer.Data.ResultType {
	case "vector":
		var series []struct{ Value []json.RawMessage }
		if err := json.Unmarshal(answer.Data.Result, &series); err != nil || len(series) != 1 {
			return nothing("the query gives %d series, it must be 1: sum them up", len(series))
		}
		point = series[0].Value
	case "scalar":
		if err := json.Unmarshal(answer.Data.Result, &point); err != nil {
			return nothing("the scalar cannot be read")
		}
	default:
		return nothing("the query gives a %s, it must be one number", cmp.Or(answer.Data.ResultType, "result without a type"))
	}
	var written string
	if len(point) != 2 || json.Unmarshal(point[1], &written) != nil {
		return nothing("the value cannot be read")
	}
	value, err := strconv.ParseFloat(written, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return nothing("the value is %q", written)
	}
	return judged(compares(value, signal.Op, signal.Threshold), number(value), "")
}

func compares(value float64, op string, threshold float64) bool {
	switch op {
	case "<":
		return value < threshold
	case "<=":
		return value <= threshold
	case ">":
		return value > threshold
	default:
		return value >= threshold
	}
}

// askWebhook is an address that says whether it goes well. What answers something
// else, or nothing, has not said so.
func askWebhook(ctx context.Context, signal *Signal) Reading {
	text, problem := fetchJSON(ctx, signal.URL)
	if problem != "" {
		return nothing("%s", problem)
	}
	var answer struct {
		Pass   *bool
		Detail string
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Pass == nil {
		return nothing(`the answer has no {"pass": true} or {"pass": false}`)
	}
	return judged(*answer.Pass, strconv.FormatBool(*answer.Pass), answer.Detail)
}

// fetchJSON asks an address that is allowed. It follows nobody elsewhere, uses no
// proxy and keeps no connection.
func fetchJSON(ctx context.Context, address string) (text []byte, problem string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "the address cannot be asked"
	}
	req.Header.Set("Accept", "application/json")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, refusalOf(err)
	}
	defer func() { _ = resp.Body.Close() }()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // none: no JSON
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, fmt.Sprintf("%s answers %s", req.URL.Host, resp.Status)
	case kind != "application/json":
		return nil, fmt.Sprintf("%s answers %s, not JSON", req.URL.Host, cmp.Or(kind, "something without a type"))
	}
	text, err = io.ReadAll(io.LimitReader(resp.Body, maxSignal+1))
	switch {
	case err != nil:
		return nil, refusalOf(err)
	case len(text) > maxSignal:
		return nil, fmt.Sprintf("%s answers more than %d bytes", req.URL.Host, maxSignal)
	}
	return text, ""
}

// refusalOf says what went wrong without the address, which may hold a secret path.
func refusalOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within " + signalTime.String()
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return err.Error()
}
