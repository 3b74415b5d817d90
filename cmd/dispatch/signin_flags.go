package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/internal/fault"
)

// signinFlags say how people sign in to the console.
type signinFlags struct {
	RequireTOTP bool `name:"require-totp" env:"DISPATCH_REQUIRE_TOTP" help:"Local accounts that can change more than lists need a second factor; without it they only get to add one."`

	OIDCIssuer           string   `name:"oidc-issuer" env:"DISPATCH_OIDC_ISSUER" placeholder:"URL" help:"Identity provider (OpenID Connect) that people sign in by, beside local accounts."`
	OIDCClientID         string   `name:"oidc-client-id" env:"DISPATCH_OIDC_CLIENT_ID" placeholder:"ID" help:"What the provider calls this console."`
	OIDCClientSecretFile string   `name:"oidc-client-secret-file" env:"DISPATCH_OIDC_CLIENT_SECRET_FILE" placeholder:"FILE" help:"The secret that goes with it."`
	OIDCRedirectURL      string   `name:"oidc-redirect-url" env:"DISPATCH_OIDC_REDIRECT_URL" placeholder:"URL" help:"Where the provider sends people back to: /login/callback of the console, as they reach it."`
	OIDCScopes           []string `name:"oidc-scopes" env:"DISPATCH_OIDC_SCOPES" default:"profile" placeholder:"NAME" help:"What is asked for beside openid; some providers give groups for a scope of that name."`
	OIDCGroupsClaim      string   `name:"oidc-groups-claim" env:"DISPATCH_OIDC_GROUPS_CLAIM" default:"groups" placeholder:"NAME" help:"Where the provider says somebody's groups."`
	OIDCRoles            []string `name:"oidc-roles" env:"DISPATCH_OIDC_ROLES" placeholder:"GROUP=ROLE" help:"What each group may do, read again at each sign-in. Who is in none of them may not in."`
}

// validate looks at what can be seen without the provider.
func (f *signinFlags) validate(p *fault.Problems) {
	given := f.OIDCClientID != "" || f.OIDCClientSecretFile != "" || f.OIDCRedirectURL != "" || len(f.OIDCRoles) > 0
	if f.OIDCIssuer == "" {
		if given {
			p.Addf("--oidc-issuer", "is missing; the other flags of --oidc need it")
		}
		return
	}
	groups, problems := f.groups()
	for _, problem := range problems {
		p.Addf("--oidc-roles", "%s", problem)
	}
	_, err := signin.NewProvider(f.options(groups, ""))
	if e, ok := errors.AsType[*fault.Error](err); ok && len(problems) == 0 {
		for _, problem := range e.Problems {
			p.Addf("--oidc-issuer", "%s: %s", problem.Path, problem.Detail)
		}
	}
}

// groups are the roles by group.
func (f *signinFlags) groups() (groups map[string][]string, problems []string) {
	groups = map[string][]string{}
	for _, pair := range f.OIDCRoles {
		i := strings.LastIndex(pair, "=") // a group may be a distinguished name
		if i < 1 || !slices.Contains(actions.AllRoles(), pair[i+1:]) {
			problems = append(problems, fmt.Sprintf("%q is not like ops=on-call; roles are %s", pair, strings.Join(actions.AllRoles(), ", ")))
			continue
		}
		groups[pair[:i]] = append(groups[pair[:i]], pair[i+1:])
	}
	return groups, problems
}

func (f *signinFlags) options(groups map[string][]string, secret string) signin.ProviderOptions {
	return signin.ProviderOptions{Issuer: f.OIDCIssuer, ClientID: f.OIDCClientID, ClientSecret: secret, RedirectURL: f.OIDCRedirectURL,
		Scopes: f.OIDCScopes, GroupsClaim: f.OIDCGroupsClaim, Roles: groups}
}

// provider is the identity provider; nil without one.
func (p *process) provider() (*signin.Provider, error) {
	f := p.cfg.SignIn
	if f.OIDCIssuer == "" {
		return nil, nil
	}
	secret := ""
	if f.OIDCClientSecretFile != "" {
		text, err := os.ReadFile(f.OIDCClientSecretFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-client-secret-file: %w", err)
		}
		secret = strings.TrimSpace(string(text))
	}
	groups, _ := f.groups() // Validate has looked
	opt := f.options(groups, secret)
	opt.Now = p.now
	return signin.NewProvider(opt)
}
