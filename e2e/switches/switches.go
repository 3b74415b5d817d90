package main

import "slices"

// Table returns every switch.
func Table() []Switch {
	return slices.Concat(overTheFleet(), ofChanges(), ofLists(), ofReleases(), ofAnswers(), ofListeners(), ofPages(), ofSignIn(), ofDrills())
}

// overTheFleet are of tests with real processes.
func overTheFleet() []Switch {
	return []Switch{
		{"TestP01ASwapReachesTheLastEdge", "e2e", "fleet/fleet.go",
			"PollEvery = 5 * time.Second", "PollEvery = 50 * time.Second"},
		{"TestP01AnswersStayFastDuringSwaps", "e2e", "release/keeper.go", // answers wait for a change
			"func (k *Keeper) Current() *Snapshot { return k.current.Load() }",
			"func (k *Keeper) Current() *Snapshot {\n\tif k.Status().Age < 100*time.Millisecond {\n\t\t<-time.After(20 * time.Millisecond)\n\t}\n\treturn k.current.Load()\n}"},
		{"TestP02AnswersGoOnWithoutAnythingBehind", "e2e", "fleet/link.go",
			"l.problem = shorten(err.Error())", "panic(err)"},
		{"TestP03RestartWithEverythingDown", "e2e", "cmd/dispatch/serve.go",
			"if err := p.keeper.Restore(ctx); err != nil &&", "if err := error(nil); err != nil &&"},
		{"TestP04NothingLoadedIsNotReady", "e2e", "handler/health.go",
			"status = http.StatusServiceUnavailable", "status = http.StatusOK"},
		{"TestP05KilledPublisherTearsNothing", "e2e", "store/change.go",
			"return appendAudit(tx, head, c, s.now())", "_ = head\n\t\treturn nil"},
		{"TestP11FrozenRedisHoldsNothingUp", "e2e", "cmd/dispatch/redis.go", // Redis first, then everybody
			"if err := n.board.Offer(ctx, o, n.blobs()); err != nil || n.redis == nil {",
			"if n.redis != nil {\n\t\tif err := n.redis.Offer(ctx, o, n.blobs()); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\tif err := n.board.Offer(ctx, o, n.blobs()); err != nil || n.redis == nil {"},
		{"TestP13SlowDatabaseIsASoonRefusal", "e2e", "store/store.go",
			"const timeout = 2500 * time.Millisecond", "const timeout = 9000 * time.Millisecond"},
		{"TestP14PartitionedEdgeServesAndIsRed", "e2e", "fleet/fleet.go",
			"SilentAfter = 15 * time.Second", "SilentAfter = 50 * time.Second"},
		{"TestP15FullDiskOfAnEdge", "e2e", "release/keeper.go",
			"k.status.DiskErr = err.Error()", "_ = err"},
		{"TestP15FullDiskOfASingleNode", "e2e", "store/errors.go",
			"case liteFull:\n\t\treturn full(err)", "case liteFull:\n\t\treturn err"},
	}
}

