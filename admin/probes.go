package admin

import (
	"context"

	"dispatch.example/dispatch/admin/actions"
)

type probesOutput struct{ Body actions.Health }

func (a *API) probes(ctx context.Context, _ *struct{}) (*probesOutput, error) {
	health, err := a.do.Health(ctx)
	return &probesOutput{Body: health}, err
}
