package actions

import (
	"maps"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// The roles. A token has one of them, an account any number.
const (
	Viewer          = "viewer"
	ListManager     = "list-manager"
	ReleaseEngineer = "release-engineer"
	OnCall          = "on-call"
	Approver        = "approver"
	UserAdmin       = "user-admin"  // accounts and tokens; publishes nothing
	BreakGlass      = "break-glass" // may override a safety rule by its name
	Pipeline        = "pipeline"    // publishes rules of the inner layer from Git; nobody edits them by hand
	// Administrator has every role: for the first day, for the demo and for small
	// teams. Two people are two people all the same.
	Administrator = "administrator"
)

// AllRoles in the order in which pages and manuals list them.
func AllRoles() []string {
	return []string{Viewer, ListManager, ReleaseEngineer, OnCall, Approver, UserAdmin, BreakGlass, Pipeline, Administrator}
}

// Who may do what. Administrators may do all of it.
var (
	anyone    = []string{Viewer, ListManager, ReleaseEngineer, OnCall, Approver, UserAdmin, BreakGlass, Pipeline}
	lists     = []string{ListManager, ReleaseEngineer}
	releasing = []string{ReleaseEngineer}
	onCall    = []string{OnCall, ReleaseEngineer, BreakGlass}
	lookUps   = []string{ListManager, OnCall, ReleaseEngineer}
	approvers = []string{Approver}
	people    = []string{UserAdmin}
	keepers   = []string{} // administrators alone
)

// permits is the one table of who may do what: an operation of the API, which a
// page that does the same names too. What is not in it nobody may.
var permits = map[string][]string{
	"who-am-i": anyone, "sign-out": anyone,

	"list-apps": anyone, "show-app": anyone, "list-releases": anyone, "show-release": anyone, "diff-releases": anyone,
	"publish": releasing, "relive": onCall, "adopt": onCall, "emergency": onCall, "reconcile": onCall,
	"show-fleet": anyone, "show-traffic": anyone, "list-probes": anyone, "override-rule": {BreakGlass},

	"list-lists": anyone, "show-list": anyone, "list-imports": anyone, "apply-import": lists,
	"approve-import": {Approver, ListManager}, "withdraw-import": {ListManager, ReleaseEngineer, Approver}, "import-list": lists, "patch-list": lists, "export-list": lists, "list-contains": lookUps,
	"rehash": keepers, "retire": keepers, "upload-table": releasing,

	"export-rules": releasing, // with the ids of lists
	"explain":      {OnCall, ReleaseEngineer},
	"impact":       {OnCall, ReleaseEngineer, Approver},

	"list-hosts": anyone, "propose-host": releasing, "approve": approvers,

	"list-drafts": anyone, "show-draft": anyone, "create-draft": lists, "edit-draft": lists, "submit-draft": lists,
	"rebase-draft": lists, "withdraw-draft": lists, "approve-draft": approvers, "reject-draft": approvers,
	"schedule-draft": releasing, "unschedule-draft": onCall, "publish-draft": releasing,
	"list-pending": anyone, "review": approvers, "preview-relive": anyone,
	"show-settings": anyone, "edit-settings": releasing, "approve-settings": approvers,

	"list-grays": anyone, "show-gray": anyone, "preview-gray": {OnCall, ReleaseEngineer, Approver},
	"gray": releasing, "approve-gray": approvers, "abort-gray": onCall,

	"list-audit": anyone, "verify-audit": anyone, "export-audit": anyone,

	"show-directory": anyone, "show-map": anyone, "show-rules": anyone, "export-envoy": anyone, "lint-rules": {Pipeline, ReleaseEngineer, OnCall, Approver},
	"list-inner-grays": anyone, "show-inner-gray": anyone, "start-inner-gray": {Pipeline, ReleaseEngineer}, "step-inner-gray": {Pipeline, ReleaseEngineer},
	"approve-inner-gray": approvers, "abort-inner-gray": {Pipeline, OnCall, ReleaseEngineer, BreakGlass},
	"apply-rules": {Pipeline}, "approve-rules": approvers, "switch-rules": {OnCall, BreakGlass},
	"judge-instance": onCall, "explain-call": {OnCall, ReleaseEngineer},

	"list-tokens": people, "create-token": people, "revoke-token": people,
	"list-accounts": people, "create-account": people, "edit-account": people, "reset-account": people, "arm-account": people,
	"own-account": anyone,
}

// Operations are all of the table, in order.
func Operations() []string { return slices.Sorted(maps.Keys(permits)) }

// Roles are those that may do the operation.
func Roles(operation string) []string {
	roles, known := permits[operation]
	if !known {
		return nil
	}
	return append(slices.Clone(roles), Administrator)
}

// Actor is who asks: a person's login or the name of a token.
type Actor struct {
	Name  string   `json:"name"`
	Roles []string `json:"roles"`
}

// Is says whether the actor has the role, or every role.
func (a Actor) Is(role string) bool {
	return slices.Contains(a.Roles, role) || slices.Contains(a.Roles, Administrator)
}

// May is a refusal unless the actor has a role that may do the operation.
func (a Actor) May(operation string) error {
	roles := Roles(operation)
	for _, role := range roles {
		if slices.Contains(a.Roles, role) {
			return nil
		}
	}
	return fault.New(fault.Denied, "role", "%s may not %s", strings.Join(a.Roles, " and "), operation).
		Hintf("ask someone with one of these roles: %s", strings.Join(roles, ", "))
}
