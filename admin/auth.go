package admin

import (
	"context"
	"slices"
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

// admit lets an operation through when the bearer token is known and its role is
// one that the route table names. Deny is the default: an operation without
// roles admits nobody.
func (a *API) admit(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		actor, err := a.identify(ctx)
		if err == nil && !slices.Contains(rolesOf(ctx.Operation()), actor.Role) {
			err = fault.New(fault.Denied, "role", "%s may not %s", actor.Role, ctx.Operation().OperationID).
				WithHint("ask someone with one of these roles: " + rolesText(ctx.Operation()))
		}
		if err != nil {
			p := &problem{fault.BodyOf(err)}
			if fault.KindOf(err) == fault.Internal {
				a.log.ErrorContext(ctx.Context(), "admin request failed", "operation", ctx.Operation().OperationID, "err", err)
			}
			ctx.SetHeader("Content-Type", p.ContentType(""))
			if fault.KindOf(err) == fault.Unauthenticated {
				ctx.SetHeader("WWW-Authenticate", `Bearer realm="dispatch"`)
			}
			ctx.SetStatus(p.Status)
			_ = api.Marshal(ctx.BodyWriter(), "application/json", p) // the caller has gone
			return
		}
		next(huma.WithValue(ctx, actorKey{}, actor))
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
