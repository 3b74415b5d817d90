package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

// who may do what, from the manual's point of view: an operation that is not
// here, or has other roles, fails TestEveryRouteAdmitsExactlyItsRoles.
var who = map[string]string{
	"POST /login":                               everybody,
	"POST /logout":                              "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /me":                                   "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /apps":                                 "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /apps/{app}":                           "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /releases":                             "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /releases/{n}":                         "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /releases/{a}/diff/{b}":                "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /releases":                            "release-engineer administrator",
	"POST /releases/{n}/relive":                 "release-engineer on-call break-glass administrator",
	"POST /releases/adopt":                      "release-engineer on-call break-glass administrator",
	"POST /emergency":                           "release-engineer on-call break-glass administrator",
	"GET /fleet":                                "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /traffic":                              "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /overrides/reconcile":                 "release-engineer on-call break-glass administrator",
	"POST /keys/rehash":                         "administrator",
	"POST /keys/retire":                         "administrator",
	"GET /lists":                                "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /lists/{list}/import":                 "list-manager release-engineer administrator",
	"GET /lists/{list}":                         "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /lists/{list}/imports":                 "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /lists/{list}/imports/{id}/apply":     "list-manager release-engineer administrator",
	"POST /lists/{list}/imports/{id}/withdraw":  "list-manager release-engineer approver administrator",
	"POST /lists/{list}/approve":                "list-manager approver administrator",
	"GET /lists/{list}/export":                  "list-manager release-engineer administrator",
	"GET /audit/export":                         "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"PATCH /lists/{list}":                       "list-manager release-engineer administrator",
	"GET /lists/{list}/contains":                "list-manager release-engineer on-call administrator",
	"POST /tables/{table}":                      "release-engineer administrator",
	"GET /apps/{app}/export/{form}":             "release-engineer administrator",
	"POST /explain":                             "release-engineer on-call administrator",
	"GET /grays":                                "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /grays/{app}/{policy}":                 "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /grays/{app}/{policy}/preview":         "release-engineer on-call approver administrator",
	"PUT /grays/{app}/{policy}":                 "release-engineer administrator",
	"POST /grays/{app}/{policy}":                "release-engineer on-call break-glass administrator",
	"POST /grays/{app}/{policy}/approve":        "approver administrator",
	"GET /probes":                               "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /hosts":                                "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /hosts":                               "release-engineer administrator",
	"POST /approvals/{id}":                      "approver administrator",
	"GET /audit":                                "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /audit/verify":                         "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /drafts":                               "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /drafts":                              "list-manager release-engineer administrator",
	"GET /drafts/{id}":                          "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"PUT /drafts/{id}":                          "list-manager release-engineer administrator",
	"POST /drafts/{id}/submit":                  "list-manager release-engineer administrator",
	"POST /drafts/{id}/rebase":                  "list-manager release-engineer administrator",
	"POST /drafts/{id}/withdraw":                "list-manager release-engineer administrator",
	"POST /drafts/{id}/approve":                 "approver administrator",
	"POST /drafts/{id}/reject":                  "approver administrator",
	"POST /drafts/{id}/schedule":                "release-engineer administrator",
	"POST /drafts/{id}/unschedule":              "release-engineer on-call break-glass administrator",
	"POST /drafts/{id}/publish":                 "release-engineer administrator",
	"GET /pending":                              "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /releases/{n}/review":                 "approver administrator",
	"GET /releases/{n}/relive":                  "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /settings":                             "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"PUT /settings":                             "release-engineer administrator",
	"POST /settings/approve":                    "approver administrator",
	"GET /tokens":                               "user-admin administrator",
	"POST /tokens":                              "user-admin administrator",
	"GET /accounts":                             "user-admin administrator",
	"POST /accounts":                            "user-admin administrator",
	"PATCH /accounts/{login}":                   "user-admin administrator",
	"POST /accounts/{login}/reset":              "user-admin administrator",
	"POST /accounts/{login}/arm":                "user-admin administrator",
	"DELETE /tokens/{id}":                       "user-admin administrator",
	"GET /directory":                            "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /directory/map":                        "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /directory/verdicts":                  "release-engineer on-call break-glass administrator",
	"GET /rules":                                "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /rules/export/envoy":                   "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /rules/lint":                          "pipeline release-engineer on-call approver administrator",
	"POST /rules":                               "pipeline administrator",
	"POST /rules/approve":                       "approver administrator",
	"POST /rules/switch":                        "on-call break-glass administrator",
	"GET /rules/grays":                          "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"GET /rules/grays/{service}/{env}":          "viewer list-manager release-engineer on-call approver user-admin break-glass pipeline administrator",
	"POST /rules/grays/{service}/{env}":         "release-engineer pipeline administrator",
	"POST /rules/grays/{service}/{env}/step":    "release-engineer pipeline administrator",
	"POST /rules/grays/{service}/{env}/approve": "approver administrator",
	"POST /rules/grays/{service}/{env}/abort":   "release-engineer on-call break-glass pipeline administrator",
	"GET /calls/{id}":                           "release-engineer on-call administrator",
}

