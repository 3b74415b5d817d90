package admin

import (
	"context"
	"strconv"

	"dispatch.example/dispatch/admin/actions"
)

type settingsOutput struct {
	ETag string `header:"ETag" doc:"revision of the settings, for If-Match"`
	Body actions.SettingsView
}

func settingsOf(v actions.SettingsView, err error) (*settingsOutput, error) {
	if err != nil {
		return nil, err
	}
	return &settingsOutput{ETag: `"` + strconv.FormatUint(v.Rev, 10) + `"`, Body: v}, nil
}

func (a *API) settings(ctx context.Context, _ *struct{}) (*settingsOutput, error) {
	return settingsOf(a.do.Settings(ctx))
}

type settingsInput struct {
	Keyed
	IfMatch string `header:"If-Match" example:"0" doc:"revision of the settings that the change was made from; 0 while nobody changed any"`
	Body    struct {
		Reasoned
		actions.Settings
	}
}

func (a *API) saveSettings(ctx context.Context, in *settingsInput) (*settingsOutput, error) {
	rev, err := ifMatch(in.IfMatch)
	if err != nil {
		return nil, err
	}
	return settingsOf(a.do.SaveSettings(ctx, in.by(ctx, in.Body.Reasoned), rev, in.Body.Settings))
}

type settingsSignInput struct {
	Keyed
	Body struct {
		Reasoned
		Signed
	}
}

func (a *API) approveSettings(ctx context.Context, in *settingsSignInput) (*settingsOutput, error) {
	return settingsOf(a.do.ApproveSettings(ctx, in.by(ctx, in.Body.Reasoned), in.Body.Digest))
}
