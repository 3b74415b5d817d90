package admin

import (
	"context"
	"path"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/internal/fault"
)

// schemas names the types of the OpenAPI document. Those of the inner layer have the
// name of their package before their own: there are other instances, rules and
// explanations.
func schemas() huma.Registry {
	return huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		name, of := huma.DefaultSchemaNamer(t, hint), t
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if !strings.Contains(of.PkgPath(), "/discovery") {
			return name
		}
		folder := path.Base(of.PkgPath())
		return strings.ToUpper(folder[:1]) + folder[1:] + name
	})
}

type directoryOutput struct{ Body *directory.View }

func (a *API) directory(ctx context.Context, _ *struct{}) (*directoryOutput, error) {
	v, err := a.do.Directory(ctx, actorOf(ctx))
	return &directoryOutput{Body: v}, err
}

type callMapOutput struct{ Body actions.CallMap }

func (a *API) callMap(ctx context.Context, _ *struct{}) (*callMapOutput, error) {
	m, err := a.do.CallMap(ctx, actorOf(ctx))
	return &callMapOutput{Body: m}, err
}

type verdictInput struct {
	Keyed
	Body struct {
		Reasoned
		actions.VerdictInput
	}
}

func (a *API) judge(ctx context.Context, in *verdictInput) (*struct{}, error) {
	return nil, a.do.JudgeInstance(ctx, in.by(ctx, in.Body.Reasoned), in.Body.VerdictInput)
}

type rulesOutput struct{ Body actions.RulesView }

func (a *API) rules(ctx context.Context, _ *struct{}) (*rulesOutput, error) {
	v, err := a.do.RegionRules(ctx, actorOf(ctx))
	return &rulesOutput{Body: v}, err
}

type lintRulesInput struct{ Body actions.RulesInput }

type rulesCheckOutput struct{ Body actions.RulesCheck }

func (a *API) lintRules(ctx context.Context, in *lintRulesInput) (*rulesCheckOutput, error) {
	check, err := a.do.LintRules(ctx, actorOf(ctx), in.Body)
	return &rulesCheckOutput{Body: check}, err
}

type applyRulesInput struct {
	Keyed
	Body struct {
		Reasoned
		actions.RulesInput
	}
}

type rulesAppliedOutput struct{ Body actions.RulesApplied }

func (a *API) applyRules(ctx context.Context, in *applyRulesInput) (*rulesAppliedOutput, error) {
	out, err := a.do.ApplyRules(ctx, in.by(ctx, in.Body.Reasoned), in.Body.RulesInput)
	return &rulesAppliedOutput{Body: out}, err
}

type approveRulesInput struct {
	Keyed
	Body struct {
		Reasoned
		actions.RulesInput
		Digest string `json:"digest" maxLength:"64" doc:"that POST /rules/lint showed for these files"`
	}
}

func (a *API) approveRules(ctx context.Context, in *approveRulesInput) (*rulesCheckOutput, error) {
	check, err := a.do.ApproveRules(ctx, in.by(ctx, in.Body.Reasoned), in.Body.RulesInput, in.Body.Digest)
	return &rulesCheckOutput{Body: check}, err
}

type switchRulesInput struct {
	Keyed
	Body struct {
		Reasoned
		Confirm string `json:"confirm,omitempty" maxLength:"200" example:"cn-hangzhou" doc:"typed by a person: the region; with --env the environment and a slash before it. A refusal says what is wanted"`
		Direct  bool   `json:"direct" doc:"true: callers skip rules, weights and versions, and keep cluster and env equal to their own; false: rules count again"`
	}
}

func (a *API) switchRules(ctx context.Context, in *switchRulesInput) (*rulesAppliedOutput, error) {
	w := in.by(ctx, in.Body.Reasoned)
	w.Confirm = in.Body.Confirm
	out, err := a.do.SwitchRules(ctx, w, in.Body.Direct)
	return &rulesAppliedOutput{Body: out}, err
}

type callInput struct {
	ID string `path:"id" maxLength:"200" doc:"of the decision: the record that the error of the call names"`
}

type callOutput struct{ Body actions.CallExplained }

func (a *API) explainCall(ctx context.Context, in *callInput) (*callOutput, error) {
	out, err := a.do.ExplainCall(ctx, actorOf(ctx), in.ID)
	return &callOutput{Body: out}, err
}

// noteRefusal writes down who wanted to publish rules without the role for it: rules
// come from Git, and a hand that tries is worth a look.
func (a *API) noteRefusal(ctx context.Context, operation string, actor actions.Actor, err error) {
	if operation == "apply-rules" && fault.CodeOf(err) == "role" {
		a.do.RulesRefused(ctx, actor, err)
	}
}