// everybody may sign in, also without a token.
const everybody = "everybody"

var roles = actions.AllRoles()

// fillIn replaces {parameters} by something that exists nowhere.
func fillIn(path string) string {
	return strings.NewReplacer("{app}", "none", "{policy}", "none", "{n}", "9", "{a}", "9", "{b}", "8", "{list}", "none", "{table}", "none", "{id}", "none", "{service}", "none", "{env}", "none", "{form}", "ranges", "{form}", "ranges").Replace(path)
}

type openAPI struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct {
		Schemas, Responses, SecuritySchemes map[string]json.RawMessage
	}
}

type operation struct {
	OperationID, Summary, Description string
	Security                          []map[string][]string
	RequestBody                       struct{ Content map[string]json.RawMessage }
	Responses                         map[string]json.RawMessage
}

func (c *control) openAPI() (doc openAPI) {
	c.t.Helper()
	r := c.get("", "/openapi.json").ok()
	r.into(&doc)
	return doc
}

// SEC13: every route, every role, no token and a wrong one.
func TestEveryRouteAdmitsExactlyItsRoles(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	var documented []string
	for path, operations := range c.openAPI().Paths {
		for method, op := range operations {
			name := strings.ToUpper(method) + " " + strings.TrimPrefix(path, "/api/v1")
			documented = append(documented, name)
			if ways := map[bool]int{true: 0, false: 2}; len(op.Security) != ways[who[name] == everybody] || op.Summary == "" {
				t.Errorf("%s is documented as %+v", name, op)
			}
			for _, role := range roles {
				if strings.Contains(op.Description, role) != slices.Contains(strings.Fields(who[name]), role) {
					t.Errorf("%s is documented with %q", name, op.Description)
				}
			}
		}
	}
	slices.Sort(documented)
	if want := slices.Sorted(maps.Keys(who)); !slices.Equal(documented, want) {
		t.Fatalf("operations are %q, want %q", documented, want)
	}
	c.tokens["wrong"] = "dsp_api_000000000000000000000000000000000abcdef"
	c.tokens["empty"], c.tokens["two"] = "", c.tokens[actions.Administrator]+" "+c.tokens[actions.Administrator]
	for name, allowed := range who {
		method, path, _ := strings.Cut(name, " ")
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			if allowed == everybody {
				for _, role := range append([]string{"", "wrong"}, roles...) {
					c.call(request{role: role, method: method, path: path}).refused(http.StatusBadRequest, "bad_request")
				}
				return
			}
			for _, role := range roles {
				r := c.call(request{role: role, method: method, path: fillIn(path)})
				switch ok := slices.Contains(strings.Fields(allowed), role); {
				case ok && (r.status == http.StatusForbidden || r.status == http.StatusUnauthorized || r.status >= 500):
					t.Errorf("%s: %d %s, want it admitted", role, r.status, r.body)
				case !ok:
					if p := r.refused(http.StatusForbidden, "role"); !strings.Contains(p.Hint, "administrator") {
						t.Errorf("%s: the hint is %q", role, p.Hint)
					}
				}
			}
			for role, code := range map[string]string{"": "no_token", "empty": "no_token", "wrong": "bad_token", "two": "bad_token"} {
				r := c.call(request{role: role, method: method, path: fillIn(path)})
				r.refused(http.StatusUnauthorized, code)
				if r.header.Get("WWW-Authenticate") != `Bearer realm="dispatch"` {
					t.Errorf("token %q: WWW-Authenticate is %q", role, r.header.Get("WWW-Authenticate"))
				}
			}
			c.call(request{method: method, path: fillIn(path), headers: []string{"Authorization", "Basic " + c.tokens[actions.Administrator]}}).
				refused(http.StatusUnauthorized, "no_token")
		})
	}
}

