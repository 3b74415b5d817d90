package admin

import (
	"context"

	"dispatch.example/dispatch/admin/actions"
)

// Reasoned is what a change with a JSON body says about itself.
type Reasoned struct {
	Reason string `json:"reason" minLength:"3" maxLength:"500" pattern:"\\S" patternDescription:"more than white space" example:"sh-main burns" doc:"why; people read it in the audit trail"`
}

// Keyed is the header that makes a change safe to repeat.
type Keyed struct {
	Key string `header:"Idempotency-Key" maxLength:"128" doc:"the same key and request within a day give the same answer and change nothing again"`
}

func (k Keyed) by(ctx context.Context, s Reasoned) actions.Write {
	return actions.Write{Actor: actorOf(ctx), Reason: s.Reason, Key: k.Key}
}

// Confirmed is what an action says that reaches everybody at once.
type Confirmed struct {
	Confirm  string   `json:"confirm,omitempty" maxLength:"5000" example:"sh" doc:"typed by a person: the regions, REGION/CLUSTER or the policies of the targets with commas between them, freeze or unfreeze, release N; with --env the environment and a slash before it. A refusal says what is wanted"`
	Override []string `json:"override,omitempty" maxItems:"10" example:"[]" doc:"safety rules to go past, by name; needs the role break-glass"`
}

func (c Confirmed) by(w actions.Write) actions.Write {
	w.Confirm, w.Override = c.Confirm, c.Override
	return w
}

type emergencyInput struct {
	Keyed
	DryRun bool `query:"dry_run" doc:"answer what must be typed, the safety rules, the difference and who would move; change nothing"`
	Body   struct {
		Reasoned
		Confirmed
		actions.Emergency
	}
}

type emergencyOutput struct {
	ETag string `header:"ETag" doc:"number of the current release, for If-Match"`
	Body actions.EmergencyPreview
}

func (a *API) emergency(ctx context.Context, in *emergencyInput) (*emergencyOutput, error) {
	if in.DryRun {
		preview, err := a.do.PreviewEmergency(ctx, actorOf(ctx), in.Body.Emergency)
		return &emergencyOutput{Body: preview}, err
	}
	out, err := a.do.Emergency(ctx, in.Body.Confirmed.by(in.Keyed.by(ctx, in.Body.Reasoned)), in.Body.Emergency)
	if err != nil {
		return nil, err
	}
	return &emergencyOutput{ETag: etag(out.Release), Body: actions.EmergencyPreview{Outcome: out}}, nil
}

type reliveInput struct {
	Keyed
	N    uint64 `path:"n" doc:"number of the release whose document shall serve again; operational state stays"`
	Body struct {
		Reasoned
		Confirmed
	}
}

func (a *API) relive(ctx context.Context, in *reliveInput) (*outcome, error) {
	out, err := a.do.Relive(ctx, in.Body.Confirmed.by(in.Keyed.by(ctx, in.Body.Reasoned)), in.N)
	if err != nil {
		return nil, err
	}
	return outcomeOf(out), nil
}
