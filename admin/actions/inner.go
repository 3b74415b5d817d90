package actions

import (
	"context"
	"time"

	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

// Inner is the region's directory, which this node keeps.
type Inner interface {
	View() (v *directory.View, changed <-chan struct{})
	Recheck()
}

// Directory is what the registries of the region say now, and what was made of it.
func (a *Actions) Directory(ctx context.Context, actor Actor) (*directory.View, error) {
	panic("unbuilt")
}

// CallMap says who may call whom: for each service and environment the rule that
// counts and the parts of its versions.
type CallMap struct {
	Region  string            `json:"region"`
	Number  uint64            `json:"number" doc:"release of the rules; 0: there are none"`
	Direct  bool              `json:"direct" doc:"the kill switch is thrown: rules do not count"`
	Partial map[string]string `json:"partial,omitempty" doc:"registries that are away, and why"`
	Cells   []MapCell         `json:"cells" doc:"by service, then env"`
	Calls   []directory.Call  `json:"calls,omitempty" doc:"who asked for whose instances"`
}

// MapCell is a service in one environment.
type MapCell struct {
	Service  string       `json:"service"`
	Env      string       `json:"env"`
	Rule     *rules.Rule  `json:"rule,omitempty" doc:"none: callers reach all versions in their own cluster and region"`
	Shadowed []string     `json:"shadowed,omitempty"`
	Group    string       `json:"group,omitempty" doc:"prefix of the group that owns the rule"`
	Key      bool         `json:"key" doc:"its rules need a second person"`
	Counts   route.Counts `json:"counts"`
	Versions []MapVersion `json:"versions"`
	Problem  string       `json:"problem,omitempty" doc:"why calls fail now"`
}

// MapVersion is a version's part of a cell.
type MapVersion struct {
	Version   string  `json:"version"`
	Share     float64 `json:"share" doc:"of 1, of new calls now"`
	Instances int     `json:"instances"`
	Serving   int     `json:"serving" doc:"with a weight above 0"`
}

// CallMap draws the map of the region.
func (a *Actions) CallMap(ctx context.Context, actor Actor) (CallMap, error) { panic("unbuilt") }

// RulesView is the set that callers of the region follow.
type RulesView struct {
	Region  string    `json:"region"`
	Number  uint64    `json:"number" doc:"0: nothing was published yet"`
	By      string    `json:"by,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Reason  string    `json:"reason,omitempty"`
	Set     rules.Set `json:"set"`
}

// RegionRules are those that callers of the region follow now.
func (a *Actions) RegionRules(ctx context.Context, actor Actor) (RulesView, error) { panic("unbuilt") }

// RulesInput is a folder of rules.
type RulesInput struct {
	Files []rules.File `json:"files" doc:"all rules of the region: what is absent is gone"`
	Base  uint64       `json:"base,omitempty" doc:"the release that the author saw; 0: whatever is newest"`
	// Delete says that rules may go: a folder that lost files by accident takes none away.
	Delete bool `json:"delete,omitempty" doc:"rules that the files lack are taken away; without it that is an error"`
}

// RulesCheck is what publishing would do.
type RulesCheck struct {
	Region   string             `json:"region"`
	Base     uint64             `json:"base" doc:"the newest release, which the changes are against"`
	Changes  []rules.Difference `json:"changes"`
	Digest   string             `json:"digest" doc:"of set and base: what a second person signs"`
	Needs    []string           `json:"needs,omitempty" doc:"key services among the changes, which a second person must approve"`
	Approved string             `json:"approved,omitempty" doc:"who signed this digest"`
	Warnings []fault.Problem    `json:"warnings,omitempty"`
}

// LintRules checks files against form and directory and says what they would change.
// Problems are an error that lists all of them.
func (a *Actions) LintRules(ctx context.Context, actor Actor, in RulesInput) (RulesCheck, error) {
	panic("unbuilt")
}

// ApplyRules publishes files for the region, for all callers at once.
func (a *Actions) ApplyRules(ctx context.Context, w Write, in RulesInput) (RulesApplied, error) {
	panic("unbuilt")
}

// RulesApplied says what publishing did. Number is 0 when nothing differs.
type RulesApplied struct {
	Number  uint64             `json:"number"`
	Changes []rules.Difference `json:"changes"`
}

// ApproveRules signs what LintRules showed, for ApplyRules by somebody else.
func (a *Actions) ApproveRules(ctx context.Context, w Write, in RulesInput, digest string) (RulesCheck, error) {
	panic("unbuilt")
}

// SwitchRules throws the kill switch of the region, or takes it back.
func (a *Actions) SwitchRules(ctx context.Context, w Write, direct bool) (RulesApplied, error) {
	panic("unbuilt")
}

// VerdictInput is what a person decides about one entry.
type VerdictInput struct {
	Service string `json:"service"`
	ID      string `json:"id"`
	// Address and Started must be what the person saw.
	Address string    `json:"address"`
	Started time.Time `json:"started"`
	Do      string    `json:"do" enum:"accept,refuse,isolate,lift"`
}

// JudgeInstance accepts or refuses an entry of the queue, isolates an instance or lifts that.
func (a *Actions) JudgeInstance(ctx context.Context, w Write, in VerdictInput) error {
	panic("unbuilt")
}

// CallExplained is why a call went where it went.
type CallExplained struct {
	Record      wire.Record        `json:"record"`
	Explanation *route.Explanation `json:"explanation,omitempty"`
	// Standing is reproduced when the same table and draw choose the same again, and
	// "record only: table expired" when the table is kept no longer.
	Standing string `json:"standing" enum:"reproduced,differs,record only: table expired,record only: chosen by configuration"`
}

// ExplainCall finds the record of a pick and makes the pick again.
func (a *Actions) ExplainCall(ctx context.Context, actor Actor, id string) (CallExplained, error) {
	panic("unbuilt")
}
