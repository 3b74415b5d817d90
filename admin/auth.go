package admin

import (
	"context"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
)

// actorKey is where admit leaves who asks.
type actorKey struct{}

// actorOf is who asks. Every operation passes admit first, so there is always one.
func actorOf(ctx context.Context) actions.Actor {
	actor, _ := ctx.Value(actorKey{}).(actions.Actor)
	return actor
}

// admit lets an operation through when the bearer token is known and its role may
// do it. Deny is the default: an operation that no role may do admits nobody.
func (a *API) admit(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		op := ctx.Operation()
		ctx = huma.WithContext(ctx, actions.Patient(ctx.Context()))
		actor, err := a.identify(ctx)
		if err == nil {
			err = actor.May(op.OperationID)
		}
		if err == nil {
			next(huma.WithValue(ctx, actorKey{}, actor))
			return
		}
		f := a.refuse(ctx.Context(), op.OperationID, err)
		for name, values := range f.GetHeaders() {
			ctx.SetHeader(name, values[0])
		}
		ctx.SetHeader("Content-Type", problemType)
		ctx.SetStatus(f.Status)
		_ = api.Marshal(ctx.BodyWriter(), "application/json", f) // the caller has gone
	}
}

func (a *API) identify(ctx huma.Context) (actions.Actor, error) {
	scheme, token, _ := strings.Cut(ctx.Header("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return actions.Actor{}, fault.New(fault.Unauthenticated, "no_token", "this needs a token").
			WithHint("send Authorization: Bearer dsp_…; the first one was printed when dispatch first started")
	}
	return a.do.Authenticate(ctx.Context(), token)
}
