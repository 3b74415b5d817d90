package pages

import "slices"

// page is one row: the operation in the table of actions.Roles, the method and the
// path as http.ServeMux wants them, and what answers. An error that it returns is
// shown as a page, with its hint. Without an operation it is for everybody, also for
// who has not signed in.
type page struct {
	operation, pattern string
	do                 func(*visit) error
}

// table is every page.
func table() []page {
	return slices.Concat(atNight(), ofWork(), ofInner(), ofRecords(), ofAccess(), ofAccounts(), ofEvents())
}

// atNight is what the one on call needs.
func atNight() []page {
	return []page{
		{"show-app", "GET /{$}", (*visit).home},
		{"show-app", "GET /emergency", (*visit).emergency},
		{"emergency", "POST /emergency", (*visit).act},
		{"show-app", "GET /emergency/effect", (*visit).effect},
		{"list-hosts", "GET /domains", (*visit).domains},
		{"propose-host", "POST /domains", (*visit).proposeHost},
		{"list-hosts", "GET /domains/{host}", (*visit).host},
		{"approve", "POST /domains/{host}/approve", (*visit).approveHost},
		{"explain", "GET /explain", (*visit).ask},
		{"explain", "POST /explain", (*visit).explain},
		{"show-fleet", "GET /fleet", (*visit).fleet},
		{"adopt", "POST /fleet/adopt", (*visit).adopt},
		{"reconcile", "POST /fleet/reconcile", (*visit).reconcile},
	}
}

// ofWork are rules, changes and grays.
func ofWork() []page {
	return []page{
		{"list-grays", "GET /gray", (*visit).grays},
		{"show-gray", "GET /gray/{app}/{policy}", (*visit).gray},
		{"preview-gray", "GET /gray/{app}/{policy}/preview", (*visit).previewGray},
		{"gray", "POST /gray/{app}/{policy}/plan", (*visit).planGray},
		{"approve-gray", "POST /gray/{app}/{policy}/approve", (*visit).approveGray},
		{"abort-gray", "POST /gray/{app}/{policy}", (*visit).turnGray},
		{"list-drafts", "GET /changes", (*visit).changes},
		{"create-draft", "GET /changes/new", (*visit).newDraft},
		{"create-draft", "POST /changes/new", (*visit).saveDraft},
		{"show-draft", "GET /changes/{id}", (*visit).draft},
		{"edit-draft", "GET /changes/{id}/edit", (*visit).editDraft},
		{"edit-draft", "POST /changes/{id}/edit", (*visit).saveDraft},
		{"submit-draft", "POST /changes/{id}/submit", (*visit).submitDraft},
		{"rebase-draft", "POST /changes/{id}/rebase", (*visit).rebaseDraft},
		{"withdraw-draft", "POST /changes/{id}/withdraw", (*visit).withdrawDraft},
		{"approve-draft", "POST /changes/{id}/approve", (*visit).approveDraft},
		{"reject-draft", "POST /changes/{id}/reject", (*visit).rejectDraft},
		{"schedule-draft", "POST /changes/{id}/schedule", (*visit).scheduleDraft},
		{"unschedule-draft", "POST /changes/{id}/unschedule", (*visit).unscheduleDraft},
		{"publish-draft", "POST /changes/{id}/publish", (*visit).publishDraft},
		{"show-release", "GET /releases/{n}", (*visit).release},
		{"relive", "POST /releases/{n}/relive", (*visit).relive},
		{"review", "POST /releases/{n}/review", (*visit).review},
		{"diff-releases", "GET /releases/{a}/diff/{b}", (*visit).diff},
		{"show-app", "GET /rules", (*visit).rules},
	}
}

