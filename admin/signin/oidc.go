package signin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
)

const (
	providerTime  = 5 * time.Second  // for one answer of the provider
	providerRetry = 10 * time.Second // between two attempts to find one that is down
	flowFor       = 10 * time.Minute // to sign in at the provider
	flowCookie    = "__Host-dispatch-sso"
)

// ProviderOptions describe an identity provider.
type ProviderOptions struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	RedirectURL  string              // of /login/callback, as people reach it
	Scopes       []string            // beside openid; default profile
	GroupsClaim  string              // where the provider says somebody's groups; default groups
	Roles        map[string][]string // by group; who has none may not in
	Client       *http.Client        // default: one with a time-out
	Now          func() time.Time    // default time.Now
}

// Provider is an identity provider (OpenID Connect): code flow with PKCE, state and
// nonce. It is looked up when somebody first wants to sign in by it.
type Provider struct {
	opt ProviderOptions

	mu     sync.Mutex
	found  *oidc.Provider
	failed error
	tried  time.Time
}

// NewProvider checks the options. It asks nobody.
func NewProvider(opt ProviderOptions) (*Provider, error) {
	var p fault.Problems
	for name, value := range map[string]string{"issuer": opt.Issuer, "redirect URL": opt.RedirectURL} {
		u, err := url.Parse(value)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && local(u.Hostname())) {
			p.Addf(name, "%q must be an https URL; http is for this machine only", value)
		}
	}
	if opt.ClientID == "" {
		p.Addf("client id", "is missing")
	}
	if len(opt.Roles) == 0 {
		p.Addf("roles", "are missing: without a group that has a role nobody can sign in")
	}
	for group, roles := range opt.Roles {
		for _, role := range roles {
			if !slices.Contains(actions.AllRoles(), role) {
				p.Addf("roles", "%q, of the group %s, is no role", role, group)
			}
		}
	}
	if opt.Scopes == nil {
		opt.Scopes = []string{"profile"}
	}
	opt.GroupsClaim = cmp.Or(opt.GroupsClaim, "groups")
	if opt.Now == nil {
		opt.Now = time.Now
	}
	opt.Client = cmp.Or(opt.Client, &http.Client{Timeout: providerTime})
	return &Provider{opt: opt}, p.Err("bad_provider", "the identity provider cannot be used")
}

func local(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }

// ProviderState is what the page of accounts shows of the provider.
type ProviderState struct {
	Issuer string
	Groups map[string][]string
	Err    error // why it could not be reached the last time; nil: it could, or nobody tried
}

// ProviderState is that of the provider, if there is one.
func (s *SignIn) ProviderState() (ProviderState, bool) {
	p := s.opt.Provider
	if p == nil {
		return ProviderState{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return ProviderState{Issuer: p.opt.Issuer, Groups: p.opt.Roles, Err: p.failed}, true
}

// discover finds the provider's addresses and keys. One that is down is asked again
// only after a while.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.opt.Now()
	if p.found != nil {
		return p.found, nil
	}
	if p.failed == nil || now.Sub(p.tried) >= providerRetry {
		p.found, p.failed = oidc.NewProvider(oidc.ClientContext(ctx, p.opt.Client), p.opt.Issuer)
		p.tried = now
	}
	if p.failed != nil {
		return nil, providerDown(p.failed)
	}
	return p.found, nil
}

func providerDown(err error) error {
	return fault.New(fault.Unavailable, "provider_down", "the identity provider does not answer").
		WithHint("sign in with a local account, or try again").Because(err)
}

func (p *Provider) client(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{ClientID: p.opt.ClientID, ClientSecret: p.opt.ClientSecret, RedirectURL: p.opt.RedirectURL, Endpoint: found.Endpoint(),
		Scopes: append([]string{oidc.ScopeOpenID}, p.opt.Scopes...)}
}

// flow is one way to the provider and back. It lies in a cookie of the browser that
// began it: nobody else's can end it, and an unfinished one costs us nothing.
type flow struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Next     string `json:"p"`
}

// Begin is the address at the provider to send a browser to. next is where it goes afterwards.
func (s *SignIn) Begin(w http.ResponseWriter, r *http.Request, next string) (string, error) {
	p := s.opt.Provider
	if p == nil {
		return "", noProvider()
	}
	found, err := p.discover(r.Context())
	if err != nil {
		return "", err
	}
	f := flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: Local(next)}
	text, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("keep way to the provider: %w", err)
	}
	http.SetCookie(w, keep(base64.RawURLEncoding.EncodeToString(text), int(flowFor.Seconds())))
	return p.client(found).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), nil
}

