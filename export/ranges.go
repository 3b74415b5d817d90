package export

import (
	"fmt"
	"strings"

	"dispatch.example/dispatch/policy"
)

// Range is a part of the buckets of one rule.
type Range struct {
	Rule   string `json:"rule" doc:"key of a policy, or otherwise"`
	By     string `json:"by" doc:"whose id is hashed"`
	Salt   string `json:"salt"`
	Low    int    `json:"low"`
	High   int    `json:"high" doc:"included"`
	Region string `json:"region" doc:"as the rule names it; empty: the next rule that matches decides"`
}

// Ranges are the buckets of every rule, each rule complete from 0 to 9,999. A user
// falls into bucket XXH64(seed 0, salt ++ 0x00 ++ id) mod 10,000, unsigned.
func Ranges(a App) []Range {
	var all []Range
	for _, s := range newPlan(a).steps {
		if s.ramped {
			continue
		}
		next := 0
		add := func(low, high int, region string) {
			if low <= high {
				all = append(all, Range{s.name, string(s.by), s.salt, low, high, region})
			}
		}
		for _, r := range s.spans {
			add(next, r.low-1, "")
			add(r.low, r.high, r.region)
			next = r.high + 1
		}
		add(next, policy.Whole-1, "")
	}
	return all
}

// RangesCSV is Ranges as a file. What a proxy could not tell needs no note here:
// ranges say what each rule does, not whom it matches.
func RangesCSV(a App) Export {
	var b strings.Builder
	b.WriteString("rule,by,salt,low,high,region\n")
	for _, r := range Ranges(a) {
		fmt.Fprintf(&b, "%s,%s,%s,%d,%d,%s\n", r.Rule, r.By, r.Salt, r.Low, r.High, r.Region)
	}
	var notes []string
	for _, s := range newPlan(a).steps {
		if s.ramped {
			notes = append(notes, fmt.Sprintf("policy %s: a ramp changes with time", s.name))
		}
	}
	return Export{Files: []File{{a.Rules.App + "-ranges.csv", b.String()}}, Notes: notes}
}
