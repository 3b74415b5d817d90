package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

type overridePublishCmd struct {
	File  string `arg:"" optional:"" help:"What dispatch override sign printed."`
	Redis string `required:"" placeholder:"URL" help:"Where replicas find it, as serve has it."`

	Clear            bool   `help:"Instead of a file: end, on every replica, what was taken from Redis or signed for all."`
	Deployment       string `default:"dispatch" help:"Whose replicas, with --clear; a file says so itself."`
	PublisherKeyFile string `placeholder:"FILE" help:"Signs the end, with --clear."`
	Reason           string `default:"it is over" help:"Why, with --clear."`
}

// Run verifies nothing but the form: each replica does, and this machine may have
// no key. It needs Redis alone.
func (c *overridePublishCmd) Run(ctx context.Context, out streams) (err error) {
	jws, o, err := c.signed(time.Now())
	if err != nil {
		return err
	}
	if !o.Until.After(time.Now()) {
		return fault.New(fault.Invalid, "override_over", "the override ended at %s", o.Until.Format(time.RFC3339)).WithHint("sign a new one")
	}
	r, err := fleet.NewRedis(fleet.RedisOptions{URL: c.Redis, Password: os.Getenv(redisPassword), Deployment: o.Deployment, Replica: "override"})
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, overrideTimeout)
	defer cancel()
	if err := r.PublishOverride(ctx, jws, o.Until); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out.out, "%s is there until %s for the replicas of %s\nnext: GET /api/v1/fleet, or dispatch override show on a replica, says who has taken it\n",
		o.ID, o.Until.UTC().Format(time.RFC3339), o.Deployment)
	return err
}

// signed is what is to be published.
func (c *overridePublishCmd) signed(now time.Time) (jws []byte, o *release.Override, err error) {
	if c.Clear == (c.File != "") {
		return nil, nil, fault.New(fault.Invalid, "bad_flags", "name a file, or --clear")
	}
	if !c.Clear {
		if jws, err = os.ReadFile(c.File); err != nil {
			return nil, nil, fmt.Errorf("read override: %w", err)
		}
		o, err = release.ReadOverride(jws)
		return jws, o, err
	}
	if c.PublisherKeyFile == "" {
		return nil, nil, fault.New(fault.Invalid, "bad_flags", "--clear needs --publisher-key-file: replicas believe only what is signed")
	}
	keys, err := release.LoadKeys(release.KeyFiles{Publisher: c.PublisherKeyFile}, false)
	if err != nil {
		return nil, nil, err
	}
	o = release.EndOverrides(c.Deployment, newOverrideID(), c.Reason, now.UTC())
	jws, err = release.SignOverride(o, keys.Publisher)
	return jws, o, err
}

// found takes an override that lies where anybody may have put it. What is wrong
// with it is said and counted once. Its one caller is whoever looks.
func (b *breakGlass) found(ctx context.Context, over uint64, jws []byte) {
	o, err := release.OpenOverride(jws, b.trust)
	if err == nil {
		_, err = b.keeper.OverrideAll(ctx, o, over)
	}
	if err == nil || fault.KindOf(err) == fault.Unavailable || ctx.Err() != nil { // later, perhaps
		return
	}
	said := string(jws) + fault.CodeOf(err)
	if said == b.lastSaid {
		return
	}
	b.lastSaid = said
	b.refused.Inc()
	b.log.WarnContext(ctx, "an override in redis changes nothing", "code", fault.CodeOf(err), "err", err,
		"try", "if we did not sign it, somebody else writes to redis: change its password")
}
