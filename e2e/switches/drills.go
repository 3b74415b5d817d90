package main

// ofDrills are of the numbers of the inner layer.
func ofDrills() []Switch {
	return []Switch{
		{"TestR1DeadInstancesAreLeft", "drills", "discovery/caller/outcome.go",
			"change := w.outliers.Note(at, o, now)", "change := w.outliers.Note(at, Answered, now)"},
		{"TestR2Breaker", "drills", "discovery/breaker/breaker.go",
			"cmp.Or(max(opt.Probes, 0), 3)", "cmp.Or(max(opt.Probes, 0), 5)"},
		{"TestR3CallsEndAtTheirCaller", "drills", "discovery/guard/call.go",
			"c.Deadline = c.begun.Add(set.Deadline)", "c.Deadline = c.begun.Add(set.Deadline + 100*time.Millisecond)"},
		{"TestR4SharesOfAGray", "drills", "discovery/rules/gray.go",
			"Strategy{g.Version, g.Share}, &Fallback", "Strategy{g.Version, g.Share * 2 / 3}, &Fallback"},
		{"TestR6MachinesStopInTurn", "drills", "discovery/breaker/breaker.go", // one of six is enough
			"cmp.Or(max(opt.FailedShare, 0), 0.5)", "cmp.Or(max(opt.FailedShare, 0), 0.01)"},
		{"TestC13PauseRemovesNobody", "drills", "discovery/register.go",
			"DefaultTTL = 15 * time.Second", "DefaultTTL = 6 * time.Second"},
		{"TestC20HiccupIsNotAmplified", "drills", "discovery/guard/settings.go",
			"s.Deadline = cmp.Or(s.Deadline, o.Default.Deadline, DefaultDeadline)", "s.Deadline = cmp.Or(o.Default.Deadline, DefaultDeadline)"},
		{"TestC22NewInstancesGetTheirPart", "drills", "discovery/caller/lists.go",
			"rampFor = 30 * time.Second", "rampFor = 300 * time.Second"},
		{"TestC23AddressesChangeUnderLoad", "drills", "discovery/register.go", // callers hear of it two seconds late
			"err := errors.Join(lost, r.release(ctx))", "pause(context.WithoutCancel(ctx), r.linger)\n\terr := errors.Join(lost, r.release(ctx))"},
		{"TestA41BlackHoledAddress", "drills", "discovery/guard/guard.go",
			"const DialLimit = 500 * time.Millisecond", "const DialLimit = 900 * time.Millisecond"},
		{"TestT92OutageIsNotAmplified", "drills", "discovery/guard/budget.go",
			"perRetry = 5", "perRetry = 2"},
	}
}
