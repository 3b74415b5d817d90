package pages

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// rulesPage is the rules in use, to read.
type rulesPage struct {
	Release uint64
	Apps    []ruledApp
}

// ruledApp is one app: where its regions send people, and by which rules.
type ruledApp struct {
	release.App
	Origins   []string // how the region of a request is found, in order
	Policies  []ruledPolicy
	Otherwise []ruledShare
}

// ruledPolicy is one policy: all its conditions hold, then its shares.
type ruledPolicy struct {
	policy.Policy
	When []condition
	Then []ruledShare
}

// condition is one part of When; the catalogue has the words for its name.
type condition struct {
	Name  string
	Value string
	Not   bool
}

// ruledShare is where a part goes; Of is of 10,000, and -1 where buckets say it.
type ruledShare struct {
	Region  string
	Of      int
	Buckets string
	Ramp    *policy.Ramp
}

func (v *visit) rules() error {
	number, apps := v.do.Rules()
	p := rulesPage{Release: number}
	for _, app := range apps {
		one := ruledApp{App: app, Otherwise: sharesOf(app.Otherwise)}
		for _, o := range app.Origins {
			one.Origins = append(one.Origins, originWords(o))
		}
		for _, rule := range app.Policies {
			when, err := conditionsOf(&rule.When, false)
			if err != nil {
				return err
			}
			one.Policies = append(one.Policies, ruledPolicy{Policy: rule, When: when, Then: sharesOf(rule.Then)})
		}
		p.Apps = append(p.Apps, one)
	}
	return v.show("rules", p)
}

func originWords(o policy.Origin) string {
	switch {
	case o.Hint:
		return "hint"
	case o.Replica:
		return "replica"
	case o.Table != "":
		return "table " + o.Table
	default:
		return "geoip"
	}
}

// conditionsOf are the conditions in the order in which they are documented.
func conditionsOf(w *policy.When, not bool) (found []condition, err error) {
	if w == nil {
		return nil, nil
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("write conditions: %w", err)
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, fmt.Errorf("read conditions: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if name == "not" {
			continue
		}
		found = append(found, condition{name, conditionValue(parts[name]), not})
	}
	below, err := conditionsOf(w.Not, true)
	return append(found, below...), err
}

// conditionValue is a value as people read it: lists with commas, maps as name = value.
func conditionValue(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	return spoken(v)
}

func spoken(v any) string {
	switch v := v.(type) {
	case []any:
		words := make([]string, len(v))
		for i, one := range v {
			words[i] = spoken(one)
		}
		return strings.Join(words, ", ")
	case map[string]any:
		var words []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			words = append(words, name+" = "+spoken(v[name]))
		}
		return strings.Join(words, "; ")
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil {
			return at.UTC().Format("2006-01-02 15:04 UTC")
		}
		return v
	default:
		return fmt.Sprint(v)
	}
}

func sharesOf(a policy.Action) []ruledShare {
	switch {
	case a.Share != nil:
		return []ruledShare{shareOf(*a.Share)}
	case a.Split != nil:
		shares := make([]ruledShare, len(a.Split))
		for i, s := range a.Split {
			shares[i] = shareOf(s)
		}
		return shares
	default:
		return []ruledShare{{Region: a.Region, Of: policy.Whole}}
	}
}

func shareOf(s policy.Share) ruledShare {
	out := ruledShare{Region: s.Region, Of: -1, Ramp: s.Ramp}
	if s.Of != nil {
		out.Of = *s.Of
	}
	var spans []string
	for _, b := range s.Buckets {
		spans = append(spans, fmt.Sprintf("%d–%d", b[0], b[1]))
	}
	out.Buckets = strings.Join(spans, ", ")
	return out
}
