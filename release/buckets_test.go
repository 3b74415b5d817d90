package release

import (
	"fmt"
	"slices"
	"testing"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
)

// pieces are pairs of region and of.
func pieces(pairs ...any) []policy.Share {
	var out []policy.Share
	for i := 0; i < len(pairs); i += 2 {
		of := pairs[i+1].(int)
		out = append(out, policy.Share{Region: pairs[i].(string), Of: &of})
	}
	return out
}

func share(region string, of int) policy.Action { return policy.Action{Share: &pieces(region, of)[0]} }

// gray is an app with one gray, whose then and otherwise are given.
func gray(then, otherwise policy.Action) *Document {
	region := func(key string) domain.Region {
		return domain.Region{Key: key, Endpoints: []domain.Endpoint{{Key: "main", Domain: key + ".bank.example"}}}
	}
	return &Document{Apps: []App{{Key: "mobile", Fallback: "wap.bank.example", Regions: []domain.Region{region("a"), region("b"), region("c")},
		Policies: []policy.Policy{{Key: "gray", MatchAll: true, Then: then}}, Otherwise: otherwise}}}
}

func TestBucketMovesAreExact(t *testing.T) {
	t.Parallel()
	at500, toA := share("b", 500), policy.Action{Region: "a"}
	split := func(pairs ...any) policy.Action { return policy.Action{Split: pieces(pairs...)} }
	written := func(buckets ...[2]int) policy.Action {
		return policy.Action{Share: &policy.Share{Region: "b", Buckets: buckets}}
	}
	position := func(of int) Operational {
		return Operational{Apps: map[string]AppState{"mobile": {Policies: map[string]PolicyOps{"gray": {Share: &of}}}}}
	}
	salted := func(app, stored string) Configuration {
		doc := gray(at500, split("a", 6000, "b", 4000))
		if app != "" {
			doc.Apps[0].Salts = map[string]string{"otherwise": app}
		}
		return Configuration{doc, Operational{Apps: map[string]AppState{"mobile": {Salts: map[string]string{"otherwise": stored}}}}}
	}
	edit := func(change func(*App)) Configuration {
		doc := gray(at500, toA)
		change(&doc.Apps[0])
		return Configuration{Document: doc}
	}
	for _, c := range []struct {
		name     string
		from, to Configuration
		want     []string
	}{
		{"e11: shares change hands and nobody else moves",
			Configuration{Document: gray(at500, split("a", 5000, "b", 3000, "c", 2000))},
			Configuration{Document: gray(at500, split("a", 5000, "b", 2000, "c", 3000))},
			[]string{"mobile/otherwise: 1000 of 10000 buckets move b → c"}},
		{"a middle part that shrinks shifts the ones after it",
			Configuration{Document: gray(at500, split("a", 5000, "b", 3000, "c", 2000))},
			Configuration{Document: gray(at500, split("a", 4000, "b", 3000, "c", 3000))},
			[]string{"mobile/otherwise: 1000 of 10000 buckets move a → b", "mobile/otherwise: 1000 of 10000 buckets move b → c"}},
		{"a share grows", Configuration{Document: gray(at500, toA)}, Configuration{Document: gray(share("b", 2000), toA)},
			[]string{"mobile/gray: 1500 of 10000 buckets move next policy → b"}},
		{"a gray position moves at night", Configuration{gray(at500, toA), position(2000)}, Configuration{gray(at500, toA), position(0)},
			[]string{"mobile/gray: 2000 of 10000 buckets move b → next policy"}},
		{"a share becomes a region", Configuration{Document: gray(at500, toA)}, Configuration{Document: gray(policy.Action{Region: "b"}, toA)},
			[]string{"mobile/gray: 9500 of 10000 buckets move next policy → b"}},
		{"an interval is moved", Configuration{Document: gray(written([2]int{0, 499}, [2]int{9000, 9099}), toA)},
			Configuration{Document: gray(written([2]int{0, 499}, [2]int{9050, 9149}), toA)},
			[]string{"mobile/gray: 50 of 10000 buckets move next policy → b", "mobile/gray: 50 of 10000 buckets move b → next policy"}},
		{"the same buckets in another form", Configuration{Document: gray(at500, toA)}, Configuration{Document: gray(written([2]int{0, 499}), toA)}, nil},
		{"a policy begins", edit(func(a *App) { a.Policies = nil }), Configuration{Document: gray(at500, toA)},
			[]string{"mobile/gray: 500 of 10000 buckets move next policy → b"}},
		{"a policy ends", Configuration{Document: gray(at500, toA)}, edit(func(a *App) { a.Policies = nil }),
			[]string{"mobile/gray: 500 of 10000 buckets move b → next policy"}},
		{"another salt draws anew", salted("", "mobile/otherwise"), salted("mobile/again", "mobile/otherwise"),
			[]string{"mobile/otherwise: about 2400 of 10000 buckets move a → b", "mobile/otherwise: about 2400 of 10000 buckets move b → a"}},
		{"a default salt that is now written down", salted("", ""), salted("mobile/otherwise", ""), nil},
		{"another id draws anew", Configuration{Document: gray(at500, toA)}, edit(func(a *App) { a.Policies[0].BucketBy = policy.ByUser }),
			[]string{"mobile/gray: about 475 of 10000 buckets move next policy → b", "mobile/gray: about 475 of 10000 buckets move b → next policy"}},
		{"conditions and other apps are not about buckets", Configuration{Document: gray(at500, toA)},
			edit(func(a *App) { a.Policies[0].MatchAll, a.Policies[0].When.Platform = false, policy.Strings{"ios"} }), nil},
		{"a first release", Configuration{}, Configuration{Document: gray(at500, toA)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, m := range BucketMoves(c.from, c.to) {
				got = append(got, m.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// The buckets that are counted here are those that policy gives away.
func TestBucketMovesAgreeWithDecisions(t *testing.T) {
	t.Parallel()
	from := gray(share("b", 700), policy.Action{Split: pieces("a", 5000, "b", 3000, "c", 2000)})
	to := gray(share("c", 1200), policy.Action{Split: pieces("a", 5000, "c", 4000, "b", 1000)})
	moved := map[[2]string]int{}
	for _, m := range BucketMoves(Configuration{Document: from}, Configuration{Document: to}) {
		if m.Policy == "otherwise" {
			moved[[2]string{m.From, m.To}] = m.Buckets
		}
	}
	from.Apps[0].Policies, to.Apps[0].Policies = nil, nil
	was, now := must(policy.Compile(RulesOf(&from.Apps[0], Operational{}), policy.Env{})), must(policy.Compile(RulesOf(&to.Apps[0], Operational{}), policy.Env{}))
	seen := map[uint16]bool{}
	for n := 0; len(seen) < policy.Whole; n++ {
		id := fmt.Sprint("device-", n)
		if b := policy.Bucket("mobile/otherwise", id); !seen[b] {
			seen[b] = true
			a, z := was.Decide(&policy.Request{Device: id}), now.Decide(&policy.Request{Device: id})
			if a.Region != z.Region {
				moved[[2]string{from.Apps[0].Regions[a.Region].Key, to.Apps[0].Regions[z.Region].Key}]--
			}
		}
	}
	for pair, left := range moved {
		if left != 0 {
			t.Errorf("%s → %s: off by %d of the buckets that decisions move", pair[0], pair[1], left)
		}
	}
}