// ofChanges are of what takes changes and writes them down.
func ofChanges() []Switch {
	return []Switch{
		{"TestP05P24KillLeavesWholeReleases", "store", "store/change.go",
			"return appendAudit(tx, head, c, s.now())", "_ = head\n\t\treturn nil"},
		{"TestP17ConcurrentPublishesHaveOneWinner", "store", "store/release.go",
			"if head != w.Base {", "if head < w.Base {"},
		{"TestP21LastRegionStays", "cmd/dispatch/admin", "release/operational_action.go",
			"if s.State != domain.Active && !usable(regions) {", "if s.State != domain.Active && !usable(regions) && false {"},
		{"TestP21TheSettingsAskForMoreRegions", "cmd/dispatch/admin", "admin/actions/rules.go",
			"if is < was && is < j.safety.MinUsableRegions {", "if is < was && is < 0 {"},
		{"TestP22MostFailingAtOnceChangesNothing", "probe", "probe/state.go",
			"suspect := sight.Suspect()", "suspect := sight.Suspect() && false"},
		{"TestP22AllProbesFailingChangesNothing", "cmd/dispatch/admin", "admin/actions/failover.go",
			"case w.mostFail():", "case w.mostFail() && false:"},
		{"TestP16AClockThatWasSetBackHoldsNoEmergencyUp", "cmd/dispatch/admin", "admin/actions/safety.go",
			"r.At.Sub(now) > clockSkew {", "r.At.Sub(now) > clockSkew && false {"},
		{"TestSEC03DanglingNamesAreNotPublished", "cmd/dispatch/admin", "admin/actions/rules.go",
			"return p.Err(DanglingName,", "return fault.Problems(nil).Err(DanglingName,"},
		{"TestSEC20ProbesReachNothingButHosts", "probe", "probe/request.go",
			"dialer := &net.Dialer{Control: p.networks.control}", "dialer := &net.Dialer{}"},
		{"TestP24TheTrailIsWholeAfterEverything", "cmd/dispatch/admin", "store/change.go",
			"return appendAudit(tx, head, c, s.now())", "_ = head\n\t\treturn nil"},
		{"TestSEC14AnApprovalIsOfExactlyWhatWasRead", "cmd/dispatch/admin", "admin/actions/approval.go",
			"s.Digest == digest && (!own || !a.FourEyes)", "(!own || !a.FourEyes)"},
		{"TestP16ClockJumpsMakeNoScheduleEarlyOrRepeated", "cmd/dispatch/admin", "admin/actions/schedule_run.go",
			"return c.ahead > clockSet", "return false"},
		{"TestP07AnOldRowFromALaggingReplicaChangesNothing", "store", "store/release.go",
			"if head != w.Base {", "if w.Base = head; head != w.Base {"},
		{"TestP13ASlowDatabaseFailsClearly", "store", "store/store.go",
			"const timeout = 2500 * time.Millisecond", "const timeout = 25 * time.Second"},
		{"TestP13ANodeThatIsCutOffHoldsUpNobody", "store", "store/mysql.go",
			`waitTimeout = "10"`, `waitTimeout = "28800"`},
		{"TestP25FailoverLosesNothingAcknowledged", "store", "store/mysql.go",
			"cfg.RejectReadOnly = true", "cfg.RejectReadOnly = false"},
		{"TestSEC19VerifyNamesTheFirstBadRow", "store", "store/audit.go",
			"release.Digest(r.Hash) != r.sum(head.Hash) || ", ""},
		{"TestSEC19RewriteIsShownByAHeadKeptOutside", "store", "store/audit.go",
			"ok && hash != release.Digest(r.Hash)", "ok && hash == (release.Digest{})"},
		{"TestSEC01TheDatabaseRefusesAForeignHost", "store", "store/host.go",
			"if same && !s.fourEyesOff {", "if same && s.fourEyesOff {"},
		{"TestSEC32OverrideIsForItsOwner", "cmd/dispatch", "cmd/dispatch/override.go",
			"if p.uid != own && p.uid != 0 {", "if p.uid != own && p.uid != 0 && false {"},
		{"TestSEC29PlainTextStaysOnLoopback", "cmd/dispatch", "cmd/dispatch/validate.go",
			`host == "localhost" || ip != nil && ip.IsLoopback()`, `host == "localhost" || ip == nil || ip.IsLoopback()`},
		{"TestP16TheClockJumps", "cmd/dispatch", "policy/session.go",
			"left = max(0, time.Unix(p.expires, 0).Sub(req.Now))", "left = max(0, time.Until(time.Unix(p.expires, 0)))"},
		{"TestSEC28SecretsAreStrongAndUnseen", "cmd/dispatch", "internal/signed/token.go",
			"if err := checkToken(token); err != nil {", "if err := checkToken(token); err != nil && false {"},
		{"TestP10CanaryRefuses", "cmd/dispatch/admin", "admin/actions/commit.go",
			"		out.Canary, _ = a.Fleet.Canary()", "		_, _ = a.Fleet.Canary()"},
		{"TestP13SlowDatabase", "cmd/dispatch/admin", "admin/actions/patience.go",
			"	defer func() { left.Add(-int64(time.Since(start))) }()", "	_ = start"},
		{"TestP09TheDatabaseGuardIsNotTheOnlyOne", "cmd/dispatch/admin", "admin/actions/publish.go",
			"err == nil && h.newest.Number != base {", "err == nil && false {"},
		{"TestP17OneWinner", "cmd/dispatch/admin", "admin/actions/publish.go",
			"err == nil && h.newest.Number != base {", "err == nil && false {"},
	}
}

// ofLists are of lists, and of who looks people up.
func ofLists() []Switch {
	return []Switch{
		{"TestRemovingMoreThanATenthTakesTwoPeople", "cmd/dispatch/admin", "admin/actions/list_rule.go", // e59
			"if removed*100 <= had*limit {", "if removed*100 <= had*limit || true {"},
		{"TestSEC21ImportsRefuse", "cmd/dispatch/admin", "admin/imports.go",
			`if s.encoding != "" && !strings.EqualFold(s.encoding, "identity") {`, `if s.encoding != "" && strings.EqualFold(s.encoding, "identity") {`},
		{"TestSEC21ALineOfTwoGigabytesIsNotHeld", "cmd/dispatch/admin", "whitelist/lines.go",
			"case l.left < 0:", "case l.left < -2*l.max:"},
		{"TestSEC21ExportsAreText", "cmd/dispatch/admin", "admin/actions/cell.go",
			`return "'" + text`, "return text"},
		{"TestSEC31LookUpsAreBoundedAndSeen", "cmd/dispatch/admin", "admin/actions/lookup.go",
			"if wait > 0 {", "if wait > lookUpWindow {"},
		{"TestSEC31ABurstIsCountedOneByOne", "cmd/dispatch/admin", "admin/actions/lookup.go",
			"	defer done()\n", "	done()\n"},
	}
}

