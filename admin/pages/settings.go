package pages

import (
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// settingsPage is the settings in force, and what was typed.
type settingsPage struct {
	actions.SettingsView
	Edit    bool
	Numbers []settingField
	Times   []settingTime
	Freezes string // one a line, as typed
	Counts  int    // days for which counts are kept
}

// settingField is one setting in a form: its name is that of the API.
type settingField struct {
	Name, Value string
	Now         string // in force
}

// settingTime is one that lasts: in a form it is written as the API has it.
type settingTime struct {
	Name, Value string
	Now         release.Duration // in force
}

// fields are the settings of a form, whole numbers first.
func fields(s, now actions.SafetySettings) (numbers []settingField, times []settingTime) {
	for _, n := range []struct {
		name   string
		is, in int
	}{
		{"max_move_percent", s.MaxMovePercent, now.MaxMovePercent},
		{"remove_from_list_percent", s.RemoveFromListPercent, now.RemoveFromListPercent},
		{"min_usable_regions", s.MinUsableRegions, now.MinUsableRegions},
		{"probe_quorum", s.ProbeQuorum, now.ProbeQuorum},
		{"emergencies_per_person", s.EmergenciesPerPerson, now.EmergenciesPerPerson},
	} {
		numbers = append(numbers, settingField{n.name, strconv.Itoa(n.is), strconv.Itoa(n.in)})
	}
	for _, d := range []struct {
		name   string
		is, in release.Duration
	}{
		{"emergency_window", s.EmergencyWindow, now.EmergencyWindow},
		{"flap_wait", s.FlapWait, now.FlapWait},
		{"flap_wait_after_two", s.FlapWaitAfterTwo, now.FlapWaitAfterTwo},
		{"flap_window", s.FlapWindow, now.FlapWindow},
		{"probe_fresh", s.ProbeFresh, now.ProbeFresh},
		{"review_after", s.ReviewAfter, now.ReviewAfter},
	} {
		times = append(times, settingTime{d.name, d.is.String(), d.in})
	}
	return numbers, times
}

// settingsPage lays the settings out, with the fields as they were typed.
func (v *visit) settingsPage(typed *actions.Settings) (settingsPage, error) {
	view, err := v.do.Settings(v.r.Context())
	if err != nil {
		return settingsPage{}, err
	}
	p := settingsPage{SettingsView: view, Edit: typed != nil || v.r.URL.Query().Has("edit"),
		Counts: int(ledger.CountsKept / (24 * time.Hour))}
	shown := view.Settings
	if typed != nil {
		shown = *typed
	}
	p.Numbers, p.Times = fields(shown.Safety, view.Settings.Safety)
	var lines []string
	for _, f := range shown.Freezes {
		lines = append(lines, freezeLine(f))
	}
	p.Freezes = strings.Join(lines, "\n")
	return p, nil
}

func (v *visit) settings() error {
	p, err := v.settingsPage(nil)
	if err != nil {
		return err
	}
	return v.show("settings", p)
}

func (v *visit) saveSettings() error {
	typed, err := v.typedSettings()
	if err == nil {
		var view actions.SettingsView
		if view, err = v.do.SaveSettings(v.r.Context(), v.write(), v.revision(), typed); err == nil && view.Proposal != nil {
			return v.done("/settings", "settings.said.proposed")
		}
	}
	if err == nil {
		return v.done("/settings", "settings.said.saved")
	}
	p, unread := v.settingsPage(&typed)
	if unread != nil {
		return err
	}
	if text := v.r.PostFormValue("freezes"); text != "" {
		p.Freezes = text
	}
	return v.refuse("settings", p, err)
}

func (v *visit) approveSettings() error {
	_, err := v.do.ApproveSettings(v.r.Context(), v.write(), v.r.PostFormValue("digest"))
	if err == nil {
		return v.done("/settings", "settings.said.approved")
	}
	p, unread := v.settingsPage(nil)
	if unread != nil {
		return err
	}
	return v.refuse("settings", p, err)
}

// typedSettings reads the form. What is no number or time is refused with its field.
func (v *visit) typedSettings() (s actions.Settings, err error) {
	var problems fault.Problems
	number := func(name string) int {
		n, err := strconv.Atoi(strings.TrimSpace(v.r.PostFormValue(name)))
		if err != nil {
			problems.Addf("safety."+name, "%q is no whole number", v.r.PostFormValue(name))
		}
		return n
	}
	lasting := func(name string) (d release.Duration) {
		if err := d.UnmarshalText([]byte(strings.TrimSpace(v.r.PostFormValue(name)))); err != nil {
			problems.Addf("safety."+name, "%q is no time: write 90s, 30m or 12h", v.r.PostFormValue(name))
		}
		return d
	}
	s.Safety = actions.SafetySettings{MaxMovePercent: number("max_move_percent"), FlapWait: lasting("flap_wait"),
		FlapWaitAfterTwo: lasting("flap_wait_after_two"), FlapWindow: lasting("flap_window"),
		EmergenciesPerPerson: number("emergencies_per_person"), EmergencyWindow: lasting("emergency_window"),
		ProbeFresh: lasting("probe_fresh"), ProbeQuorum: number("probe_quorum"), MinUsableRegions: number("min_usable_regions"),
		RemoveFromListPercent: number("remove_from_list_percent"), ReviewAfter: lasting("review_after")}
	s.Freezes = []actions.FreezeWindow{}
	for i, line := range strings.Split(strings.ReplaceAll(v.r.PostFormValue("freezes"), "\r\n", "\n"), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		f, ok := readFreeze(line)
		if !ok {
			problems.Addf("freezes", "line %d: write FROM TO ZONE [DAYS] REASON, such as 2027-02-05T00:00 2027-02-12T00:00 Asia/Shanghai spring festival", i+1)
			continue
		}
		s.Freezes = append(s.Freezes, f)
	}
	return s, problems.Err("bad_settings", "the settings have mistakes; nothing was changed")
}

// freezeLine is a window as a line of the form.
func freezeLine(f actions.FreezeWindow) string {
	days := ""
	if len(f.Weekdays) > 0 {
		days = strings.Join(f.Weekdays, ",") + " "
	}
	return f.From + " " + f.To + " " + f.Zone + " " + days + f.Reason
}

// readFreeze reads a line of the form. Days are written together: fri,sat.
func readFreeze(line string) (f actions.FreezeWindow, ok bool) {
	words := strings.Fields(line)
	if len(words) < 4 {
		return f, false
	}
	f.From, f.To, f.Zone = words[0], words[1], words[2]
	rest := words[3:]
	if !strings.Contains(f.From, "T") {
		f.Weekdays, rest = strings.Split(rest[0], ","), rest[1:]
	}
	f.Reason = strings.Join(rest, " ")
	return f, f.Reason != ""
}