// No spelling of a path and no header opens what the token may not do.
func TestNoOtherSpellingOpensAnything(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	root := strings.TrimSuffix(c.url, "/api/v1")
	c.untouched(func() {
		for name, allowed := range who {
			if allowed == everybody {
				continue
			}
			method, path, _ := strings.Cut(name, " ")
			path = "/api/v1" + fillIn(path)
			for _, variant := range []string{
				"/" + path, path + "/", strings.Replace(path, "/v1/", "//v1/", 1), strings.Replace(path, "/v1/", "/v1%2f", 1),
				strings.Replace(path, "/v1/", "/v1/./", 1), strings.Replace(path, "/v1/", "/v1/x/../", 1), strings.Replace(path, "/v1/", "/v1/%2e%2e/v1/", 1),
				path + ";a", path + "%00", path + "%20", path + "?token=" + c.tokens[actions.Administrator], strings.ToUpper(path), path + "/openapi.json",
			} {
				for _, headers := range [][]string{
					nil, {"X-Forwarded-User", "administrator"}, {"X-Original-URL", "/api/v1/openapi.json"}, {"User-Agent", "dispatch"},
					{"Cookie", "token=" + c.tokens[actions.Administrator]},
				} {
					sent, err := http.NewRequestWithContext(t.Context(), method, root+variant, nil)
					must(t, err)
					for i := 0; i < len(headers); i += 2 {
						sent.Header.Set(headers[i], headers[i+1])
					}
					resp, err := http.DefaultClient.Do(sent)
					must(t, err)
					body, _ := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if s := resp.StatusCode; s != http.StatusUnauthorized && s != http.StatusNotFound && s != http.StatusMethodNotAllowed ||
						resp.Header.Get("Content-Type") != "application/problem+json" {
						t.Errorf("%s %s with %q: %d %s", method, variant, headers, s, body)
					}
				}
			}
		}
		// A viewer does not become more by saying that the method is another one.
		for _, header := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
			r := c.call(request{role: actions.Viewer, method: http.MethodGet, path: "/releases", headers: []string{header, "POST", "If-Match", "1"}}).ok()
			if !strings.Contains(string(r.body), `"releases":`) {
				t.Errorf("%s: %s", header, r.body)
			}
			c.call(request{role: actions.Viewer, method: http.MethodPost, path: "/releases?_method=GET", headers: []string{header, "GET"}}).refused(http.StatusForbidden, "role")
		}
	})
}

