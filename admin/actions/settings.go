package actions

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// Settings are what people tune while the service runs. What would let one person
// loosen every rule stands at start: suffixes, four eyes, keys.
type Settings struct {
	Safety    SafetySettings `json:"safety"`
	Freezes   []FreezeWindow `json:"freezes" doc:"times without normal changes; emergencies go on"`
	Retention Retention      `json:"retention"`
}

// SafetySettings are the numbers of the safety rules.
type SafetySettings struct {
	MaxMovePercent        int              `json:"max_move_percent" minimum:"1" maximum:"50" doc:"of an app's users that one person may move in a step"`
	FlapWait              release.Duration `json:"flap_wait" doc:"between two swaps of a region"`
	FlapWaitAfterTwo      release.Duration `json:"flap_wait_after_two" doc:"after two swaps within flap_window"`
	FlapWindow            release.Duration `json:"flap_window"`
	EmergenciesPerPerson  int              `json:"emergencies_per_person" minimum:"1" maximum:"100" doc:"within emergency_window; then a second person goes on"`
	EmergencyWindow       release.Duration `json:"emergency_window"`
	ProbeFresh            release.Duration `json:"probe_fresh" doc:"how old a probe may be that speaks for a swap's target"`
	ProbeQuorum           int              `json:"probe_quorum" minimum:"1" maximum:"100" doc:"probers that must see the target up; of fewer probers, all"`
	MinUsableRegions      int              `json:"min_usable_regions" minimum:"1" maximum:"100" doc:"regions of an app that must take new sessions"`
	RemoveFromListPercent int              `json:"remove_from_list_percent" minimum:"1" maximum:"100" doc:"of a list's ids that one person may remove at once"`
	ReviewAfter           release.Duration `json:"review_after" doc:"how long an emergency may wait for a second person's signature before it alarms"`
}

// Retention is how long observations are kept.
type Retention struct {
	CountsDays int `json:"counts_days" minimum:"1" maximum:"3650" doc:"counters of requests"`
}

// DefaultSettings are those of an installation that never changed them.
func DefaultSettings() Settings {
	return Settings{
		Safety: SafetySettings{
			MaxMovePercent:        10,
			FlapWait:              release.Duration(5 * time.Second),
			FlapWaitAfterTwo:      release.Duration(time.Minute),
			FlapWindow:            release.Duration(10 * time.Minute),
			EmergenciesPerPerson:  3,
			EmergencyWindow:       release.Duration(10 * time.Minute),
			ProbeFresh:            release.Duration(30 * time.Second),
			ProbeQuorum:           2,
			MinUsableRegions:      1,
			RemoveFromListPercent: 10,
			ReviewAfter:           release.Duration(24 * time.Hour),
		},
		Freezes:   []FreezeWindow{},
		Retention: Retention{CountsDays: 90},
	}
}

// settingsID is the id of the one paper of settings.
const settingsID = "settings"

// settings are those in force.
func (a *Actions) settings(ctx context.Context) (Settings, error) {
	s, _, err := a.settingsPaper(ctx)
	return s, err
}

// settingsPaper is the settings in force and the paper that holds them, whose Rev
// is 0 when nobody changed any. A field that a newer version added has its default.
func (a *Actions) settingsPaper(ctx context.Context) (Settings, ledger.Paper, error) {
	s := DefaultSettings()
	p, err := a.Ledger.Paper(ctx, ledger.Settings, settingsID)
	if fault.KindOf(err) == fault.NotFound {
		return s, ledger.Paper{Kind: ledger.Settings, ID: settingsID}, nil
	}
	if err != nil {
		return Settings{}, ledger.Paper{}, fmt.Errorf("read settings: %w", err)
	}
	if err := json.Unmarshal(p.Body, &s); err != nil {
		return Settings{}, ledger.Paper{}, fmt.Errorf("read settings: %w", err)
	}
	return s, p, nil
}