// ofReleases are of what carries releases and believes them.
func ofReleases() []Switch {
	return []Switch{
		{"TestLoadRefusesEmptyAndActive", "release", "release/guard.go",
			"if !usable {", "if usable && false {"},
		{"TestSEC05ForgedNudgesChangeNothing", "fleet", "fleet/redis_source.go",
			"look = time.Now().Add(r.limit.Reserve().Delay())", "look = time.Now()"},
		{"TestP12SilentSubscriberIsFound", "fleet", "fleet/redis_listen.go",
			"return r.sub.Channel(), since.Add(r.deaf)", "return r.sub.Channel(), since.Add(24 * time.Hour)"},
		{"TestP11FrozenRedisBlocksNothing", "fleet", "fleet/redis_url.go",
			"opt.ContextTimeoutEnabled = true", "opt.ContextTimeoutEnabled = false"},
		{"TestP14PartitionedReplicaServesOnAndConverges", "fleet", "fleet/roster.go",
			"return m.heard && now.Sub(m.seen) < SilentAfter", "return m.heard"},
		{"TestSEC29OnlyOursMayAsk", "fleet", "fleet/serve.go",
			"return ok && subtle.ConstantTimeCompare(shown[:], s.token[:]) == 1", "return ok || subtle.ConstantTimeCompare(shown[:], s.token[:]) == 1"},
		{"TestSEC04ReplayedReleaseIsRefused", "fleet", "internal/signed/ratchet.go",
			"case m.Number < known.Number, m.Number == known.Number && m.Seq <= known.Seq:", "case m.Number == known.Number && m.Seq <= known.Seq:"},
		{"TestP23ControlNodesStayKnown", "discovery", "discovery/consul_watch.go",
			"return w.doubt(ctx, a)", "return w.believe(ctx, a)"},
		{"TestP06DamagedCopyIsDetected", "release", "release/generation.go",
			"if checksum(head, body) != sum {", `if sum == "" {`},
		{"TestP07OldReleasesAreRefusedAndCounted", "release", "internal/signed/ratchet.go",
			"case m.Number < known.Number, m.Number == known.Number && m.Seq <= known.Seq:", "case m.Number == known.Number && m.Seq < known.Seq:"},
		{"TestP08BadConfigurationsAreRefusedByEachGuard", "release", "release/guard.go",
			"moved > limit {", "moved > goldenCount+limit {"},
		{"TestP09OneBrokenGuardIsNotEnough", "release", "release/load.go",
			"err = l.Guard(next, cur)", "err = nil"},
		{"TestSEC01EditedRowsAreRefused", "release", "release/sign.go",
			"s.Signature, s.Manifest); err != nil {", `s.Signature, s.Manifest); err != nil && s.Signature == "" {`},
		{"TestSEC02HostsThatLookLikeOurs", "release", "release/guard.go",
			"if !l.opt.Suffixes.Allows(host) {", `if !l.opt.Suffixes.Allows(host) && host == "" {`},
		{"TestSEC04ReplayIsRefusedAndLeavesNoTrace", "release", "internal/signed/ratchet.go",
			"case m.Number-known.Number > MaxJump:", "case m.Number-known.Number > MaxNumber:"},
		{"TestSEC23NoKeyLeavesItsFile", "release", "release/keys.go",
			"return KeyIDs{Session: k.Session.IDs(), List: k.List.IDs()}", `return KeyIDs{Session: k.Session.IDs(), List: append(k.List.IDs(), fmt.Sprintf("%x", k.List.Current().Secret()))}`},
		{"TestP26NewerFormatStaysUntouched", "release", "release/generation.go",
			"if h.Format > generationFormat {", "if h.Format > generationFormat+1 {"},
		{"TestP26FormatsOfThePastLoad", "release", "release/manifest.go",
			`json:"approved,omitzero"`, `json:"approval,omitzero"`},
		{"TestP26FormatIsTheOldestThatSomebodyReads", "release", "release/manifest.go",
			"return min(lowest, newest), nil", "return newest, nil"},
		{"TestSEC28ReadTokensRefuses", "internal/signed", "internal/signed/token.go",
			"if len(secret) < tokenSize {", "if false {"},
		{"TestSEC28ReadKeysRefuses", "internal/signed", "internal/signed/key.go",
			"if len(distinct) < len(secret)/2 {", "if false {"},
	}
}

