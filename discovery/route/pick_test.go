package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

func cluster(c string) func(*discovery.Instance) {
	return func(in *discovery.Instance) { in.Cluster = c }
}

func region(r string) func(*discovery.Instance) {
	return func(in *discovery.Instance) { in.Region = r }
}

// inEnv is the rule of split for another environment.
func inEnv(e string, r rules.Rule) rules.Rule {
	r.Selector.Env = e
	return r
}

// Where the calls of a lane go: the instances that picks reach, and why.
func TestWhereCallsGo(t *testing.T) {
	t.Parallel()
	feature := []func(*discovery.Instance){env("t0"), env("t2"), env("prod")}
	people := []func(*discovery.Instance){both(env("t0"), version(Base)), both(env("t0"), version("ann")), both(env("t0"), version("bob")), both(env("t2"), version("ann"))}
	lane := Query{Env: "t2", Base: "t0"}
	for _, c := range []struct {
		name      string
		instances []func(*discovery.Instance)
		rules     []rules.Rule
		change    func(*Input)
		q         Query
		want      string // ids and reason @ step; "nobody" with what the error says
	}{
		{"without a rule: all versions at home", []func(*discovery.Instance){version("v1"), version("v2"), region("cn-beijing"), cluster("k2"), env("test")}, nil, nil,
			Query{}, "0 1 home@1"},
		{"the lane's env", feature, nil, nil, lane, "1 home@1"},
		{"B03, B05: the lane's base", feature[:1], nil, nil, lane, "0 home@2"},
		{"B05, T60: back in the lane's env", feature[:2], nil, nil, lane, "1 home@1"},
		{"B06: neither", feature[2:], nil, nil, lane, "nobody@2: no instance of order-core for cluster production, region cn-hangzhou, env t0, version any " +
			"(no rule; 1 known, left after each filter: 1, 1, 0, 0), nor before that for cluster production, region cn-hangzhou, env t2"},
		{"no base, no second step", feature[:1], nil, nil, Query{Env: "t2"}, "nobody@1: env t2"},
		{"a base that is the env is not asked again", feature[2:], nil, nil, Query{Env: "t2", Base: "t2"}, "nobody@1: env t2"},
		{"the home's env, then a base", feature[:1], nil, nil, Query{Base: "t0"}, "0 home@2"},
		{"A16: other environments are never reached", feature, nil, nil, Query{}, "2 home@1"},
		{"a rule for another env does not count", feature, []rules.Rule{inEnv("test", split(100, -1))}, nil, Query{}, "2 home@1"},
		{"a rule counts for its env", []func(*discovery.Instance){version("v2.3.1"), version("v9")}, []rules.Rule{split(1, -1)}, nil, Query{}, "0 rule@1"},
		{"A32: the first of two rules", []func(*discovery.Instance){version("v2.3.1"), version("v9")}, []rules.Rule{split(1, -1), newer("v9")}, nil, Query{}, "0 rule@1"},
		{"T50, A25: a rule that matches nobody is an error", []func(*discovery.Instance){version("v9")}, []rules.Rule{split(70, 30)}, nil, Query{},
			"nobody@1: no instance of order-core for cluster production, region cn-hangzhou, env prod, version v2.3.1 or v2.3.0 " +
				"(rule order-core/prod@2026-11-30T09:00:00Z; 1 known, left after each filter: 1, 1, 1, 0); try: correct version in the rule, or register an instance there"},
		{"T74, A24: a rule for a region without instances", times(2, version("v2.3.1")), []rules.Rule{shanghai()}, nil, Query{},
			"nobody@1: region cn-shanghai, env prod, version v2.3.1 (rule order-core/prod@2026-11-30T09:00:00Z; 2 known, left after each filter: 2, 0, 0, 0); try: correct region"},
		{"T74: the caller's region has no instances", times(2, region("cn-beijing")), nil, nil, Query{},
			"nobody@1: left after each filter: 2, 0, 0, 0); try: register an instance with this region, or publish a rule for env prod"},
		{"the rule of the lane's env matches nobody, its base does", feature[:1], []rules.Rule{inEnv("t2", split(70, 30))}, nil, lane, "0 home@2"},
		{"neither does", feature[2:], []rules.Rule{inEnv("t2", split(70, 30))}, nil, lane, "nobody@2: nor before that for cluster production, region cn-hangzhou, env t2, version v2.3.1 or v2.3.0 (rule order-core/t2@"},
		{"A36: a main version of weight 0 never serves", times(2, version("v2.3.1")), []rules.Rule{split(0, -1)}, nil, Query{},
			"nobody@1: left after each filter: 2, 2, 2, 2, who take no calls: the rule gives v2.3.1 weight 0 (2)); try: give an instance a weight"},
		{"T65: all weights are 0", times(3, weight(0)), nil, nil, Query{}, "nobody@1: 3, 3, 3, 3, who take no calls: weight 0 (3))"},
		{"T53: all are isolated", times(2, version("v1")), nil, func(in *Input) { in.Scale = map[string]Scale{"i0000": {9, Isolated}, "i0001": {0, Suspicious}} },
			Query{}, "nobody@1: who take no calls: isolated (1), suspicious (1))"},
		{"A03: an instance without an env", []func(*discovery.Instance){env("")}, nil, nil, Query{}, "nobody@1: left after each filter: 1, 1, 0, 0)"},
		{"A03: a rule with empty parts is no wildcard", times(2, version("v1")), []rules.Rule{{Service: "order-core", Selector: rules.Selector{Env: "prod"}}}, nil,
			Query{}, "nobody@1: left after each filter: 0, 0, 0, 0)"},
		{"A04: nor is a star", times(2, version("v1")), []rules.Rule{{Service: "order-core", Selector: rules.Selector{Cluster: "*", Region: "*", Env: "prod"}, Strategy: rules.Strategy{Version: "*", Weight: 1}}}, nil,
			Query{}, "nobody@1: left after each filter: 0, 0, 0, 0)"},
		{"nobody is known", nil, nil, nil, Query{}, "nobody@1: try: register an instance, or correct the name"},
		{"a caller without an env", feature, nil, func(in *Input) { in.Home.Env = "" }, Query{}, "nobody@1: env none"},
		{"A03: which an instance without one does not match", []func(*discovery.Instance){env("")}, nil, func(in *Input) { in.Home.Env = "" }, Query{},
			"nobody@1: left after each filter: 1, 1, 0, 0)"},

		{"D03: own instance first", people, nil, isolate, Query{Env: "t0", Person: "ann"}, "1 person@1"},
		{"D04: the other has another", people, nil, isolate, Query{Env: "t0", Person: "bob"}, "2 person@1"},
		{"D02: nobody's calls go to the pool", people, nil, isolate, Query{Env: "t0"}, "0 base@1"},
		{"D09: an unknown person's go there too", people, nil, isolate, Query{Env: "t0", Person: "eve"}, "0 base@1"},
		{"a person named base", people, nil, isolate, Query{Env: "t0", Person: Base}, "0 base@1"},
		{"D06: off, all are equal", people, nil, nil, Query{Env: "t0", Person: "ann"}, "0 1 2 home@1"},
		{"D08: neither own nor shared", people[2:3], nil, isolate, Query{Env: "t0", Person: "ann"}, "nobody@1: env t0, version ann or base (no rule; 1 known, left after each filter: 1, 1, 1, 0)"},
		{"the lane's env is asked for both before its base", people, nil, isolate, Query{Env: "t2", Base: "t0", Person: "ann"}, "3 person@1"},
		{"then its base for both", people, nil, isolate, Query{Env: "t2", Base: "t0", Person: "bob"}, "2 person@2"},
		{"D03: an own instance that has just started", people, nil, func(in *Input) { in.Isolate, in.Scale = true, map[string]Scale{"i0001": {0, Warming}} },
			Query{Env: "t0", Person: "ann"}, "1 person@1"},
		{"D07: one that is out", people, nil, func(in *Input) { in.Isolate, in.Scale = true, map[string]Scale{"i0001": {0, Ejected}} },
			Query{Env: "t0", Person: "ann"}, "0 base@1"},
		{"with a rule: own first", []func(*discovery.Instance){version("v2.3.1"), version("ann"), version(Base)}, []rules.Rule{split(1, -1)}, isolate, Query{Person: "ann"}, "1 person@1"},
		{"with a rule: then the rule, not the pool", []func(*discovery.Instance){version("v2.3.1"), version("bob"), version(Base)}, []rules.Rule{split(1, -1)}, isolate, Query{Person: "ann"}, "0 rule@1"},
		{"a version of the rule is nobody's own", []func(*discovery.Instance){version("v2.3.1"), version("v2.3.0")}, []rules.Rule{split(0, 1)}, isolate, Query{Person: "v2.3.1"}, "1 fallback@1"},

		{"Direct: no rules, no versions, another region, not another env or cluster", []func(*discovery.Instance){version("v2.3.1"), both(version("v9"), weight(1)), region("cn-beijing"), env("test"), cluster("k2")},
			[]rules.Rule{split(1, -1)}, direct, Query{}, "0 1 2 direct@1"},
		{"Direct: the lane keeps both steps", feature[:1], nil, direct, lane, "0 direct@2"},
		{"Direct: nobody", feature[2:], nil, direct, Query{Env: "t2"}, "nobody@1: region any, env t2, version any (rules are skipped"},
		{"Direct: who drains or is isolated stays out", []func(*discovery.Instance){weight(0), version("v1"), version("v2")}, nil,
			func(in *Input) { in.Direct, in.Scale = true, map[string]Scale{"i0001": {0, Isolated}} }, Query{}, "2 direct@1"},
		{"Direct and Isolate: never another person's", people, nil, func(in *Input) { in.Direct, in.Isolate = true, true }, Query{Env: "t0", Person: "ann"}, "1 direct@1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := Input{Service: "order-core", Home: home(), Instances: made(c.instances...), Rules: c.rules, Number: 1}
			if c.change != nil {
				c.change(&in)
			}
			got := reached(t, Compile(in), c.q)
			where, says, _ := strings.Cut(c.want, ": ")
			if !strings.HasPrefix(got, where) || len(says) == 0 && got != where || !strings.Contains(got, says) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func isolate(in *Input) { in.Isolate = true }

func direct(in *Input) { in.Direct = true }

// newer is what shadows nothing: a rule after another for the same env.
func newer(version string) rules.Rule {
	r := split(100, -1)
	r.Strategy.Version = version
	r.Updated = r.Updated.Add(-time.Hour)
	return r
}

func shanghai() rules.Rule {
	r := split(100, -1)
	r.Selector.Region = "cn-shanghai"
	return r
}

// reached picks many times: the numbers of all instances that were chosen, why and
// at which step. An error must be the same each time.
func reached(t *testing.T, table *Table, q Query) string {
	t.Helper()
	random, seen, how := draws(11), []string{}, ""
	for range 1000 {
		choice, err := table.Pick(q, random.Uint64())
		now := fmt.Sprintf("%s@%d", choice.Reason, choice.Step)
		if how != "" && how != now {
			t.Fatalf("%s, then %s", how, now)
		}
		how = now
		if err != nil {
			noMatch, ok := errors.AsType[*NoMatch](err)
			if !ok || choice.Instance != nil || choice.Reason != ByNobody {
				t.Fatalf("%+v, %v", choice, err)
			}
			again, err := table.Pick(q, random.Uint64())
			if err != error(noMatch) {
				t.Fatalf("two errors for one lane: %v and %v (%+v)", noMatch, err, again)
			}
			return how + ": " + err.Error()
		}
		id := strings.TrimLeft(choice.Instance.ID[1:4], "0") + choice.Instance.ID[4:]
		if !slices.Contains(seen, id) {
			seen = append(seen, id)
		}
	}
	slices.Sort(seen)
	return strings.Join(append(seen, how), " ")
}

// B13: whoever knows the names of other services adds them.
func TestNoMatchNamesFullNames(t *testing.T) {
	t.Parallel()
	_, err := Compile(Input{Service: "passport", Home: home()}).Pick(Query{}, 0)
	noMatch, ok := errors.AsType[*NoMatch](err)
	if !ok {
		t.Fatal(err)
	}
	named := *noMatch
	named.Names = []string{"passport.control", "passport.rpc"}
	if got := named.Error(); !strings.HasSuffix(got, "try: call it by a full name: passport.control, passport.rpc") {
		t.Error(got)
	}
}

// D04: ten thousand calls of two people.
func TestPeopleNeverMeet(t *testing.T) {
	t.Parallel()
	table := Compile(Input{Service: "order-core", Home: home(), Isolate: true,
		Instances: made(version("ann"), version("bob"), version(Base), version("ann"), version("bob"))})
	random := draws(12)
	for range 10_000 {
		for _, person := range []string{"ann", "bob", ""} {
			choice, err := table.Pick(Query{Person: person}, random.Uint64())
			want := person
			if want == "" {
				want = Base
			}
			if err != nil || choice.Instance.Version != want {
				t.Fatalf("%q reached %+v, %v", person, choice.Instance, err)
			}
		}
	}
}

// What transports keep connections to is what picks can reach.
func TestCandidatesAreWhatPicksReach(t *testing.T) {
	t.Parallel()
	table := Compile(Input{Service: "order-core", Home: home(), Isolate: true, Rules: []rules.Rule{split(100, 0)},
		Instances: made(version("v2.3.1"), version("v2.3.0"), weight(0), version("ann"), both(env("t0"), version(Base)), region("cn-beijing"), both(env("t0"), version("bob")))})
	var got []string
	for _, in := range table.Candidates() {
		got = append(got, in.ID)
	}
	// v2.3.0 stands by: it has no part while v2.3.1 is there.
	if want := []string{"i0000", "i0003", "i0004", "i0006"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if table.Input().Service != "order-core" {
		t.Error("the input is lost")
	}
}

// The lanes of traffic are the traffic's to name: errors for any number of them are
// kept in bounded room, and are right.
func TestErrorsOfManyLanes(t *testing.T) {
	t.Parallel()
	table := table(made(version("v1")), nil)
	for i := range 3000 {
		lane := fmt.Sprintf("t%d", i%1000)
		_, err := table.Pick(Query{Env: lane, Person: "p", Key: fmt.Sprint(i)}, 0)
		noMatch, ok := errors.AsType[*NoMatch](err)
		if !ok || noMatch.Lane != (Query{Env: lane}) || noMatch.Want.Env != lane {
			t.Fatalf("%s: %v", lane, err)
		}
	}
}
