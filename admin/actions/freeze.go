package actions

import "time"

// FreezeWindow is a time in which normal changes and schedules are refused. From
// and To are days and times in Zone, or times of day that come back on Weekdays.
type FreezeWindow struct {
	From     string   `json:"from" example:"2027-02-05T00:00" doc:"local time in the zone; with weekdays a time of day, 22:00"`
	To       string   `json:"to" example:"2027-02-12T00:00" doc:"the first moment after the window"`
	Zone     string   `json:"zone" example:"Asia/Shanghai" doc:"IANA name"`
	Weekdays []string `json:"weekdays,omitempty" enum:"mon,tue,wed,thu,fri,sat,sun" doc:"on which the window begins; none: once"`
	Reason   string   `json:"reason" minLength:"3" maxLength:"200" example:"spring festival"`
}

// holds says whether the window holds at the moment.
func (f FreezeWindow) holds(at time.Time) bool { return false } // unbuilt
