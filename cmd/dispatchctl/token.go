package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

type tokenCmd struct {
	List   tokenListCmd   `cmd:"" default:"withargs" help:"Tokens, never their secrets."`
	Create tokenCreateCmd `cmd:"" help:"Make a token; its secret is printed this once."`
	Revoke tokenRevokeCmd `cmd:"" help:"End a token at once."`
}

type tokenView struct {
	ID       int64     `json:"id"`
	Name     string    `json:"name"`
	Role     string    `json:"role"`
	Expires  time.Time `json:"expires"`
	Revoked  time.Time `json:"revoked"`
	LastUsed time.Time `json:"last_used"`
}

type tokenListCmd struct{}

// Run prints a line for each token.
func (*tokenListCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Tokens []tokenView `json:"tokens"`
	}
	answer, err := p.get(ctx, "/tokens", &v)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "NAME", "ROLE", "EXPIRES", "LAST USED", "REVOKED"}}
	when := func(t time.Time, none string) string {
		if t.IsZero() {
			return none
		}
		return moment(t)
	}
	for _, t := range v.Tokens {
		rows = append(rows, []string{strconv.FormatInt(t.ID, 10), t.Name, t.Role, when(t.Expires, "never"), when(t.LastUsed, "never"), when(t.Revoked, "")})
	}
	return p.showRows(answer, rows, "no tokens")
}

type tokenCreateCmd struct {
	Name string `arg:"" help:"The person or pipeline that holds it; stands in the audit trail."`
	Role string `arg:"" enum:"viewer,list-manager,release-engineer,pipeline,on-call,approver,user-admin,break-glass,administrator" help:"What it may do."`
	Days int    `default:"90" help:"Until it expires, at most 90."`
	change
}

// Run prints the secret, which nobody can see again.
func (c *tokenCreateCmd) Run(ctx context.Context, p *program) error {
	var v struct {
		Token  tokenView `json:"token"`
		Secret string    `json:"secret"`
	}
	answer, err := c.send(ctx, p, deed{what: fmt.Sprintf("A token for %s with the role %s", c.Name, c.Role), word: c.Name, path: "/tokens",
		body: map[string]any{"name": c.Name, "role": c.Role, "days": c.Days, "reason": c.Reason}}, &v)
	if err != nil {
		return err
	}
	return p.show(answer, printable(v.Secret+"\n"))
}

type tokenRevokeCmd struct {
	ID string `arg:"" help:"Its id; dispatchctl token lists them."`
	change
}

// Run ends the token.
func (c *tokenRevokeCmd) Run(ctx context.Context, p *program) error {
	_, err := c.send(ctx, p, deed{method: http.MethodDelete, what: "Token " + c.ID + " ends", word: c.ID,
		path: "/tokens/" + url.PathEscape(c.ID) + "?" + url.Values{"reason": {c.Reason}}.Encode()}, nil)
	if err != nil {
		return err
	}
	return p.show([]byte("{}"), "revoked\n")
}