// ofAnswers are of what answers apps.
func ofAnswers() []Switch {
	return []Switch{
		{"TestSEC06HeadersHaveNoAuthorityByTheirName", "handler", "handler/address.go",
			"if o.trusted = p.contain(o.addr); !o.trusted {", "if o.trusted = true; !o.trusted {"},
		{"TestSEC22ControlCharactersStayInTheirLine", "handler", "handler/decision_json.go",
			"c >= ' ' && c <= '~'", "c <= '~'"},
		{"TestSEC24AnswersAreNobodyElses", "handler", "handler/cors.go",
			`noStore      = []string{"private, no-store"}`, `noStore      = []string{"public, max-age=60"}`},
		{"TestSEC24NoCacheSharesAnAnswer", "handler", "handler/cors.go",
			`noStore      = []string{"private, no-store"}`, `noStore      = []string{"public, max-age=60"}`},
		{"TestSEC25WhatIsTooLargeIsRefused", "handler", "handler/route.go",
			"case len(r.URL.RawQuery) > maxQuery:", "case len(r.URL.RawQuery) > maxQuery && false:"},
		{"TestSEC25SlowHeadersAreCutOff", "handler", "handler/server.go",
			"ReadHeaderTimeout: 2 * time.Second,", "ReadHeaderTimeout: 20 * time.Second,"},
		{"TestSEC25HTTP2IsNotOffered", "handler", "handler/server.go",
			"ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),",
			"ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), Protocols: func() *http.Protocols { p := new(http.Protocols); p.SetHTTP1(true); p.SetUnencryptedHTTP2(true); return p }(),"},
		{"TestSEC26AChosenIDGainsNoRight", "handler", "policy/condition.go",
			"return w.tryLists(c)", "return truth(true)"},
		{"TestSEC27NothingIsSmuggled", "handler", "handler/server.go",
			`w.Header().Set("Connection", "close")`, "_ = w"},
		{"TestP20GrowingMovesNobodyBack", "policy", "policy/action.go",
			"return []span{{int16(from), int16(from + of - 1), region}}",
			"from = min(from+of/2, Whole-of)\n\t\treturn []span{{int16(from), int16(from + of - 1), region}}"},
		{"TestP19BadSignalsPauseAndNeverAdvance", "cmd/dispatch/admin", "admin/actions/gray_signal.go", // no number is a good one
			`return nothing("the value is %q", written)`, `return judged(true, written, "")`},
		{"TestP20RampMovesNobodyBack", "policy", "policy/ramp.go",
			"return r.From + int(", "return r.To - int("},
		{"TestP20GrowingByRampMovesNobodyBack", "release", "policy/ramp.go",
			"return r.From + int(", "return r.To - int("},
		{"TestP20GrowingByHandMovesNobodyBack", "release", "release/operational.go",
			"p.Then.Share = &policy.Share{Region: p.Then.Share.Region, Of: position}",
			"p.Then.Share = &policy.Share{Region: p.Then.Share.Region, Buckets: [][2]int{{*position / 2, *position - 1}}}"},
		{"TestSEC25SlowConnectionsMakeWay", "handler", "handler/connections.go",
			"if oldest == nil || !oldest.Value.(*boundConn).read.Load() {", "if oldest = nil; oldest == nil {"},
		{"TestP18HerdIsServedWhatFits", "e2e", "handler/connections.go", // sent away without a word
			"_, _ = io.WriteString(c.Conn, goodbye)", "_ = io.EOF"},
	}
}

// ofListeners are of who may speak to a node, and what it may be told.
func ofListeners() []Switch {
	return []Switch{
		{"TestSEC27AdminListenerAnswersToItsNames", "cmd/dispatch", "cmd/dispatch/hosts.go",
			"if n[host] {", "if n[host] || true {"},
		{"TestSEC27NoLinkCarriesAHost", "cmd/dispatch", "cmd/dispatch/hosts.go",
			"if len(given) > 0 {", "if len(given) > 99 {"},
		{"TestSEC27FleetListenerReadsOneRequest", "cmd/dispatch", "handler/server.go",
			`w.Header().Set("Connection", "close")`, "_ = w"},
		{"TestSEC32OverrideForAllIsSigned", "cmd/dispatch", "release/override_all.go",
			"case !o.Created.After(k.taken),", "case o.Created.IsZero(),"},
		{"TestSEC32RedisCannotOverride", "fleet", "release/keeper_override.go",
			`if o.Deployment != "" && o.Deployment != k.loader.opt.Deployment {`, `if o.Deployment == "" && o.Deployment != k.loader.opt.Deployment {`},
	}
}
