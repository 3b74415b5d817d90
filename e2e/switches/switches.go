package main

// Table returns every switch, in the order of the promises.
func Table() []Switch {
	return []Switch{
		{"TestP05P24KillLeavesWholeReleases", "store", "store/change.go",
			"return appendAudit(tx, head, c, s.now())", "_ = head\n\t\treturn nil"},
		{"TestADatabaseThatHangsIsASoonAnswer", "cmd/dispatch/admin", "admin/auth.go",
			"context.WithTimeout(ctx.Context(), identifyTime)", "context.WithTimeout(ctx.Context(), 3*identifyTime)"},
		{"TestP17ConcurrentPublishesHaveOneWinner", "store", "store/release.go",
			"if head != w.Base {", "if head < w.Base {"},
		{"TestConcurrentPublicationsHaveOneWinner", "cmd/dispatch/admin", "store/release.go",
			"if head != w.Base {", "if head < w.Base {"},
		{"TestTheLastRegionStays", "cmd/dispatch/admin", "release/operational_action.go",
			"if s.State != domain.Active && !usable(regions) {", "if s.State != domain.Active && !usable(regions) && false {"},
		{"TestLoadRefusesEmptyAndActive", "release", "release/guard.go",
			"if !usable {", "if usable && false {"},
		{"TestTheTrailIsWholeAfterEverything", "cmd/dispatch/admin", "store/change.go",
			"return appendAudit(tx, head, c, s.now())", "_ = head\n\t\treturn nil"},
	}
}
