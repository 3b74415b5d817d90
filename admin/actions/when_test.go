package actions

import (
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

func TestAFreezeWindowHolds(t *testing.T) {
	t.Parallel()
	once := FreezeWindow{From: "2027-02-05T00:00", To: "2027-02-12T00:00", Zone: "Asia/Shanghai", Reason: "spring festival"}
	nights := FreezeWindow{From: "22:00", To: "06:00", Zone: "Asia/Shanghai", Weekdays: []string{"fri", "sat"}, Reason: "weekend nights"}
	hours := FreezeWindow{From: "09:00", To: "17:00", Zone: "Europe/Berlin", Weekdays: []string{"mon"}, Reason: "office hours"}
	for _, c := range []struct {
		window FreezeWindow
		at     string
		until  string // empty: it does not hold
	}{
		{once, "2027-02-04T15:59:59Z", ""},
		{once, "2027-02-04T16:00:00Z", "2027-02-11T16:00:00Z"},
		{once, "2027-02-11T16:00:00Z", ""},
		{nights, "2027-02-05T14:00:00Z", "2027-02-05T22:00:00Z"}, // Friday 22:00 in Shanghai
		{nights, "2027-02-05T21:59:59Z", "2027-02-05T22:00:00Z"}, // Saturday 05:59
		{nights, "2027-02-05T22:00:00Z", ""},
		{nights, "2027-02-06T20:00:00Z", "2027-02-06T22:00:00Z"}, // Sunday 04:00, began on Saturday
		{nights, "2027-02-07T14:30:00Z", ""},                     // Sunday 22:30
		{hours, "2027-03-29T07:00:00Z", "2027-03-29T15:00:00Z"},  // 09:00 in summer time
		{hours, "2027-03-22T07:30:00Z", ""},                      // 08:30 in winter time
		{hours, "2027-03-30T10:00:00Z", ""},                      // Tuesday
	} {
		var p fault.Problems
		if c.window.check(&p, "freezes[0]"); len(p) > 0 {
			t.Fatalf("%s: %+v", c.window, p)
		}
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		until, held := c.window.holds(at)
		got := ""
		if held {
			got = until.UTC().Format(time.RFC3339)
		}
		if got != c.until {
			t.Errorf("%s at %s holds until %q, want %q", c.window, c.at, got, c.until)
		}
	}
	if once.passed(time.Date(2027, 2, 11, 15, 0, 0, 0, time.UTC)) || !once.passed(time.Date(2027, 2, 11, 16, 0, 0, 0, time.UTC)) || nights.passed(time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Error("passed is wrong")
	}
}

func TestAFreezeWindowWithMistakes(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]FreezeWindow{
		"no zone":          {From: "2027-02-05T00:00", To: "2027-02-12T00:00", Zone: "CST", Reason: "test"},
		"no reason":        {From: "2027-02-05T00:00", To: "2027-02-12T00:00", Zone: "UTC"},
		"backwards":        {From: "2027-02-12T00:00", To: "2027-02-05T00:00", Zone: "UTC", Reason: "test"},
		"a day of none":    {From: "22:00", To: "06:00", Zone: "UTC", Weekdays: []string{"friday"}, Reason: "test"},
		"a time of day":    {From: "22:00", To: "06:00", Zone: "UTC", Reason: "test"},
		"a day every week": {From: "2027-02-05T00:00", To: "2027-02-12T00:00", Zone: "UTC", Weekdays: []string{"fri"}, Reason: "test"},
		"does not exist":   {From: "2027-03-28T02:30", To: "2027-03-28T05:00", Zone: "Europe/Berlin", Reason: "test"},
	} {
		var p fault.Problems
		if f.check(&p, "freezes[0]"); len(p) == 0 {
			t.Errorf("%s: no problem", name)
		}
	}
}

// e54: Berlin's clocks at both changes, and zones without any.
func TestZoned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"2027-03-28T01:59 Europe/Berlin", "2027-03-28T00:59:00Z"},
		{"2027-03-28T02:00 Europe/Berlin", ""},
		{"2027-03-28T02:59 Europe/Berlin", ""},
		{"2027-03-28T03:00 Europe/Berlin", "2027-03-28T01:00:00Z"},
		{"2027-10-31T01:59 Europe/Berlin", "2027-10-30T23:59:00Z"},
		{"2027-10-31T02:00 Europe/Berlin", ""},
		{"2027-10-31T03:00 Europe/Berlin", "2027-10-31T02:00:00Z"},
		{"2027-10-31T02:30+02:00 Europe/Berlin", "2027-10-31T00:30:00Z"},
		{"2027-10-31T02:30+01:00 Europe/Berlin", "2027-10-31T01:30:00Z"},
		{"2027-10-31T02:30+03:00 Europe/Berlin", ""},
		{"2027-02-05T02:30 Asia/Shanghai", "2027-02-04T18:30:00Z"},
		{"2027-02-05T02:30 UTC", "2027-02-05T02:30:00Z"},
		{"2027-04-04T01:45 Australia/Lord_Howe", ""}, // its clocks go back by half an hour
		{"2027-02-05T02:30 Local", ""},
		{"2027-02-05T02:30", ""},
		{"", ""},
	} {
		at, _, err := zoned(c.text)
		got := ""
		if err == nil {
			got = at.Format(time.RFC3339)
		}
		if got != c.want {
			t.Errorf("%q is %q (%v), want %q", c.text, got, err, c.want)
		}
	}
}
