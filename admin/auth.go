package admin

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humaecho"
	"github.com/labstack/echo/v4"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
)

// actorKey is where admit leaves who asks.
type actorKey struct{}

// actorOf is who asks. Every operation passes admit first, so there is always one,
// but where somebody signs in.
func actorOf(ctx context.Context) actions.Actor {
	actor, _ := ctx.Value(actorKey{}).(actions.Actor)
	return actor
}

// signIn is the one operation that needs nobody.
const signIn = "sign-in"

// ownOperations are what somebody may do who has to change their password first.
var ownOperations = map[string]bool{"who-am-i": true, "sign-out": true, "own-account": true}

// admit lets an operation through when the bearer token or the session is known and
// its roles may do it. Deny is the default: an operation that no role may do admits
// nobody.
func (a *API) admit(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		op := ctx.Operation()
		ctx = huma.WithContext(ctx, actions.Patient(ctx.Context()))
		if op.OperationID == signIn {
			next(ctx)
			return
		}
		actor, err := a.identify(ctx)
		if err == nil {
			err = actor.May(op.OperationID)
			a.noteRefusal(ctx.Context(), op.OperationID, actor, err)
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

// identify finds who asks. Whoever shows a token means it: a session beside it does
// not count.
func (a *API) identify(ctx huma.Context) (actions.Actor, error) {
	header := ctx.Header("Authorization")
	if header == "" && a.signin != nil {
		return a.visitor(ctx)
	}
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return actions.Actor{}, noToken()
	}
	return a.do.Authenticate(ctx.Context(), token)
}

func noToken() error {
	return fault.New(fault.Unauthenticated, "no_token", "this needs a token").
		WithHint("send Authorization: Bearer dsp_…; the first one was printed when dispatch first started")
}

// visitor is who has signed in.
func (a *API) visitor(ctx huma.Context) (actions.Actor, error) {
	visitor, err := a.signin.Visitor(humaecho.Unwrap(ctx).Request().WithContext(ctx.Context()))
	if fault.CodeOf(err) == "signed_out" {
		return actions.Actor{}, noToken()
	}
	if err == nil && visitor.MustChange && !ownOperations[ctx.Operation().OperationID] {
		err = fault.New(fault.Denied, "must_change", "%s has a one-time password, or lacks a second factor", visitor.Name).
			WithHint("open /account in a browser and change that first")
	}
	return visitor.Actor, err
}

// crossOrigin refuses writes that another site may have sent, to pages and to the API.
func (a *API) crossOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if a.signin != nil {
			if err := a.signin.Check(c.Request()); err != nil {
				return err
			}
		}
		return next(c)
	}
}

// Browser is the connection of whoever signs in or out: a session is a cookie.
type Browser struct {
	w http.ResponseWriter
	r *http.Request
}

// Resolve keeps the connection. huma calls it before the operation.
func (b *Browser) Resolve(ctx huma.Context) []error {
	c := humaecho.Unwrap(ctx)
	b.w, b.r = c.Response(), c.Request().WithContext(ctx.Context())
	return nil
}
