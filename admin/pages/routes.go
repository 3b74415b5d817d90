package pages

// page is one row: the operation in the table of actions.Roles, the method and the
// path as http.ServeMux wants them, and what answers. An error that it returns is
// shown as a page, with its hint. Without an operation it is for everybody, also for
// who has not signed in.
type page struct {
	operation, pattern string
	do                 func(*visit) error
}

// table is every page.
func (p *Pages) table() []page {
	return []page{
		{"show-app", "GET /{$}", (*visit).home},
		{"show-app", "GET /emergency", (*visit).emergency},
		{"emergency", "POST /emergency", (*visit).act},
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
		{"list-accounts", "GET /access", (*visit).access},
		{"create-account", "POST /access/accounts", (*visit).createAccount},
		{"edit-account", "POST /access/accounts/{login}", (*visit).editAccount},
		{"reset-account", "POST /access/accounts/{login}/reset", (*visit).resetAccount},
		{"arm-account", "POST /access/accounts/{login}/arm", (*visit).armAccount},
		{"create-token", "POST /access/tokens", (*visit).createToken},
		{"revoke-token", "POST /access/tokens/{id}/revoke", (*visit).revokeToken},
		{"list-grays", "GET /gray", (*visit).grays},
		{"show-gray", "GET /gray/{app}/{policy}", (*visit).gray},
		{"preview-gray", "GET /gray/{app}/{policy}/preview", (*visit).previewGray},
		{"gray", "POST /gray/{app}/{policy}/plan", (*visit).planGray},
		{"approve-gray", "POST /gray/{app}/{policy}/approve", (*visit).approveGray},
		{"abort-gray", "POST /gray/{app}/{policy}", (*visit).turnGray},
		{"explain", "GET /explain", (*visit).ask},
		{"explain", "POST /explain", (*visit).explain},
		{"show-fleet", "GET /fleet", (*visit).fleet},
		{"adopt", "POST /fleet/adopt", (*visit).adopt},
		{"reconcile", "POST /fleet/reconcile", (*visit).reconcile},
		{"show-fleet", "GET /events/bar", (*visit).barEvents},
		{"show-fleet", "GET /events/release/{n}", (*visit).releaseEvents},
	}
}

// Row is one page as a test that tries every page sees it.
type Row struct{ Operation, Pattern string }

// Rows are all pages.
func (p *Pages) Rows() (rows []Row) {
	for _, row := range p.table() {
		rows = append(rows, Row{row.operation, row.pattern})
	}
	return rows
}