// ofInner are the services that call each other.
func ofInner() []page {
	return []page{
		{"show-map", "GET /map", (*visit).callMap},
		{"switch-rules", "POST /map/switch", (*visit).switchRules},
		{"show-directory", "GET /services", (*visit).services},
		{"show-directory", "GET /services/{name}", (*visit).service},
		{"judge-instance", "POST /services/{name}", (*visit).judge},
		{"start-inner-gray", "POST /services/{name}/gray/{env}/start", (*visit).startVersion},
		{"approve-inner-gray", "POST /services/{name}/gray/{env}/approve", (*visit).approveVersion},
		{"step-inner-gray", "POST /services/{name}/gray/{env}/step", (*visit).stepVersion},
		{"abort-inner-gray", "POST /services/{name}/gray/{env}/abort", (*visit).abortVersion},
		{"explain-call", "GET /calls", (*visit).calls},
		{"show-directory", "GET /queues", (*visit).queues},
		{"judge-instance", "POST /queues", (*visit).decide},
	}
}

// ofRecords are lists and the audit trail.
func ofRecords() []page {
	return []page{
		{"list-lists", "GET /lists", (*visit).lists},
		{"show-list", "GET /lists/{list}", (*visit).list},
		{"list-contains", "POST /lists/{list}/contains", (*visit).searchList},
		{"patch-list", "POST /lists/{list}/patch", (*visit).patchList},
		{"import-list", "GET /lists/{list}/import", (*visit).importForm},
		{"import-list", "POST /lists/{list}/import", (*visit).uploadList},
		{"apply-import", "POST /lists/{list}/imports/{id}/apply", (*visit).applyImport},
		{"withdraw-import", "POST /lists/{list}/imports/{id}/withdraw", (*visit).withdrawImport},
		{"approve-import", "POST /lists/{list}/approve", (*visit).approveImport},
		{"export-list", "POST /lists/{list}/export", (*visit).exportList},
		{"list-audit", "GET /audit", (*visit).audit},
		{"verify-audit", "POST /audit/verify", (*visit).verifyAudit},
		{"export-audit", "POST /audit/export", (*visit).exportAudit},
	}
}

// ofAccess are people, tokens and settings.
func ofAccess() []page {
	return []page{
		{"list-accounts", "GET /access", (*visit).access},
		{"create-account", "POST /access/accounts", (*visit).createAccount},
		{"edit-account", "POST /access/accounts/{login}", (*visit).editAccount},
		{"reset-account", "POST /access/accounts/{login}/reset", (*visit).resetAccount},
		{"arm-account", "POST /access/accounts/{login}/arm", (*visit).armAccount},
		{"create-token", "POST /access/tokens", (*visit).createToken},
		{"revoke-token", "POST /access/tokens/{id}/revoke", (*visit).revokeToken},
		{"show-settings", "GET /settings", (*visit).settings},
		{"edit-settings", "POST /settings", (*visit).saveSettings},
		{"approve-settings", "POST /settings/approve", (*visit).approveSettings},
	}
}

// ofAccounts are signing in and out, and what people do with their own account.
func ofAccounts() []page {
	return []page{
		{"", "GET /login", (*visit).login},
		{"", "POST /login", (*visit).signInNow},
		{"", "POST /logout", (*visit).signOut},
		{"", "GET /login/sso", (*visit).toProvider},
		{"", "GET /login/callback", (*visit).fromProvider},
		{"own-account", "GET /account", (*visit).account},
		{"own-account", "POST /account/password", (*visit).changePassword},
		{"own-account", "POST /account/factor", (*visit).enrol},
		{"own-account", "POST /account/factor/remove", (*visit).removeFactor},
		{"own-account", "POST /account/arm", (*visit).arm},
	}
}

// ofEvents are streams of server-sent events.
func ofEvents() []page {
	return []page{
		{"import-list", "GET /events/import/{key}", (*visit).importEvents},
		{"show-fleet", "GET /events/bar", (*visit).barEvents},
		{"show-fleet", "GET /events/release/{n}", (*visit).releaseEvents},
	}
}

// Row is one page as a test that tries every page sees it.
type Row struct{ Operation, Pattern string }

// Rows are all pages.
func (p *Pages) Rows() (rows []Row) {
	for _, row := range table() {
		rows = append(rows, Row{row.operation, row.pattern})
	}
	return rows
}
