package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// Credentials are what somebody typed to sign in, and from where.
type Credentials struct {
	Login    string
	Password string
	Code     string // of the second factor, if the account has one
	From     netip.Addr
}

// door is what stands before the accounts: it slows guesses down and counts them.
type door struct {
	byLogin   *backoff
	byAddress *backoff

	mu     sync.Mutex
	dummy  string         // a hash that no password has, made once
	failed map[string]int // by login; those of nobody under ""
}

// What a person who mistypes never notices, and a guesser does. The wait of an
// account is short, because others can cause it; that of an address is its own.
const (
	freeByLogin      = 5
	longestByLogin   = time.Minute
	freeByAddress    = 20
	longestByAddress = 15 * time.Minute
)

func newDoor() *door {
	return &door{byLogin: newBackoff(freeByLogin, longestByLogin), byAddress: newBackoff(freeByAddress, longestByAddress), failed: map[string]int{}}
}

// nobodys is a hash that no password has: it costs what comparing with any other does.
func (d *door) nobodys(ctx context.Context, passwords Passwords) (_ string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dummy == "" {
		d.dummy, err = passwords.Hash(ctx, OneTimePassword())
	}
	return d.dummy, err
}

// tooEarly is the refusal of a try before its time.
func tooEarly(wait time.Duration) error {
	return fault.New(fault.Throttled, "too_many_tries", "too many tries").
		Hintf("wait %s, then try again", wait.Truncate(time.Second)+time.Second)
}

// network is what one client can choose addresses from: an IPv6 customer has a /64.
func network(a netip.Addr) string {
	if a = a.Unmap(); a.Is6() {
		prefix, _ := a.WithZone("").Prefix(64) // of a valid address
		return prefix.String()
	}
	return a.String()
}

// badCredentials is the one answer to everything that is wrong, so that nobody
// learns which part was right.
func badCredentials() error {
	return fault.New(fault.Unauthenticated, "bad_credentials", "the login, the password or the code is wrong").
		WithHint("an account with a second factor needs its code too, and each code works once; a user admin can reset an account")
}

// SignIn finds whose the credentials are. Known and unknown logins cost the same,
// one password, and get the same answer.
func (a *Actions) SignIn(ctx context.Context, c Credentials) (ledger.Account, error) {
	if wait := a.door.byAddress.take(network(c.From), a.now()); wait > 0 {
		return ledger.Account{}, tooEarly(wait)
	}
	login := normalLogin(c.Login)
	account, err := a.Ledger.Account(ctx, login)
	known := err == nil
	if !known && fault.KindOf(err) != fault.NotFound {
		return ledger.Account{}, err
	}
	if !account.BreakGlass { // outsiders must not be able to keep it shut
		if wait := a.door.byLogin.take(login, a.now()); wait > 0 {
			return ledger.Account{}, tooEarly(wait)
		}
	}
	step, err := a.verify(ctx, account, c)
	if err == nil && !known {
		err = badCredentials()
	}
	if err == nil {
		err = a.enter(ctx, account, step, c.From)
	}
	if fault.KindOf(err) == fault.Unauthenticated {
		a.door.fail(account.Login)
	}
	if err != nil {
		return ledger.Account{}, err
	}
	a.door.welcome(login, c.From, a.now())
	return account, nil
}

// welcome ends the back-off of a login whose owner has come. Their address keeps
// what it did before: a guesser may own an account too.
func (d *door) welcome(login string, from netip.Addr, now time.Time) {
	d.byLogin.forget(login)
	d.byAddress.right(network(from), now)
}

// verify compares password and code; step is that of the code.
func (a *Actions) verify(ctx context.Context, account ledger.Account, c Credentials) (step int64, err error) {
	hash := account.Password
	if hash == "" {
		if hash, err = a.door.nobodys(ctx, a.Passwords); err != nil {
			return 0, err
		}
	}
	same, err := a.Passwords.Matches(ctx, c.Password[:min(len(c.Password), maxPassword)], hash)
	if err != nil {
		return 0, err
	}
	if !same || account.Password == "" || len(c.Password) > maxPassword {
		return 0, badCredentials()
	}
	if len(account.Secret) == 0 {
		return 0, nil
	}
	step, ok := totpStep(account.Secret, c.Code, a.now())
	if !ok || step <= account.Step {
		return 0, badCredentials()
	}
	return step, nil
}

// enter lets somebody in whose credentials are right, and writes it down.
func (a *Actions) enter(ctx context.Context, account ledger.Account, step int64, from netip.Addr) error {
	if err := a.shut(account); err != nil {
		if fault.CodeOf(err) == "password_expired" { // whoever found it late, the owner should hear of it
			noted := a.Ledger.Record(ctx, ledger.Change{By: account.Login, Action: "sign_in_refused", Target: account.Login, Details: detailsOf(map[string]any{
				"from": from.String(), "code": "password_expired", "expired": account.PasswordUntil})})
			if noted != nil {
				return noted
			}
		}
		return err
	}
	err := a.Ledger.SignedIn(ctx, account.Login, step, a.now())
	if fault.CodeOf(err) == "code_used" {
		return badCredentials()
	}
	if err != nil {
		return fmt.Errorf("note sign-in of %s: %w", account.Login, err)
	}
	return a.Ledger.Record(ctx, ledger.Change{By: account.Login, Action: "sign_in", Target: account.Login, Details: detailsOf(map[string]any{
		"from": from.String(), "second_factor": step > 0, "issuer": account.Issuer, "break_glass": account.BreakGlass})})
}

