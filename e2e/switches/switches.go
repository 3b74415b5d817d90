package main

// Table returns every switch, in the order of the promises.
func Table() []Switch {
	return []Switch{
		{"TestP01ASwapReachesTheLastEdge", "e2e", "fleet/fleet.go",
			"PollEvery = 5 * time.Second", "PollEvery = 50 * time.Second"},
		{"TestP01AnswersStayFastDuringSwaps", "e2e", "release/keeper.go", // answers wait for a change
			"func (k *Keeper) Current() *Snapshot { return k.current.Load() }",
			"func (k *Keeper) Current() *Snapshot { <-k.turn; defer func() { k.turn <- struct{}{} }(); return k.current.Load() }"},
		{"TestP02AnswersGoOnWithoutAnythingBehind", "e2e", "fleet/link.go",
			"l.problem = shorten(err.Error())", "panic(err)"},
		{"TestP03RestartWithEverythingDown", "e2e", "cmd/dispatch/serve.go",
			"if err := p.keeper.Restore(ctx); err != nil &&", "if err := error(nil); err != nil &&"},
		{"TestP04NothingLoadedIsNotReady", "e2e", "handler/health.go",
			"status = http.StatusServiceUnavailable", "status = http.StatusOK"},
		{"TestP05KilledPublisherTearsNothing", "e2e", "store/change.go",
			"return appendAudit(tx, head, c, s.now())", "_ = head\n\t\treturn nil"},
		{"TestP11FrozenRedisHoldsNothingUp", "e2e", "cmd/dispatch/fleet.go", // Redis first, then everybody
			"err := n.board.Offer(ctx, o, n.blobs())",
			"if n.redis != nil {\n\t\tif err := n.redis.Offer(ctx, o, n.blobs()); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\terr := n.board.Offer(ctx, o, n.blobs())"},
		{"TestP13SlowDatabaseIsASoonRefusal", "e2e", "store/store.go",
			"const timeout = 2500 * time.Millisecond", "const timeout = 9000 * time.Millisecond"},
		{"TestP14PartitionedEdgeServesAndIsRed", "e2e", "fleet/fleet.go",
			"SilentAfter = 15 * time.Second", "SilentAfter = 50 * time.Second"},
		{"TestP15FullDiskOfAnEdge", "e2e", "release/keeper.go",
			"k.status.DiskErr = err.Error()", "_ = err"},
		{"TestP15FullDiskOfASingleNode", "e2e", "store/errors.go",
			"case liteFull:\n\t\treturn full(err)", "case liteFull:\n\t\treturn err"},
		{"TestP05P24KillLeavesWholeReleases", "store", "store/change.go",
			"return appendAudit(tx, head, c, s.now())", "_ = head\n\t\treturn nil"},
		{"TestP17ConcurrentPublishesHaveOneWinner", "store", "store/release.go",
			"if head != w.Base {", "if head < w.Base {"},
		{"TestP21LastRegionStays", "cmd/dispatch/admin", "release/operational_action.go",
			"if s.State != domain.Active && !usable(regions) {", "if s.State != domain.Active && !usable(regions) && false {"},
		{"TestLoadRefusesEmptyAndActive", "release", "release/guard.go",
			"if !usable {", "if usable && false {"},
		{"TestTheTrailIsWholeAfterEverything", "cmd/dispatch/admin", "store/change.go",
			"return appendAudit(tx, head, c, s.now())", "_ = head\n\t\treturn nil"},
	}
}