func TestTheOpenAPIDocumentDescribesWhatIsServed(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	doc := c.openAPI()
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Components.Schemas["Failure"] == nil || doc.Components.Responses["problem"] == nil ||
		doc.Components.SecuritySchemes["token"] == nil || doc.Components.Schemas["ErrorModel"] != nil {
		t.Errorf("version %s, schemas %v", doc.OpenAPI, slices.Sorted(maps.Keys(doc.Components.Schemas)))
	}
	bodies := map[string][]string{
		"/releases": {"application/json", "application/yaml"}, "/lists/{list}/import": {"text/csv", "text/plain"}, "/tables/{table}": {"text/csv"},
	}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			if string(op.Responses["default"]) != `{"$ref":"#/components/responses/problem"}` || len(op.Responses) != 2 {
				t.Errorf("%s %s answers %v", method, path, op.Responses)
			}
			if want := bodies[strings.TrimPrefix(path, "/api/v1")]; method == "post" && want != nil {
				if got := slices.Sorted(maps.Keys(op.RequestBody.Content)); !slices.Equal(got, want) {
					t.Errorf("%s takes %q, want %q", path, got, want)
				}
			}
		}
	}
	text := string(c.get("", "/openapi.json").body)
	for _, name := range namesIn(t, text) {
		if strings.ToLower(name) != name || strings.Contains(name, "-") {
			t.Errorf("the member %q is not in snake case", name)
		}
	}
	if strings.Contains(text, `"null"`) {
		t.Error("something may be null")
	}
	if strings.Contains(text, "$schema") {
		t.Error("answers would have a $schema member")
	}
}

// namesIn are the names of all members of all schemas.
func namesIn(t *testing.T, text string) (names []string) {
	t.Helper()
	var doc any
	must(t, json.Unmarshal([]byte(text), &doc))
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if properties, ok := v["properties"].(map[string]any); ok {
				names = slices.AppendSeq(names, maps.Keys(properties))
			}
			for _, below := range v {
				walk(below)
			}
		case []any:
			for _, below := range v {
				walk(below)
			}
		}
	}
	walk(doc)
	return names
}

// Whoever refuses, and for whatever reason, the answer is a problem with a code.
func TestEveryErrorIsAProblem(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	huge := `{"reason":"test","add":["` + strings.Repeat("x", 9<<20) + `"]}`
	for name, test := range map[string]struct {
		request
		status int
		code   string
	}{
		"an unknown path":    {request{role: actions.Viewer, method: "GET", path: "/nothing"}, 404, "unknown_path"},
		"a wrong method":     {request{role: actions.Viewer, method: "PUT", path: "/apps"}, 405, "unknown_method"},
		"a wrong type":       {request{role: actions.Viewer, method: "GET", path: "/releases?limit=many"}, 422, "bad_request"},
		"out of bounds":      {request{role: actions.Viewer, method: "GET", path: "/releases?limit=0"}, 422, "bad_request"},
		"an unknown query":   {request{role: actions.Viewer, method: "GET", path: "/releases?befor=7"}, 422, "bad_request"},
		"no JSON":            {request{role: actions.OnCall, method: "POST", path: "/emergency", body: "{"}, 400, "bad_request"},
		"another JSON":       {request{role: actions.OnCall, method: "POST", path: "/emergency", body: "[]"}, 422, "bad_request"},
		"no body":            {request{role: actions.OnCall, method: "POST", path: "/emergency"}, 400, "bad_request"},
		"an unknown member":  {request{role: actions.Administrator, method: "POST", path: "/tokens", body: `{"reason":"test","name":"a","role":"viewer","admin":true}`}, 422, "bad_request"},
		"another type":       {request{role: actions.OnCall, method: "POST", path: "/emergency", body: "<a/>", headers: []string{"Content-Type", "text/xml"}}, 415, "bad_content_type"},
		"too much":           {request{role: actions.ListManager, method: "PATCH", path: "/lists/staff", body: huge}, 413, "too_large"},
		"a missing app":      {request{role: actions.Viewer, method: "GET", path: "/apps/none"}, 404, "unknown_app"},
		"a missing release":  {request{role: actions.Viewer, method: "GET", path: "/releases/99"}, 404, "unknown_release"},
		"a missing release2": {request{role: actions.Viewer, method: "GET", path: "/releases/1/diff/99"}, 404, "unknown_release"},
		"a long key":         {request{role: actions.OnCall, method: "POST", path: "/emergency", body: swapOut, headers: []string{"Idempotency-Key", strings.Repeat("k", 200)}}, 422, "bad_request"},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.call(test.request)
			r.refused(test.status, test.code)
			if r.header.Get("Cache-Control") != "no-store" || r.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers are %v", r.header)
			}
			if test.status == 405 && r.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
	if c.log.String() != "" {
		t.Errorf("mistakes of callers are logged:\n%s", c.log)
	}
}

