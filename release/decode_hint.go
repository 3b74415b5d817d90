package release

import (
	"reflect"
	"strings"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// The words of an app's identity and id_case, the default first.
const (
	FromTrustedProxy = "trusted_proxy"
	FromAnyone       = "open"
	CaseExact        = "exact"
	CaseFold         = "fold"
)

// wordsFor lists the words that a text may be, nil when any will do.
func wordsFor(t reflect.Type, at place) []string {
	switch t {
	case reflect.TypeFor[policy.BucketBy]():
		return texts(policy.ByDevice, policy.ByUser, policy.ByDeviceThenUser, policy.ByUserThenDevice)
	case reflect.TypeFor[domain.RegionState]():
		return texts(domain.Active, domain.Draining, domain.Off)
	case reflect.TypeFor[domain.EndpointState]():
		return texts(domain.Serving, domain.Standby, domain.Closed)
	case reflect.TypeFor[whitelist.Of]():
		return texts(whitelist.Device, whitelist.User)
	}
	switch {
	case at.owner == reflect.TypeFor[Identity]():
		return []string{FromTrustedProxy, FromAnyone}
	case at.owner == reflect.TypeFor[App]() && at.key == "id_case":
		return []string{CaseExact, CaseFold}
	}
	return nil
}

func texts[S ~string](words ...S) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}

// hintFor is the next step for values that people often write in another form.
func hintFor(at place) string {
	switch {
	case at.owner == reflect.TypeFor[policy.Share]() && at.key == "of", at.owner == reflect.TypeFor[policy.Ramp]():
		return "a share is in 10,000ths: 500 is 5 %"
	case at.owner == reflect.TypeFor[policy.Share]() && at.key == "buckets":
		return "write first and last bucket, such as [[0,499],[9000,9099]]"
	case at.owner == reflect.TypeFor[policy.When]() && at.key == "asn":
		return "write the number alone, such as 4134"
	}
	return ""
}

// nearest proposes a known key for an unknown one, or lists what there is.
func nearest(key string, fields []field) string {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.key
	}
	if hint := proposal(key, known); hint != "" {
		return hint
	}
	return "known here: " + strings.Join(known, ", ")
}

// proposal asks for the known word that a wrong one was meant to be, if any is near.
func proposal(word string, known []string) string {
	best, least := "", len(word)/3+2 // one slip in three letters, and one more
	for _, k := range known {
		if n := distance(fold(word), fold(k)); n < least {
			best, least = k, n
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
}

// distance is the number of edits between two words (Levenshtein). Long words,
// which no key is, count as far apart.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
