package admin

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dispatch.example/dispatch/admin/actions"
)

// routes is the whole API, in the order of the manual.
func (a *API) routes(api huma.API) {
	a.sessionRoutes(api)
	a.releaseRoutes(api)
	a.listRoutes(api)
	a.grayRoutes(api)
	a.draftRoutes(api)
	a.innerRoutes(api)
	a.auditRoutes(api)
	a.peopleRoutes(api)
}

// sessionRoutes are those of who asks.
func (a *API) sessionRoutes(api huma.API) {
	route(api, a, endpoint{http.MethodPost, "/login", signIn, "", "Begin a session"}, a.login)
	route(api, a, endpoint{http.MethodPost, "/logout", "sign-out", "", "End the session"}, a.logout)
	route(api, a, endpoint{http.MethodGet, "/me", "who-am-i", "", "Name and roles of who asks"}, a.me)
}

// releaseRoutes are those of what serves and how it changes.
func (a *API) releaseRoutes(api huma.API) {
	route(api, a, endpoint{http.MethodGet, "/apps", "list-apps", "", "Apps of the current release"}, a.apps)
	route(api, a, endpoint{http.MethodGet, "/apps/{app}", "show-app", "", "One app, operational state applied"}, a.app)
	route(api, a, endpoint{http.MethodGet, "/releases", "list-releases", "", "Releases, newest first"}, a.releaseList)
	route(api, a, endpoint{http.MethodGet, "/releases/{n}", "show-release", "", "One release with its document"}, a.release)
	route(api, a, endpoint{http.MethodGet, "/releases/{a}/diff/{b}", "diff-releases", "", "What changed between two releases"}, a.diff)
	route(api, a, endpoint{http.MethodPost, "/releases", "publish", "application/yaml application/json", "Publish a document"}, a.publish)
	route(api, a, endpoint{http.MethodPost, "/releases/{n}/relive", "relive", "", "Make an earlier release live again"}, a.relive)
	route(api, a, endpoint{http.MethodPost, "/releases/adopt", "adopt", "", "Bring what is served into a database that was restored from a backup"}, a.adopt)
	route(api, a, endpoint{http.MethodPost, "/emergency", "emergency", "", "Swap endpoints, set states of regions and clusters, abort a gray, freeze: at once"}, a.emergency)
	route(api, a, endpoint{http.MethodGet, "/fleet", "show-fleet", "", "Every replica and what it serves, and how far the newest release has come"}, a.fleet)
	route(api, a, endpoint{http.MethodGet, "/traffic", "show-traffic", "", "What replicas counted, by the minute: by app, region, endpoint, policy, reason, release"}, a.traffic)
	route(api, a, endpoint{http.MethodPost, "/overrides/reconcile", "reconcile", "", "Make a release of the override that is in force on a replica"}, a.reconcile)
	route(api, a, endpoint{http.MethodGet, "/apps/{app}/export/{form}", "export-rules", "", "An app's rules in the words of HAProxy or nginx, or as ranges of buckets"}, a.exportRules, bulkTime)
	route(api, a, endpoint{http.MethodPost, "/explain", "explain", "", "Why a request would get its answer"}, a.explain)
}

// listRoutes are those of lists, keys and tables.
func (a *API) listRoutes(api huma.API) {
	route(api, a, endpoint{http.MethodGet, "/lists", "list-lists", "", "Lists and their sizes"}, a.lists)
	route(api, a, endpoint{http.MethodPost, "/lists/{list}/import", "import-list", "text/plain text/csv", "Replace a list: one id a line, or CSV with a header"}, a.importList)
	route(api, a, endpoint{http.MethodGet, "/lists/{list}", "show-list", "", "One list: size, owner, expiry, where it is used"}, a.list)
	route(api, a, endpoint{http.MethodGet, "/lists/{list}/imports", "list-imports", "", "Content of a list that is stored and not in use"}, a.imports)
	route(api, a, endpoint{http.MethodPost, "/lists/{list}/imports/{id}/apply", "apply-import", "", "Make kept content the list's; what removes much waits for a second person"}, a.applyImport)
	route(api, a, endpoint{http.MethodPost, "/lists/{list}/imports/{id}/withdraw", "withdraw-import", "", "Give kept content up, or turn it down"}, a.withdrawImport)
	route(api, a, endpoint{http.MethodPost, "/lists/{list}/approve", "approve-import", "", "Sign content that somebody else brought, and make it the list's"}, a.approveImport)
	route(api, a, endpoint{http.MethodGet, "/lists/{list}/export", "export-list", "", "The ids of a list, one a line or as CSV"}, a.exportList)
	route(api, a, endpoint{http.MethodPatch, "/lists/{list}", "patch-list", "", "Add and remove ids"}, a.patchList)
	route(api, a, endpoint{http.MethodGet, "/lists/{list}/contains", "list-contains", "", "Whether a list holds an id"}, a.contains)
	route(api, a, endpoint{http.MethodPost, "/keys/rehash", "rehash", "", "Hash all lists anew under the current list key"}, a.rehash, bulkTime)
	route(api, a, endpoint{http.MethodPost, "/keys/retire", "retire", "", "Name the previous session and list keys no longer"}, a.retire)
	route(api, a, endpoint{http.MethodPost, "/tables/{table}", "upload-table", "text/csv", "Upload an address table: prefix,label lines"}, a.uploadTable)
}

