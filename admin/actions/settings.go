package actions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// Settings are what people tune while the service runs. What would let one person
// loosen every rule stands at start: suffixes, four eyes, keys.
type Settings struct {
	Safety  SafetySettings `json:"safety"`
	Freezes []FreezeWindow `json:"freezes" maxItems:"100" doc:"times without normal changes; emergencies go on"`
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
		Freezes: []FreezeWindow{},
	}
}

// SettingsView is the settings in force and what waits for a second person.
type SettingsView struct {
	Rev      uint64            `json:"rev" doc:"of the settings, for If-Match"`
	Settings Settings          `json:"settings"`
	Proposal *SettingsProposal `json:"proposal,omitempty"`
	Changed  time.Time         `json:"changed,omitzero"`
	Suffixes string            `json:"suffixes" doc:"below which every host lies; only --allowed-suffixes at start changes them"`
	FourEyes bool              `json:"four_eyes" doc:"whether two people are two; only --four-eyes at start changes it"`
}

// SettingsProposal is a change that loosens a rule.
type SettingsProposal struct {
	Settings Settings `json:"settings"`
	By       string   `json:"by"`
	Reason   string   `json:"reason"`
	Looser   []string `json:"looser" doc:"what is loosened, and how"`
	Digest   string   `json:"digest" doc:"what a second person signs"`
}

// settingsID is the id of the one paper of settings.
const settingsID = "settings"

// The states of the settings' paper.
const (
	settingsInForce  = "in_force"
	settingsProposed = "submitted"
)

// settingsBody is what the paper of settings holds.
type settingsBody struct {
	Settings Settings          `json:"settings"`
	Proposal *SettingsProposal `json:"proposal,omitempty"`
}

// settings are those in force.
func (a *Actions) settings(ctx context.Context) (Settings, error) {
	body, _, err := a.settingsPaper(ctx)
	return body.Settings, err
}

// settingsPaper is the settings in force and the paper that holds them, whose Rev
// is 0 when nobody changed any. A field that a newer version added has its default.
func (a *Actions) settingsPaper(ctx context.Context) (settingsBody, ledger.Paper, error) {
	body := settingsBody{Settings: DefaultSettings()}
	p, err := a.Ledger.Paper(ctx, ledger.Settings, settingsID)
	if fault.KindOf(err) == fault.NotFound {
		return body, ledger.Paper{Kind: ledger.Settings, ID: settingsID}, nil
	}
	if err != nil {
		return body, ledger.Paper{}, fmt.Errorf("read settings: %w", err)
	}
	if err := json.Unmarshal(p.Body, &body); err != nil {
		return body, ledger.Paper{}, fmt.Errorf("read settings: %w", err)
	}
	return body, p, nil
}

// Settings are the settings in force and what waits for a second person.
func (a *Actions) Settings(ctx context.Context) (SettingsView, error) {
	body, p, err := a.settingsPaper(ctx)
	if err != nil {
		return SettingsView{}, err
	}
	return SettingsView{Rev: p.Rev, Settings: body.Settings, Proposal: body.Proposal, Changed: p.Changed,
		Suffixes: a.Suffixes.String(), FourEyes: a.FourEyes}, nil
}

// SaveSettings changes the settings that the author saw at the revision. What
// loosens a rule waits for a second person; until then the old ones hold.
func (a *Actions) SaveSettings(ctx context.Context, w Write, rev uint64, s Settings) (SettingsView, error) {
	if s.Freezes == nil {
		s.Freezes = []FreezeWindow{}
	}
	if err := s.check(); err != nil {
		return SettingsView{}, err
	}
	_, err := remembered(ctx, a, w, asked{"settings_save", []any{rev, s}}, func(w Write) (struct{}, error) {
		body, p, err := a.settingsPaper(ctx)
		if err != nil {
			return struct{}{}, err
		}
		if p.Rev != rev {
			return struct{}{}, fault.New(fault.Conflict, "stale_paper", "the settings were changed since you looked: they are at revision %d, you saw %d", p.Rev, rev).
				WithHint("look at them again, then make the change")
		}
		action := "settings_save"
		p.State = settingsInForce
		was := body.Settings
		body = settingsBody{Settings: s}
		if looser := s.looserThan(was, a.now()); len(looser) > 0 && a.FourEyes {
			action, p.State = "settings_propose", settingsProposed
			body = settingsBody{Settings: was, Proposal: &SettingsProposal{Settings: s, By: w.Actor.Name, Reason: w.Reason, Looser: looser}}
			digest, err := settingsDigest(rev, s)
			if err != nil {
				return struct{}{}, err
			}
			body.Proposal.Digest = digest.String()
		}
		return struct{}{}, a.writeSettings(ctx, w, action, p, body)
	})
	if err != nil {
		return SettingsView{}, err
	}
	return a.Settings(ctx)
}

// writeSettings saves the paper, and says in the audit trail what the settings were and are.
func (a *Actions) writeSettings(ctx context.Context, w Write, action string, p ledger.Paper, body settingsBody) (err error) {
	was := p.Body
	if p.Body, err = json.Marshal(body); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	if err := w.remember(struct{}{}); err != nil {
		return err
	}
	c := w.change(action, settingsID)
	if c.Details, err = json.Marshal(map[string]json.RawMessage{"before": was, "after": p.Body}); err != nil {
		return fmt.Errorf("write audit details of settings: %w", err)
	}
	_, err = a.Ledger.SavePaper(ctx, p, c)
	return err
}

