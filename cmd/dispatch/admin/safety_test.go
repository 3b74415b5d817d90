package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
)

// Confirmation is not a matter of the page: whoever asks, and however, types what
// they act on, or nothing happens.
func TestAnEmergencyIsConfirmedByWhatItActsOn(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	const target = `{"app":"mobile","region":"sh","cluster":"k1","policy":"staff","expect":"active","from":"sh-main","to":"sh-spare","state":"off"}`
	const other = `{"app":"corporate","region":"hf","cluster":"k1","policy":"home","expect":"active","from":"sh-main","to":"sh-spare","state":"off"}`
	for name, want := range map[string]string{
		`"action":"swap","targets":[` + target + `]`:                             "sh",
		`"action":"region_state","targets":[` + other + "," + target + `]`:       "hf,sh",
		`"action":"region_state","targets":[` + target + "," + target + `]`:      "sh",
		`"action":"cluster_state","targets":[` + target + `]`:                    "sh/k1",
		`"action":"abort_gray","targets":[` + target + `]`:                       "staff",
		`"action":"freeze","targets":[{"expect":"open","state":"frozen"}]`:       "freeze",
		`"action":"freeze","targets":[{"expect":"frozen","state":"open"}]`:       "unfreeze",
		`"override":["flap_wait"],"action":"swap","targets":[` + target + `]`:    "sh",
		`"confirm":"sh ","action":"region_state","targets":[` + other + `]`:      "hf",
		`"confirm":"hf","action":"region_state","targets":[` + target + `]`:      "sh",
		`"confirm":"sh,hf","action":"region_state","targets":[` + target + `]`:   "sh",
		`"confirm":"prod/sh","action":"region_state","targets":[` + target + `]`: "sh",
	} {
		if !strings.Contains(name, `"confirm"`) {
			name = `"confirm":"yes",` + name
		}
		c.untouched(func() {
			p := c.emergency(`{"reason":"test",`+name+`}`).refused(http.StatusUnprocessableEntity, "confirm_mismatch")
			if string(p.Data) != `{"confirm":"`+want+`"}` || !strings.HasSuffix(p.Hint, ": "+want) {
				t.Errorf("%s: wanted is %s, said is %s and %q", name, want, p.Data, p.Hint)
			}
		})
	}
	relive := func(confirm string) *reply {
		return c.post(actions.OnCall, "/releases/1/relive", fmt.Sprintf(`{"reason":"test","confirm":%q}`, confirm))
	}
	c.untouched(func() {
		for _, confirm := range []string{"", "1", "release 2", "relive"} {
			relive(confirm).refused(http.StatusUnprocessableEntity, "confirm_mismatch")
		}
	})
	relive(" Release 1 ").ok()
	c.emergency(strings.Replace(swapOut, `"swap",`, `"swap","confirm":"SH",`, 1)).ok()

	// With the environment before it, the right word on the wrong installation is refused.
	opt := c.do.Options
	opt.Env = "prod"
	do, err := actions.New(opt)
	must(t, err)
	back := actions.Emergency{Action: actions.SwapEndpoints, Targets: []actions.Target{{App: "mobile", Region: "sh", Expect: "sh-spare", From: "sh-spare", To: "sh-main"}}}
	if do.Confirmation(back) != "prod/sh" || do.ConfirmRelive(7) != "prod/release 7" {
		t.Errorf("in prod %q and %q are typed", do.Confirmation(back), do.ConfirmRelive(7))
	}
	if _, err := do.Emergency(t.Context(), confirmed(engineer, "sh"), back); err == nil {
		t.Error("without the environment it was done")
	}
	if _, err := do.Emergency(t.Context(), confirmed(engineer, "prod/sh"), back); err != nil {
		t.Error(err)
	}
}
