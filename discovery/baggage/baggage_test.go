package baggage

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/fault"
)

func TestIn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header []string
		person string
		want   route.Query
		bad    bool
	}{
		"none":                       {},
		"a lane":                     {header: []string{"env_id=t2,base_env=t0,dispatch_person=li"}, want: route.Query{Env: "t2", Base: "t0", Person: "li"}},
		"blanks and properties":      {header: []string{" env_id = t2 ; p=1 ,\tbase_env=t0;q"}, want: route.Query{Env: "t2", Base: "t0"}},
		"two headers":                {header: []string{"a=1,env_id=t2", "base_env=t0"}, want: route.Query{Env: "t2", Base: "t0"}},
		"percent-encoded":            {header: []string{"env_id=%E6%9D%8E%2C1"}, want: route.Query{Env: "李,1"}},
		"no member at all":           {header: []string{",,x,=,env_id"}},
		"names are case-sensitive":   {header: []string{"ENV_ID=t2"}},
		"an empty value":             {header: []string{"env_id="}},
		"a person by hand, D09":      {person: "li", want: route.Query{Person: "li"}},
		"baggage beats the hand":     {header: []string{"dispatch_person=li"}, person: "wang", want: route.Query{Person: "li"}},
		"the same twice":             {header: []string{"env_id=t2,env_id=t2"}, want: route.Query{Env: "t2"}},
		"two that differ":            {header: []string{"env_id=t2", "env_id=t3"}, bad: true},
		"bad encoding":               {header: []string{"env_id=%zz"}, bad: true},
		"a control character":        {header: []string{"env_id=a%0Ab"}, bad: true},
		"no UTF-8":                   {header: []string{"base_env=%ff"}, bad: true},
		"129 bytes":                  {header: []string{"env_id=" + strings.Repeat("a", 129)}, bad: true},
		"blanks at an end":           {header: []string{"env_id=t2%20"}, bad: true},
		"a bad person by hand":       {person: "a\tb", bad: true},
		"what is bad elsewhere":      {header: []string{"other=%zz,env_id=t2"}, want: route.Query{Env: "t2"}},
		"128 bytes that are encoded": {header: []string{"env_id=" + strings.Repeat("%61", 128)}, want: route.Query{Env: strings.Repeat("a", 128)}},
	} {
		ctx, err := In(t.Context(), c.header, c.person)
		if c.bad {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s: %v, want it refused", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := caller.LaneOf(ctx); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestOut(t *testing.T) {
	t.Parallel()
	lane := route.Query{Env: "t2", Base: "t0", Person: "li", Key: "never sent"}
	for name, c := range map[string]struct {
		lane     route.Query
		incoming string
		header   []string
		want     string
	}{
		"nothing":                     {},
		"a lane":                      {lane: lane, want: "env_id=t2,base_env=t0,dispatch_person=li"},
		"the request's own members":   {lane: lane, header: []string{"a=1;p, b=2"}, want: "env_id=t2,base_env=t0,dispatch_person=li,a=1;p,b=2"},
		"what came in":                {incoming: "c=3,env_id=t9", header: []string{"b=2"}, want: "b=2,c=3"},
		"the request's before others": {incoming: "b=old,c=3", header: []string{"b=new"}, want: "b=new,c=3"},
		"an old lane is replaced":     {lane: route.Query{Env: "t2"}, header: []string{"env_id=t1,base_env=t1,b=2"}, want: "env_id=t2,b=2"},
		"encoded":                     {lane: route.Query{Env: `a,b;c="\ %`}, want: "env_id=a%2Cb%3Bc=%22%5C%20%25"},
	} {
		ctx, err := In(t.Context(), []string{c.incoming}, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := Out(ctx, c.lane, c.header); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The lane is sent whatever others have put in; they are cut to what every hop passes on.
func TestLimits(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("m%d=%d", i, i))
	}
	lane := route.Query{Env: "t2", Base: "t0"}
	out := Out(t.Context(), lane, []string{strings.Join(many, ",")})
	if n := strings.Count(out, ",") + 1; n != maxMembers || !strings.HasPrefix(out, "env_id=t2,base_env=t0,m0=0,") {
		t.Errorf("%d members: %.60s", n, out)
	}
	big := "big=" + strings.Repeat("x", maxBytes-50)
	out = Out(t.Context(), lane, []string{big, "next=" + strings.Repeat("y", 100), "small=1"})
	if len(out) > maxBytes || !strings.Contains(out, ",small=1") || strings.Contains(out, "next=") || !strings.Contains(out, big) {
		t.Errorf("%d bytes, ends with %q", len(out), out[len(out)-20:])
	}
}

func TestStrip(t *testing.T) {
	t.Parallel()
	if got := Strip([]string{"env_id=prod,a=1", "dispatch_person=li,base_env=%zz,b=2"}); got != "a=1,b=2" {
		t.Errorf("%q", got)
	}
	if got := Strip([]string{"env_id=prod"}); got != "" {
		t.Errorf("%q", got)
	}
}

// What one hop sends, the next reads; a third, too.
func FuzzHops(f *testing.F) {
	f.Add("t2", "t0", "li", "a=1,b=2")
	f.Add("a,b", "%", " ", "=,,")
	f.Add("", "\x00", "李", "env_id=x")
	f.Fuzz(func(t *testing.T, env, base, person, other string) {
		lane := route.Query{Env: env, Base: base, Person: person}
		ctx, err := In(context.Background(), []string{other}, "")
		if err != nil {
			return
		}
		header := Out(ctx, lane, nil)
		if len(header) > maxBytes && len(env)+len(base)+len(person) < maxBytes/3-100 {
			t.Errorf("%d bytes", len(header))
		}
		next, err := In(context.Background(), []string{header}, "")
		for _, value := range []string{env, base, person} {
			if check("", value) != nil {
				if err == nil {
					t.Errorf("%q was taken", value)
				}
				return
			}
		}
		if err != nil {
			t.Fatalf("%q: %v", header, err)
		}
		if got := caller.LaneOf(next); got != lane {
			t.Errorf("%+v arrived as %+v", lane, got)
		}
		if again := Out(next, caller.LaneOf(next), nil); again != header {
			t.Errorf("%q became %q", header, again)
		}
	})
}