// ApproveSettings puts the proposal with the digest in force.
func (a *Actions) ApproveSettings(ctx context.Context, w Write, digest string) (SettingsView, error) {
	_, err := remembered(ctx, a, w, asked{"settings_approve", digest}, func(w Write) (struct{}, error) {
		body, p, err := a.settingsPaper(ctx)
		if err != nil {
			return struct{}{}, err
		}
		if body.Proposal == nil || body.Proposal.Digest != digest {
			return struct{}{}, fault.New(fault.Conflict, "stale_approval", "the proposal is another one than you saw").WithHint("look at it again")
		}
		if err := a.another(ctx, w.Actor, fault.Textf("the settings"), body.Proposal.By); err != nil {
			return struct{}{}, err
		}
		signed, err := settingsDigest(p.Rev-1, body.Proposal.Settings)
		if err != nil {
			return struct{}{}, err
		}
		// The signature comes first. Whoever signed and was cut off signs again.
		err = a.Ledger.Approve(ctx, ledger.Approval{Kind: ledger.Settings, ID: settingsID, Digest: signed, Author: body.Proposal.By},
			ledger.Change{By: w.Actor.Name, Reason: w.Reason, Action: "settings_sign", Target: settingsID})
		if err != nil && fault.CodeOf(err) != "already_approved" {
			return struct{}{}, err
		}
		p.State = settingsInForce
		return struct{}{}, a.writeSettings(ctx, w, "settings_approve", p, settingsBody{Settings: body.Proposal.Settings})
	})
	if err != nil {
		return SettingsView{}, err
	}
	return a.Settings(ctx)
}

// settingsDigest is what a second person signs: the settings, and what they follow.
func settingsDigest(rev uint64, s Settings) (release.Digest, error) {
	text, err := json.Marshal([]any{rev, s})
	if err != nil {
		return release.Digest{}, fmt.Errorf("write settings: %w", err)
	}
	return release.DigestOf(text), nil
}

// check says everything that is wrong with the settings.
func (s Settings) check() error {
	var p fault.Problems
	for _, n := range s.Safety.numbers() {
		if n.value < n.least || n.value > n.most {
			p.Addf("safety."+n.name, "%d is not between %d and %d", n.value, n.least, n.most)
		}
	}
	for _, d := range s.Safety.durations() {
		if d.value < time.Second || d.value > maxSetting {
			p.Addf("safety."+d.name, "%s is not between 1s and %s", release.Duration(d.value), release.Duration(maxSetting))
		}
	}
	for i, f := range s.Freezes {
		f.check(&p, fmt.Sprintf("freezes[%d]", i))
	}
	return p.Err("bad_settings", "the settings have mistakes; nothing was changed")
}

// maxSetting is the longest time that a setting may say.
const maxSetting = 30 * 24 * time.Hour

// looserThan says what of s is looser than before.
func (s Settings) looserThan(was Settings, now time.Time) (looser []string) {
	old := was.Safety.numbers()
	for i, n := range s.Safety.numbers() {
		if n.value != old[i].value && n.value > old[i].value == n.moreIsLooser {
			looser = append(looser, fmt.Sprintf("%s: %d → %d", n.name, old[i].value, n.value))
		}
	}
	before := was.Safety.durations()
	for i, d := range s.Safety.durations() {
		if d.value != before[i].value && d.value > before[i].value == d.moreIsLooser {
			looser = append(looser, fmt.Sprintf("%s: %s → %s", d.name, release.Duration(before[i].value), release.Duration(d.value)))
		}
	}
	for _, f := range was.Freezes {
		same := slices.ContainsFunc(s.Freezes, func(g FreezeWindow) bool { return g.String() == f.String() })
		if !same && !f.passed(now) {
			looser = append(looser, "freezes: "+f.String()+" goes")
		}
	}
	return looser
}

type numberSetting struct {
	name         string
	value        int
	least, most  int
	moreIsLooser bool
}

func (s SafetySettings) numbers() []numberSetting {
	return []numberSetting{
		{"max_move_percent", s.MaxMovePercent, 1, 50, true},
		{"emergencies_per_person", s.EmergenciesPerPerson, 1, 100, true},
		{"probe_quorum", s.ProbeQuorum, 1, 100, false},
		{"min_usable_regions", s.MinUsableRegions, 1, 100, false},
		{"remove_from_list_percent", s.RemoveFromListPercent, 1, 100, true},
	}
}

type durationSetting struct {
	name         string
	value        time.Duration
	moreIsLooser bool
}

func (s SafetySettings) durations() []durationSetting {
	return []durationSetting{
		{"flap_wait", time.Duration(s.FlapWait), false},
		{"flap_wait_after_two", time.Duration(s.FlapWaitAfterTwo), false},
		{"flap_window", time.Duration(s.FlapWindow), false},
		{"emergency_window", time.Duration(s.EmergencyWindow), false},
		{"probe_fresh", time.Duration(s.ProbeFresh), true},
		{"review_after", time.Duration(s.ReviewAfter), true},
	}
}