// A refusal repeats no value: it may be an id.
func TestRefusalsRepeatNoId(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	for _, r := range []*reply{
		c.patch(`{"reason":"test","add":["secret-id"],"remove":[7,"secret-id"]}`),
		c.patch(`{"reason":"test","add":"secret-id"}`),
		c.patch(`{"reason":"test","add":["secret-id","null"]}`),
		c.post(actions.OnCall, "/explain", `{"device_id":["secret-id"]}`),
	} {
		if r.status != http.StatusUnprocessableEntity || strings.Contains(string(r.body), "secret-id") {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}

func TestAPanicIsOneLineInTheLogAndNothingElse(t *testing.T) {
	t.Parallel()
	c := empty(t, "sqlite", func(s *store.Store) actions.Ledger { return broken{s} })
	c.get(actions.Viewer, "/hosts").refused(http.StatusInternalServerError, "internal")
	r := c.get(actions.Viewer, "/releases")
	p := r.refused(http.StatusInternalServerError, "internal")
	if strings.Contains(string(r.body), "secret detail") || p.Detail != "internal error" {
		t.Errorf("the caller sees %s", r.body)
	}
	log := c.log.String()
	if strings.Count(log, "\n") != 2 || strings.Count(log, "secret detail") != 2 || !strings.Contains(log, "routes_test.go") {
		t.Errorf("the log is not two lines with the stack of the panic:\n%s", log)
	}
	for _, secret := range c.tokens {
		if strings.Contains(log, secret) {
			t.Error("a token is in the log")
		}
	}
	c.get(actions.Viewer, "/me").ok()
}

// broken is a store with a bug.
type broken struct{ *store.Store }

func (broken) Hosts(context.Context) ([]ledger.Host, error) { panic("secret detail") }

func (broken) Releases(context.Context, string, uint64, int) ([]ledger.Summary, error) {
	return nil, errors.New("secret detail")
}

// Nobody who reads an answer has to expect null in place of a list.
func TestNothingIsNull(t *testing.T) {
	t.Parallel()
	for _, c := range []*control{empty(t, "sqlite", nil), published(t, "sqlite")} {
		for name := range who {
			method, path, _ := strings.Cut(name, " ")
			if method != "GET" {
				continue
			}
			path = strings.NewReplacer("{app}", "mobile", "{policy}", "staff", "{n}", "1", "{a}", fmt.Sprint(c.current()), "{b}", fmt.Sprint(c.current()), "{list}/contains", "staff/contains?id=a").Replace(path)
			if r := c.get(actions.Administrator, path); strings.Contains(string(r.body), ":null") {
				t.Errorf("%s: %s", name, r.body)
			}
		}
	}
	c := published(t, "sqlite")
	for _, r := range []*reply{c.publish(1, kept, "dry_run=true"), c.bring("d-1001\nd-1002\n", "dry_run=true")} {
		if strings.Contains(string(r.ok().body), ":null") {
			t.Errorf("%s: %s", r.what, r.body)
		}
	}
}

func TestAReleaseIsAnsweredAsItWasSigned(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	var got struct {
		Manifest  json.RawMessage
		Signature string
	}
	c.get(actions.Viewer, "/releases/1").ok().into(&got)
	want, err := c.store.Release(t.Context(), release.StreamEdge, 1)
	if err != nil || string(got.Manifest) != string(want.Manifest) || got.Signature != want.Signature {
		t.Errorf("the bytes differ from those that were signed (%v)", err)
	}
	var list struct {
		Current  uint64
		Releases []ledger.Summary
	}
	r := c.get(actions.Viewer, "/releases")
	r.ok().into(&list)
	if list.Current != 1 || len(list.Releases) != 1 || list.Releases[0].By != actions.ReleaseEngineer || r.header.Get("ETag") != `"1"` {
		t.Errorf("releases: %s", r.body)
	}
}
