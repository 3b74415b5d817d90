package main

// ofSignIn are of who gets in.
func ofSignIn() []Switch {
	return []Switch{
		{"TestSEC08GuessesAreThrottled", "cmd/dispatch/admin", "admin/actions/backoff.go",
			"if wait := was.until.Sub(now); wait > 0 {", "if wait := was.until.Sub(now); wait > 0 && false {"},
		{"TestSEC08GuessesAtOnceAreCounted", "cmd/dispatch/admin", "admin/actions/backoff.go",
			"	was.count++\n", ""},
		{"TestSEC08GuessesAtOnceHaveBoundedMemory", "admin/actions", "admin/actions/password.go",
			"min(runtime.GOMAXPROCS(0), maxSlots)", "maxSlots*runtime.GOMAXPROCS(0)"},
		{"TestSEC08KnownAndUnknownAreAlike", "cmd/dispatch/admin", "admin/actions/signin.go",
			"	if hash == \"\" {\n", "	if hash == \"\" {\n\t\treturn 0, badCredentials()\n\t}\n\tif hash == \"\" {\n"},
		{"TestSEC08BreakGlassIsNotKeptShutByOutsiders", "cmd/dispatch/admin", "admin/actions/signin.go",
			"if !account.BreakGlass { // outsiders", "if true { // outsiders"},
		{"TestSEC08FailuresAreWrittenDownOnce", "cmd/dispatch/admin", "admin/actions/signin.go",
			"	if fault.KindOf(err) == fault.Unauthenticated {\n\t\ta.door.fail(account.Login)", "	if fault.KindOf(err) == fault.Unauthenticated {\n\t\ta.door.fail(login)"},
		{"TestSEC09SessionsAreNobodyElses", "cmd/dispatch/admin", "admin/signin/session.go",
			"HashTokenInStore: true,", "HashTokenInStore: false,"},
		{"TestSEC09SessionsEndWithWhatTheyStandFor", "cmd/dispatch/admin", "admin/signin/signin.go",
			" || account.Epoch != session.epoch() {", " {"},
		{"TestSEC09SessionsRunOut", "cmd/dispatch/admin", "admin/signin/session.go",
			"now.Sub(seen) >= idleFor &&", "now.Sub(seen) >= lifetime &&"},
		{"TestSEC10OtherSitesChangeNothing", "cmd/dispatch/admin", "admin/signin/cross.go",
			"if err := s.cross.Check(r); err != nil {", "if err := s.cross.Check(r); err != nil && false {"},
		{"TestSEC13EveryPageAdmitsExactlyItsRoles", "cmd/dispatch/admin", "admin/pages/serve.go",
			"if err := visitor.May(row.operation); err != nil {", "if err := visitor.May(row.operation); err != nil && false {"},
		{"TestSEC15AProviderSignsPeopleIn", "cmd/dispatch/admin", "admin/actions/signin.go", // roles of the first day
			`if account.Login == "" || !slices.Equal(account.Roles, p.Roles) || account.Name != p.Name {`, `if account.Login == "" {`},
		{"TestSEC15ForgedAnswersSignNobodyIn", "cmd/dispatch/admin", "admin/signin/oidc.go",
			`f.State == "" || !same(f.State, r.URL.Query().Get("state"))`, `f.State == ""`},
		{"TestSEC15ForgedAnswersSignNobodyIn", "cmd/dispatch/admin", "admin/signin/oidc.go",
			` || !same(f.Nonce, token.Nonce) {`, " {"},
		{"TestSEC16BreakGlassWithoutTheProvider", "cmd/dispatch/admin", "admin/actions/signin.go",
			"case account.BreakGlass && !account.Armed.After(a.now()):", "case account.BreakGlass && account.Armed.After(a.now().Add(ArmedFor)):"},
		{"TestSEC17NextIsAPathOfOurs", "admin/signin", "admin/signin/next.go",
			`strings.Contains(path, "//")`, `strings.Contains(path, "///")`},
		{"TestSEC17SigningInLeadsNowhereElse", "cmd/dispatch/admin", "admin/pages/login.go",
			`pattern == "" {`, `pattern == "" && path == "" {`},
		{"TestSEC18Tokens", "cmd/dispatch/admin", "admin/actions/token.go",
			"n.Life > MaxTokenLife {", "n.Life > 2*MaxTokenLife {"},
	}
}
