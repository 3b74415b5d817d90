package actions

import (
	"context"
	"slices"
	"strconv"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// MaxTokenLife is the longest that a token may last.
const MaxTokenLife = 90 * 24 * time.Hour

// NewToken describes a token to make.
type NewToken struct {
	Name string
	Role string
	Life time.Duration // at most MaxTokenLife
}

// Tokens are all tokens without their secrets.
func (a *Actions) Tokens(ctx context.Context) ([]ledger.Token, error) { return a.Ledger.Tokens(ctx) }

// CreateToken makes a token. Its secret is in the answer and nowhere else.
func (a *Actions) CreateToken(ctx context.Context, w Write, n NewToken) (ledger.Token, string, error) {
	var p fault.Problems
	if !slices.Contains(AllRoles(), n.Role) {
		p.Addf("role", "%q is no role", n.Role)
	}
	if n.Life <= 0 || n.Life > MaxTokenLife {
		p.Addf("life", "must be more than nothing and at most %d days", MaxTokenLife/(24*time.Hour))
	}
	if err := p.Err("bad_token_request", "the token cannot be made"); err != nil {
		return ledger.Token{}, "", err
	}
	if n.Role == Administrator && !w.Actor.Is(Administrator) {
		return ledger.Token{}, "", fault.New(fault.Denied, "administrators_only", "only an administrator may make an administrator's token").WithHint("ask one")
	}
	made, err := remembered(ctx, a, w, asked{"token_create", n}, func(w Write) (m madeToken, err error) {
		if err := w.remember(m); err != nil { // a secret is not kept
			return m, err
		}
		m.Token, m.secret, err = a.Ledger.CreateToken(ctx, ledger.NewToken{Type: "api", Name: n.Name, Role: n.Role, Expires: a.now().Add(n.Life)},
			w.change("token_create", n.Name))
		return m, err
	})
	if err == nil && made.secret == "" {
		err = fault.New(fault.Conflict, "token_made", "this request has made its token; the secret was in the first answer only").
			WithHint("if that is lost: revoke the token, GET /api/v1/tokens lists it, and make another under a new idempotency key")
	}
	return made.Token, made.secret, err
}

type madeToken struct {
	Token  ledger.Token
	secret string
}

// RevokeToken ends a token at once.
func (a *Actions) RevokeToken(ctx context.Context, w Write, id string) error {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return fault.New(fault.NotFound, "unknown_token", "no token %q", id).WithHint("GET /api/v1/tokens lists their ids")
	}
	_, err = remembered(ctx, a, w, asked{"token_revoke", n}, func(w Write) (struct{}, error) {
		if err := w.remember(struct{}{}); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, a.Ledger.RevokeToken(ctx, n, w.change("token_revoke", id))
	})
	return err
}

// Authenticate finds who holds a token.
func (a *Actions) Authenticate(ctx context.Context, secret string) (Actor, error) {
	t, err := a.Ledger.Authenticate(ctx, secret)
	if err != nil {
		return Actor{}, err
	}
	return Actor{Name: t.Name, Roles: []string{t.Role}}, nil
}