// grayRoutes are those of grays, and the hosts that probers watch.
func (a *API) grayRoutes(api huma.API) {
	route(api, a, endpoint{http.MethodGet, "/grays", "list-grays", "", "Shares and the plans by which they grow"}, a.grays)
	route(api, a, endpoint{http.MethodGet, "/grays/{app}/{policy}", "show-gray", "", "One gray: its plan, its step, its signals"}, a.gray)
	route(api, a, endpoint{http.MethodGet, "/grays/{app}/{policy}/preview", "preview-gray", "", "Whom the next step would move"}, a.previewGray)
	route(api, a, endpoint{http.MethodPut, "/grays/{app}/{policy}", "gray", "", "Write the plan of a gray"}, a.planGray)
	route(api, a, endpoint{http.MethodPost, "/grays/{app}/{policy}/approve", "approve-gray", "", "Sign a plan that somebody else wrote"}, a.approveGray)
	route(api, a, endpoint{http.MethodPost, "/grays/{app}/{policy}", "abort-gray", "", "Abort or pause a gray; who may plan one also starts, goes on with, resumes and finishes it, and who may write drafts makes its region the default"}, a.turnGray)
	route(api, a, endpoint{http.MethodGet, "/probes", "list-probes", "", "Which hosts probers see up, since when, and why not"}, a.probes)
	route(api, a, endpoint{http.MethodGet, "/hosts", "list-hosts", "", "Registered hosts with proposer and approver"}, a.hosts)
	route(api, a, endpoint{http.MethodPost, "/hosts", "propose-host", "", "Propose a host"}, a.proposeHost)
	route(api, a, endpoint{http.MethodPost, "/approvals/{id}", "approve", "", "Approve a host that somebody else proposed"}, a.approve)
}

// innerRoutes are those of internal calls: who is there, by which rules they are
// reached, and why a call went where it went.
func (a *API) innerRoutes(api huma.API) {
	route(api, a, endpoint{http.MethodGet, "/directory", "show-directory", "", "Services and their instances, as the region's registries have them, and what waits for people"}, a.directory)
	route(api, a, endpoint{http.MethodGet, "/directory/map", "show-map", "", "Who may call whom: for each service and environment the rule that counts and the shares of versions"}, a.callMap)
	route(api, a, endpoint{http.MethodPost, "/directory/verdicts", "judge-instance", "", "Accept or refuse an entry of the queue, isolate an instance, lift that"}, a.judge)
	route(api, a, endpoint{http.MethodGet, "/rules", "show-rules", "", "The rules that callers of the region follow"}, a.rules)
	route(api, a, endpoint{http.MethodGet, "/rules/export/envoy", "export-envoy", "", "The rules and the instances of this moment as routes and clusters of Envoy"}, a.exportEnvoy)
	route(api, a, endpoint{http.MethodPost, "/rules/lint", "lint-rules", "", "Check files of rules against form and directory, and say what they would change"}, a.lintRules)
	route(api, a, endpoint{http.MethodPost, "/rules", "apply-rules", "", "Publish all rules of the region, for all callers at once"}, a.applyRules)
	route(api, a, endpoint{http.MethodPost, "/rules/approve", "approve-rules", "", "Sign changes of key services that somebody else publishes"}, a.approveRules)
	route(api, a, endpoint{http.MethodPost, "/rules/switch", "switch-rules", "", "Throw the kill switch of the region, or take it back"}, a.switchRules)
	route(api, a, endpoint{http.MethodGet, "/rules/grays", "list-inner-grays", "", "Versions of services that grow by steps"}, a.innerGrays)
	route(api, a, endpoint{http.MethodGet, "/rules/grays/{service}/{env}", "show-inner-gray", "", "One version that grows: its step, and what callers make of it"}, a.innerGray)
	route(api, a, endpoint{http.MethodPost, "/rules/grays/{service}/{env}", "start-inner-gray", "", "Let a new version take its first step, for all callers at once"}, a.startInnerGray)
	route(api, a, endpoint{http.MethodPost, "/rules/grays/{service}/{env}/step", "step-inner-gray", "", "Take the next step, or one that is named"}, a.stepInnerGray)
	route(api, a, endpoint{http.MethodPost, "/rules/grays/{service}/{env}/approve", "approve-inner-gray", "", "Sign the start of a version of a key service that somebody else begins"}, a.approveInnerGray)
	route(api, a, endpoint{http.MethodPost, "/rules/grays/{service}/{env}/abort", "abort-inner-gray", "", "Take everything back from the new version: callers follow the rule as Git has it, at once"}, a.abortInnerGray)
	route(api, a, endpoint{http.MethodGet, "/calls/{id}", "explain-call", "", "Why an internal call went where it went"}, a.explainCall)
}

