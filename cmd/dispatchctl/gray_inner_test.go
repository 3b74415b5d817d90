package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const grayAt20 = `{"region":"cn-hangzhou","number":7,"service":"pay-core","env":"prod","version":"2.11","from":"2.10","share":20,"steps":[5,20,50,100],"step":2,"next":50,` +
	`"by_key":true,"since":"2026-11-30T09:00:00Z","by":"ci-pay","confirm":"prod/pay-core","measure":"QUERY","direct":true,"problem":"nobody serves",` +
	`"versions":[{"version":"2.10","share":0.8,"instances":4,"serving":3},{"version":"2.11","share":0.2,"instances":1,"serving":1}]}`

func TestGrayOfAVersion(t *testing.T) {
	t.Parallel()
	const card = `gray     pay-core/prod in cn-hangzhou: 2.11, where 2.10 was
share    20 % since 2026-11-30 09:00:00Z by ci-pay, of calls with a key
step     2 of 4 [5 20 50 100]
callers  2.10 80.0 %, 3/4 serve
callers  2.11 20.0 %, 1/1 serve
fails    nobody serves
` + directText + `measure  QUERY
next     dispatchctl gray inner step pay-core/prod takes 50 %
back     dispatchctl gray inner abort pay-core/prod
`
	const applied, at = `{"number":8,"changes":[],"warnings":[{"detail":"w1"}]}`, "/rules/grays/pay-core/prod"
	for name, c := range map[string]struct {
		args, typed string
		answers     map[string]string
		want        printed
		line, body  string // of the write
	}{
		"show": {"show pay-core/prod", "", map[string]string{"GET " + at: grayAt20}, printed{0, card, ""}, "", ""},
		"start, by default": {"start pay-core/prod 2.11 --reason grow --confirm pay-core", "", map[string]string{"POST " + at: applied, "GET " + at: grayAt20},
			printed{0, "rules v8; callers follow within 2 s\n" + card, "warning: w1\n"}, "POST /api/v1" + at, `{"reason":"grow","version":"2.11"}`},
		"start, in full": {"start pay-core/prod 2.11 --steps 10,30,50,100 --by-key --without-fallback --reason grow --confirm pay-core -o json", "", map[string]string{"POST " + at: applied},
			printed{0, applied + "\n", "warning: w1\n"}, "POST /api/v1" + at, `{"reason":"grow","version":"2.11","steps":[10,30,50,100],"by_key":true,"without_fallback":true}`},
		"approve": {"approve pay-core/prod 2.11 --steps 50,100 --digest d1 --reason seen", "pay-core\n", map[string]string{"POST " + at + "/approve": `{"approved":"lead"}`},
			printed{0, "pay-core/prod: approved by lead; whoever began it starts it again\n", "You agree that 2.11 grows by 50,100 % of the calls to pay-core/prod, on SERVER\ntype pay-core to do it: "},
			"POST /api/v1" + at + "/approve", `{"reason":"seen","version":"2.11","steps":[50,100],"digest":"d1"}`},
		"step, after a look at what it is": {"step pay-core/prod --reason grow", "pay-core\n", map[string]string{"POST " + at + "/step": applied, "GET " + at: grayAt20},
			printed{0, "rules v8; callers follow within 2 s\n" + card, card + "2.11 takes 50 % of the calls to pay-core/prod instead of 20 %, on SERVER\ntype pay-core to do it: warning: w1\n"},
			"POST /api/v1" + at + "/step", `{"reason":"grow","expect":20,"version":"2.11"}`},
		"a step back": {"step pay-core/prod --to 5 --reason slow --confirm pay-core", "", map[string]string{"POST " + at + "/step": applied, "GET " + at: grayAt20},
			printed{0, "rules v8; callers follow within 2 s\n" + card, "warning: w1\n"}, "POST /api/v1" + at + "/step", `{"reason":"slow","expect":20,"version":"2.11","to":5}`},
		"abort": {"abort pay-core/prod --reason slow --confirm prod/pay-core", "", map[string]string{"POST " + at + "/abort": applied},
			printed{0, "rules v8: pay-core/prod as Git has it; callers follow within 2 s\n", "warning: w1\n"}, "POST /api/v1" + at + "/abort", `{"reason":"slow","confirm":"prod/pay-core"}`},
		"finish": {"finish pay-core/prod", "", map[string]string{"GET " + at: strings.NewReplacer(`"share":20`, `"share":100,"file":"pay-core.yaml","own_fallback":"2.9","finish":"service: pay-core\n"`).Replace(grayAt20)},
			printed{0, "service: pay-core\n", "put this into Git in place of pay-core.yaml; the pipeline's rules apply ends the gray, and no call moves\nit drops the fallback 2.9, and keeps 2.10 as the one\n"}, "", ""},
		"finish too early": {"finish pay-core/prod", "", map[string]string{"GET " + at: grayAt20},
			printed{1, "", "dispatchctl: 2.11 takes 20 % of the calls to pay-core/prod, not all\ntry: dispatchctl gray inner step pay-core/prod\n"}, "", ""},
		"no environment": {"show pay-core", "", nil, printed{exitUsage, "", "dispatchctl: "}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, asked := inner(t, c.answers)
			got := ctl(t, server, streams{in: strings.NewReader(c.typed), asks: c.typed != ""}, append([]string{"gray", "inner"}, strings.Fields(c.args)...)...)
			c.want.log = strings.ReplaceAll(c.want.log, "SERVER", server)
			if c.want.exit == exitUsage {
				if got.exit != exitUsage || !strings.Contains(got.log, "is not SERVICE/ENV") || len(asked.all()) > 0 {
					t.Errorf("%+v, asked %+v", got, asked.all())
				}
				return
			}
			printedIs(t, got, c.want)
			for _, q := range asked.all() {
				if strings.HasPrefix(q.line, "POST") && (q.line != c.line || q.body != c.body) {
					t.Errorf("asked %s %s", q.line, q.body)
				}
			}
			if c.line == "" != (len(asked.all()) == 1 && strings.HasPrefix(asked.all()[0].line, "GET")) {
				t.Errorf("asked %+v", asked.all())
			}
		})
	}
}

// Who sits at a terminal reads what an abort would break before they type.
func TestAnAbortSaysFirstWhatItBreaks(t *testing.T) {
	t.Parallel()
	gone := strings.Replace(grayAt20, `"direct":true`, `"back":[{"detail":"nobody has 2.10","hint":"bring it back first"}]`, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body) // a broken body compares as different
		switch {
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, gone)
		case strings.Contains(string(body), `"confirm":""`):
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"code":"confirm_mismatch","detail":"no","data":{"confirm":"prod/pay-core"}}`)
		default:
			_, _ = io.WriteString(w, `{"number":8}`)
		}
	}))
	t.Cleanup(server.Close)
	got := ctl(t, server.URL, streams{in: strings.NewReader("prod/pay-core\n"), asks: true}, "gray", "inner", "abort", "pay-core/prod", "--reason", "slow")
	printedIs(t, got, printed{0, "rules v8: pay-core/prod as Git has it; callers follow within 2 s\n", "warning: nobody has 2.10 (bring it back first)\n" +
		"2.11, at 20 %, gets no more calls to pay-core/prod, and 2.10 has what the rule in Git gives it, on " + server.URL + "\ntype prod/pay-core to do it: "})
	if got := ctl(t, server.URL, streams{}, "gray", "inner", "show", "pay-core/prod"); !strings.Contains(got.out, "but      nobody has 2.10 (bring it back first)\n") {
		t.Errorf("show prints\n%s", got.out)
	}
}