// shut says why an account may not be used although its credentials are right.
func (a *Actions) shut(account ledger.Account) error {
	switch {
	case account.Disabled:
		return fault.New(fault.Denied, "disabled", "%s is disabled", account.Login).WithHint("ask a user admin")
	case account.PasswordExpired(a.now()):
		return fault.New(fault.Denied, "password_expired", "the one-time password of %s has expired", account.Login).
			WithHint("ask a user admin to reset the account; the next one holds for 24 h, too")
	case account.BreakGlass && !account.Armed.After(a.now()):
		return fault.New(fault.Denied, "not_armed", "%s is for emergencies and not armed", account.Login).
			Hintf("dispatch admin arm %s on a control node, or ask a user admin; it lasts %s", account.Login, ArmedFor)
	default:
		return nil
	}
}

// SignedOut writes down that somebody ended their session.
func (a *Actions) SignedOut(ctx context.Context, login string) error {
	return a.Ledger.Record(ctx, ledger.Change{By: login, Action: "sign_out", Target: login})
}

func detailsOf(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, booleans and times
	}
	return text
}

func (d *door) fail(login string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[login]++
}

// failures are those since the last time, by login.
func (d *door) failures() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.failed
	d.failed = map[string]int{}
	return was
}

// RecordFailures writes down how many sign-ins failed since the last time, in one
// row: outsiders shall not be able to fill the audit trail. What was typed as the
// login of nobody is not kept; it may be a password.
func (a *Actions) RecordFailures(ctx context.Context) error {
	failed := a.door.failures()
	if len(failed) == 0 {
		return nil
	}
	nobody := failed[""]
	delete(failed, "")
	logins := slices.Sorted(maps.Keys(failed))
	err := a.Ledger.Record(ctx, ledger.Change{By: "dispatch", Action: "sign_in_failed", Target: shortened(strings.Join(logins, " ")),
		Details: detailsOf(map[string]any{"accounts": failed, "unknown_logins": nobody})})
	if err != nil {
		a.door.mu.Lock()
		defer a.door.mu.Unlock()
		for login, n := range failed {
			a.door.failed[login] += n
		}
		a.door.failed[""] += nobody
	}
	return err
}

// shortened is a text that fits a target of the audit trail.
func shortened(text string) string { return text[:min(len(text), 100)] }

// RunSignIns records failures once a minute, until ctx ends.
func (a *Actions) RunSignIns(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			ctx = last
		}
		if err := a.RecordFailures(ctx); err != nil {
			log.WarnContext(ctx, "failed sign-ins are not written down yet", "err", err)
		}
		if _, ending := ctx.Deadline(); ending {
			return nil
		}
	}
}

// Person is somebody whom an identity provider knows.
type Person struct {
	Issuer, Subject string
	Login           string // what the provider suggests; no key to anything
	Name            string
	Roles           []string // that the provider's groups give today
	From            netip.Addr
}

// SignInAs lets in whom an identity provider has vouched for. The issuer and the
// subject say who it is; a login or an e-mail address that equals somebody's
// gives nothing. Roles are those of today.
func (a *Actions) SignInAs(ctx context.Context, p Person) (ledger.Account, error) {
	account, err := a.Ledger.AccountOf(ctx, p.Issuer, p.Subject)
	if fault.KindOf(err) == fault.NotFound {
		account, err = ledger.Account{Issuer: p.Issuer, Subject: p.Subject}, nil
	}
	if err != nil {
		return ledger.Account{}, err
	}
	if len(p.Roles) == 0 {
		a.door.fail(account.Login)
		return ledger.Account{}, fault.New(fault.Denied, "no_role", "none of your groups at %s has a role here", p.Issuer).
			WithHint("ask for a group that --oidc-roles names")
	}
	slices.Sort(p.Roles)
	if account.Login == "" || !slices.Equal(account.Roles, p.Roles) || account.Name != p.Name {
		if account, err = a.keepPerson(ctx, account, p); err != nil {
			return ledger.Account{}, err
		}
	}
	return account, a.enter(ctx, account, 0, p.From)
}

// keepPerson writes down what the provider says of somebody today.
func (a *Actions) keepPerson(ctx context.Context, account ledger.Account, p Person) (ledger.Account, error) {
	if account.Login == "" {
		login, err := a.freeLogin(ctx, p)
		if err != nil {
			return account, err
		}
		account.Login = login
	} else if !slices.Equal(account.Roles, p.Roles) {
		account.Epoch++
	}
	account.Name, account.Roles = p.Name, p.Roles
	change := ledger.Change{By: account.Login, Reason: "signed in with " + p.Issuer, Action: "account_sync", Target: account.Login}
	if err := a.Ledger.SaveAccount(ctx, account, change); err != nil {
		return account, err
	}
	return a.Ledger.Account(ctx, account.Login)
}

// freeLogin is what a new person of a provider is called here: never like a local
// account, which has no @ in its login.
func (a *Actions) freeLogin(ctx context.Context, p Person) (string, error) {
	host := issuerHost(p.Issuer)
	suggested, _, _ := strings.Cut(p.Login, "@")
	for _, name := range []string{suggested, p.Subject} {
		login := normalLogin(name) + "@" + host
		if loginProblem(strings.ReplaceAll(login, "@", ".")) != "" {
			continue
		}
		_, err := a.Ledger.Account(ctx, login)
		if fault.KindOf(err) == fault.NotFound {
			return login, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fault.New(fault.Conflict, "no_login", "no login is free for %s of %s", cmp.Or(suggested, p.Subject), host).
		WithHint("ask a user admin to look at the accounts")
}