func keep(value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: flowCookie, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

func noProvider() error {
	return fault.New(fault.NotFound, "no_provider", "there is no identity provider").WithHint("sign in with a local account")
}

// Callback ends the way that Begin began, and begins a session. next is where to go.
func (s *SignIn) Callback(w http.ResponseWriter, r *http.Request) (next string, err error) {
	if s.opt.Provider == nil {
		return "", noProvider()
	}
	cookie, err := r.Cookie(flowCookie)
	http.SetCookie(w, keep("", -1)) // each way ends once
	var f flow
	if err == nil {
		var text []byte
		if text, err = base64.RawURLEncoding.DecodeString(cookie.Value); err == nil {
			err = json.Unmarshal(text, &f)
		}
	}
	if err != nil || f.State == "" || !same(f.State, r.URL.Query().Get("state")) {
		return "", s.refused(r, "wrong_state", errors.New("the answer belongs to no sign-in of this browser"))
	}
	person, err := s.opt.Provider.person(r.Context(), r.URL.Query(), f)
	if err != nil {
		if fault.KindOf(err) == fault.Internal {
			err = s.refused(r, "provider_answer", err)
		}
		return "", err
	}
	person.From = s.opt.Address(r)
	account, err := s.do.SignInAs(r.Context(), person)
	if err != nil {
		return "", err
	}
	_, err = s.begin(w, r, account)
	return Local(f.Next), err
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// refused is the refusal of an answer that is not what it should be. What is wrong is
// for the log: the caller may be who made it wrong.
func (s *SignIn) refused(r *http.Request, code string, err error) error {
	s.opt.Log.WarnContext(r.Context(), "sign-in by the provider refused", "code", code, "from", s.opt.Address(r).String(), "err", err)
	return fault.New(fault.Denied, code, "the answer of the identity provider cannot be used").WithHint("begin again at /login")
}

// person is whom the provider vouches for.
func (p *Provider) person(ctx context.Context, query url.Values, f flow) (actions.Person, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.opt.Client), 2*providerTime)
	defer cancel()
	if code := query.Get("error"); code != "" {
		return actions.Person{}, fmt.Errorf("the provider says %q", code)
	}
	if issuer := query.Get("iss"); issuer != "" && issuer != p.opt.Issuer { // RFC 9207
		return actions.Person{}, fmt.Errorf("the answer is of %q", issuer)
	}
	found, err := p.discover(ctx)
	if err != nil {
		return actions.Person{}, err
	}
	tokens, err := p.client(found).Exchange(ctx, query.Get("code"), oauth2.VerifierOption(f.Verifier))
	if _, said := errors.AsType[*oauth2.RetrieveError](err); err != nil && !said {
		return actions.Person{}, providerDown(err)
	}
	if err != nil {
		return actions.Person{}, fmt.Errorf("exchange code: %w", err)
	}
	token, claims, err := p.verify(ctx, found, tokens, f)
	if err != nil {
		return actions.Person{}, err
	}
	if err := p.complete(ctx, found, tokens, claims); err != nil {
		return actions.Person{}, err
	}
	login, _ := claims["preferred_username"].(string)
	name, _ := claims["name"].(string)
	return actions.Person{Issuer: token.Issuer, Subject: token.Subject, Login: login, Name: name, Roles: p.roles(claims[p.opt.GroupsClaim])}, nil
}

// verify checks the identity token: signature, issuer, audience and age by go-oidc,
// then that it is the answer to this question.
func (p *Provider) verify(ctx context.Context, found *oidc.Provider, tokens *oauth2.Token, f flow) (*oidc.IDToken, map[string]any, error) {
	raw, _ := tokens.Extra("id_token").(string)
	token, err := found.VerifierContext(ctx, &oidc.Config{ClientID: p.opt.ClientID, Now: p.opt.Now}).Verify(ctx, raw)
	if err != nil {
		return nil, nil, fmt.Errorf("verify identity token: %w", err)
	}
	if token.Subject == "" || !same(f.Nonce, token.Nonce) {
		return nil, nil, errors.New("the identity token is not for this sign-in")
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return nil, nil, fmt.Errorf("read claims: %w", err)
	}
	if party, ok := claims["azp"].(string); ok && party != p.opt.ClientID {
		return nil, nil, fmt.Errorf("the identity token was given to %q", party)
	}
	return token, claims, nil
}

// complete asks for what some providers do not put into the token.
func (p *Provider) complete(ctx context.Context, found *oidc.Provider, tokens *oauth2.Token, claims map[string]any) error {
	if _, known := claims[p.opt.GroupsClaim]; known || found.UserInfoEndpoint() == "" {
		return nil
	}
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return fmt.Errorf("ask for groups: %w", err)
	}
	if info.Subject != claims["sub"] {
		return errors.New("the provider speaks of two people")
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return fmt.Errorf("read groups: %w", err)
	}
	for name, value := range more {
		if _, known := claims[name]; !known {
			claims[name] = value
		}
	}
	return nil
}

// roles are those that the groups have, each once.
func (p *Provider) roles(groups any) []string {
	var roles []string
	list, _ := groups.([]any)
	if one, ok := groups.(string); ok {
		list = []any{one}
	}
	for _, group := range list {
		name, _ := group.(string)
		for _, role := range p.opt.Roles[name] {
			if !slices.Contains(roles, role) {
				roles = append(roles, role)
			}
		}
	}
	return roles
}
