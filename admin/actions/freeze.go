package actions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// FreezeWindow is a time in which normal changes and schedules are refused. From
// and To are days and times in Zone, or times of day that come back on Weekdays.
type FreezeWindow struct {
	From     string   `json:"from" example:"2027-02-05T00:00" doc:"local time in the zone; with weekdays a time of day, 22:00"`
	To       string   `json:"to" example:"2027-02-12T00:00" doc:"the first moment after the window"`
	Zone     string   `json:"zone" example:"Asia/Shanghai" doc:"IANA name"`
	Weekdays []string `json:"weekdays,omitempty" enum:"mon,tue,wed,thu,fri,sat,sun" doc:"on which the window begins; none: once"`
	Reason   string   `json:"reason" minLength:"3" maxLength:"200" example:"spring festival"`
}

// timeOfDay is how the hours of a window that comes back are written.
const timeOfDay = "15:04"

// weekdays in the order of time.Weekday.
func weekdays() []string { return []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} }

// String is the window on one line.
func (f FreezeWindow) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s – %s %s %s", f.From, f.To, f.Zone, strings.Join(f.Weekdays, " ")))
}

// check says what is wrong with the window.
func (f FreezeWindow) check(p *fault.Problems, path string) {
	where, err := zoneOf(f.Zone)
	if err != nil {
		p.Addf(path+".zone", "%q is no IANA zone", f.Zone)
		return
	}
	if len(strings.TrimSpace(f.Reason)) < 3 {
		p.Addf(path+".reason", "is missing: people read it when they are refused")
	}
	for _, day := range f.Weekdays {
		if !slices.Contains(weekdays(), day) {
			p.Addf(path+".weekdays", "%q is none of %s", day, strings.Join(weekdays(), ", "))
		}
	}
	var ends [2]time.Time
	whole := true
	for i, text := range []string{f.From, f.To} {
		if len(f.Weekdays) > 0 {
			ends[i], err = time.Parse(timeOfDay, text)
		} else {
			ends[i], err = local(text, where)
		}
		if err != nil {
			whole = false
			p.Addf(path+[]string{".from", ".to"}[i], "%q: write 2027-02-05T00:00, or with weekdays 22:00; it must exist once in %s", text, f.Zone)
		}
	}
	if whole && len(f.Weekdays) == 0 && !ends[1].After(ends[0]) {
		p.Addf(path+".to", "is not after from")
	}
}

// holds says whether the window holds at the moment, and until when.
func (f FreezeWindow) holds(at time.Time) (until time.Time, held bool) {
	where, err := zoneOf(f.Zone)
	if err != nil {
		return until, false
	}
	if len(f.Weekdays) == 0 {
		from, err1 := local(f.From, where)
		to, err2 := local(f.To, where)
		return to.In(where), err1 == nil && err2 == nil && !at.Before(from) && at.Before(to)
	}
	from, err1 := time.Parse(timeOfDay, f.From)
	to, err2 := time.Parse(timeOfDay, f.To)
	if err1 != nil || err2 != nil {
		return until, false
	}
	night := 0
	if !to.After(from) {
		night = 1
	}
	year, month, day := at.In(where).Date()
	for _, back := range []int{1, 0} { // it may have begun yesterday
		begin := time.Date(year, month, day-back, from.Hour(), from.Minute(), 0, 0, where)
		end := time.Date(year, month, day-back+night, to.Hour(), to.Minute(), 0, 0, where)
		if slices.Contains(f.Weekdays, weekdays()[begin.Weekday()]) && !at.Before(begin) && at.Before(end) {
			return end, true
		}
	}
	return until, false
}

// passed says whether the window will never hold again.
func (f FreezeWindow) passed(now time.Time) bool {
	where, err := zoneOf(f.Zone)
	if err != nil || len(f.Weekdays) > 0 {
		return false
	}
	to, err := local(f.To, where)
	return err == nil && !now.Before(to)
}

// open is an error while normal changes have to wait: for a canary, or because
// somebody froze them, or settings do.
func (a *Actions) open(ctx context.Context, h head) error {
	if err := h.open(); err != nil {
		return err
	}
	s, err := a.settings(ctx)
	if err != nil {
		return err
	}
	return s.frozen(a.now())
}

// frozen is the refusal of a normal change in a freeze window.
func (s Settings) frozen(at time.Time) error {
	for _, f := range s.Freezes {
		if until, held := f.holds(at); held {
			return fault.New(fault.Conflict, "frozen", "changes are frozen until %s: %s", until.Format(localTime+" -07:00"), f.Reason).
				WithHint("wait, or change the freeze windows in the settings, which takes a second person; emergencies and relive go on")
		}
	}
	return nil
}
