package actions

import (
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// localTime is how a day and a time are written.
const localTime = "2006-01-02T15:04"

// zoned reads a local time and its zone: 2027-02-05T02:30 Asia/Shanghai. A time that
// does not exist there, or exists twice, is refused with what to write instead; with
// an offset before the zone, 2027-10-31T02:30+02:00 Europe/Berlin, each exists once.
func zoned(text string) (at time.Time, zone string, err error) {
	clock, zone, _ := strings.Cut(strings.TrimSpace(text), " ")
	zone = strings.TrimSpace(zone)
	if zone == "" {
		return at, "", fault.New(fault.Invalid, "no_zone", "%q says no zone", text).
			WithHint("write the local time and its IANA zone: 2027-02-05T02:30 Asia/Shanghai")
	}
	where, err := zoneOf(zone)
	if err != nil {
		return at, "", err
	}
	if exact, err := time.Parse("2006-01-02T15:04Z07:00", clock); err == nil {
		if exact.In(where).Format(localTime) != exact.Format(localTime) {
			return at, "", fault.New(fault.Invalid, "bad_time", "%s has another offset at that time", zone).
				Hintf("write %s %s, if that moment is meant", exact.In(where).Format(localTime), zone)
		}
		return exact.UTC(), zone, nil
	}
	at, err = local(clock, where)
	return at, zone, err
}

// zoneOf is the zone of a name that says a place, and not an offset that half of the
// year is another one.
func zoneOf(zone string) (*time.Location, error) {
	const hint = "write an IANA name: Asia/Shanghai, Europe/Berlin, UTC"
	if zone != "UTC" && !strings.Contains(zone, "/") {
		return nil, fault.New(fault.Invalid, "bad_zone", "%q is no name of a zone", zone).WithHint(hint)
	}
	where, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_zone", "no zone is called %q", zone).WithHint(hint)
	}
	return where, nil
}

// local is the one moment at which clocks at the place show this.
func local(clock string, where *time.Location) (time.Time, error) {
	shown, err := time.Parse(localTime, clock)
	if err != nil {
		return time.Time{}, fault.New(fault.Invalid, "bad_time", "%q is no time", clock).WithHint("write 2027-02-05T02:30")
	}
	// Zones change their offset less often than once in two days.
	var moments [2]time.Time
	for i, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := shown.Add(near).In(where).Zone()
		moments[i] = shown.Add(-time.Duration(offset) * time.Second)
	}
	earlier, later := moments[0], moments[1]
	shows := func(t time.Time) bool { return t.In(where).Format(localTime) == clock }
	switch {
	case shows(earlier) && shows(later) && !earlier.Equal(later):
		return time.Time{}, fault.New(fault.Invalid, "bad_time", "%s comes twice in %s: the clocks go back", clock, where).
			Hintf("write which: %s %s or %s %s", earlier.In(where).Format("2006-01-02T15:04Z07:00"), where,
				later.In(where).Format("2006-01-02T15:04Z07:00"), where)
	case shows(earlier):
		return earlier, nil
	case shows(later):
		return later, nil
	default:
		return time.Time{}, fault.New(fault.Invalid, "bad_time", "%s does not exist in %s: the clocks go forward", clock, where).
			Hintf("write %s or %s", later.In(where).Format(localTime), earlier.In(where).Format(localTime))
	}
}