// auditRoutes are those of the audit trail.
func (a *API) auditRoutes(api huma.API) {
	route(api, a, endpoint{http.MethodGet, "/audit", "list-audit", "", "The audit trail, newest first"}, a.audit)
	route(api, a, endpoint{http.MethodGet, "/audit/export", "export-audit", "", "The audit trail as CSV, or as JSON, one row a line"}, a.exportAudit)
	route(api, a, endpoint{http.MethodGet, "/audit/verify", "verify-audit", "", "Check the chain of the audit trail"}, a.verifyAudit)
}

// peopleRoutes are those of accounts and tokens.
func (a *API) peopleRoutes(api huma.API) {
	route(api, a, endpoint{http.MethodGet, "/accounts", "list-accounts", "", "People who sign in"}, a.accounts)
	route(api, a, endpoint{http.MethodPost, "/accounts", "create-account", "", "Make a local account; its one-time password is shown once"}, a.createAccount)
	route(api, a, endpoint{http.MethodPatch, "/accounts/{login}", "edit-account", "", "Change name and roles, disable, end all sessions"}, a.editAccount)
	route(api, a, endpoint{http.MethodPost, "/accounts/{login}/reset", "reset-account", "", "Give a new one-time password and take the second factor away"}, a.resetAccount)
	route(api, a, endpoint{http.MethodPost, "/accounts/{login}/arm", "arm-account", "", "Let a break-glass account sign in for 4 h"}, a.armAccount)
	route(api, a, endpoint{http.MethodGet, "/tokens", "list-tokens", "", "Tokens, never their secrets"}, a.tokens)
	route(api, a, endpoint{http.MethodPost, "/tokens", "create-token", "", "Make a token; its secret is shown once"}, a.createToken)
	route(api, a, endpoint{http.MethodDelete, "/tokens/{id}", "revoke-token", "", "Revoke a token"}, a.revokeToken)
}

// endpoint is one row of the route table; id is the operation in the table of
// actions.Roles. streams are the content types of a body
// that is read as it comes, with spaces between them; empty where the body, if
// any, is JSON.
type endpoint struct {
	method, path, id, streams, summary string
}

const (
	// maxJSON bounds a JSON body in bytes. The largest, a patch of 20,000 ids of
	// 256 bytes, has 5.2 MB before its quotes.
	maxJSON = 8 << 20
	// maxLogin bounds, in bytes, what somebody may send whom nobody knows yet.
	maxLogin = 4 << 10
	// jsonTime bounds the reading of a JSON body, and then the work on it. Streams
	// have only the server's limits: an import may take minutes.
	jsonTime = 30 * time.Second
	// bulkTime bounds the work on all ids of all lists.
	bulkTime = 10 * time.Minute
)

// route registers one operation: where it lives, and the function
// that does it, whose errors become problems. limit bounds the work on a request
// without a stream, jsonTime if absent.
func route[I, O any](api huma.API, a *API, e endpoint, do func(context.Context, *I) (*O, error), limit ...time.Duration) {
	op := huma.Operation{OperationID: e.id, Method: e.method, Path: "/api/v1" + e.path, Summary: e.summary,
		Description:  "Roles: " + strings.Join(actions.Roles(e.id), ", ") + ".",
		Security:     []map[string][]string{{"token": {}}, {"session": {}}},
		Responses:    map[string]*huma.Response{"default": {Ref: "#/components/responses/problem"}},
		MaxBodyBytes: maxJSON, BodyReadTimeout: jsonTime}
	if e.id == signIn {
		op.Description, op.Security, op.MaxBodyBytes = "Everybody.", []map[string][]string{}, maxLogin
	}
	if e.streams != "" {
		// huma reads a body that has an object for a schema, or is JSON with any.
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
		for name := range strings.FieldsSeq(e.streams) {
			op.RequestBody.Content[name] = &huma.MediaType{}
			if name != "application/json" {
				op.RequestBody.Content[name].Schema = &huma.Schema{Type: huma.TypeString}
			}
		}
	}
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		if e.streams == "" {
			limited, cancel := context.WithTimeout(ctx, append(limit, jsonTime)[0])
			defer cancel()
			ctx = limited
		}
		out, err := do(ctx, in)
		if err != nil {
			return nil, a.refuse(ctx, e.id, err)
		}
		return out, nil
	})
}

// describe puts the shape of errors into the OpenAPI document, in place of huma's,
// and says that no array is null: none is.
func describe(doc *huma.OpenAPI) {
	doc.Info.Description = "Every call needs a token. Every change takes a reason, may carry an Idempotency-Key and answers the release that carries it. " +
		"Every error is a problem (RFC 9457) with a stable code and a hint that says what to do next."
	schemas := doc.Components.Schemas
	doc.Components.Responses = map[string]*huma.Response{"problem": {
		Description: "What went wrong (RFC 9457), with a stable code and the next step",
		Content:     map[string]*huma.MediaType{problemType: {Schema: schemas.Schema(reflect.TypeFor[failure](), true, "")}}}}
	delete(schemas.Map(), "ErrorModel")
	delete(schemas.Map(), "ErrorDetail")
	for _, schema := range schemas.Map() {
		for _, property := range schema.Properties {
			if property.Type == huma.TypeArray {
				property.Nullable = false
			}
		}
	}
}
