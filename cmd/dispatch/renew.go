package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/release"
)

// renewCmd signs domain records again when no control node can: they live seven
// days, and a control node that runs renews them daily.
type renewCmd struct {
	RecordKeyFile string `required:"" placeholder:"FILE" help:"Signs domain records."`
	TrustKeys     string `required:"" placeholder:"FILE" help:"Public keys that must have signed the release, from dispatch keys export."`
	Deployment    string `default:"dispatch" help:"Whose release it is."`
	Redis         string `placeholder:"URL" help:"Where the newest release is read and put back; replicas that follow it serve the new records within seconds."`
	Data          string `placeholder:"DIR" help:"Data folder of a process that is stopped, or of one that shall serve the new records after its next start."`
}

// renewTimeout bounds the whole command: a release with five million ids is read in seconds.
const renewTimeout = 5 * time.Minute

// copies is a place with a release that gets its new records.
type copies struct {
	name  string
	read  func(context.Context) (release.Signed, error)
	write func(context.Context, release.Signed) error
}

// Run needs the record key and one copy of the release: no database and no
// process. It believes the copy only as far as it is signed.
func (c *renewCmd) Run(ctx context.Context, out streams) (err error) {
	if c.Redis == "" && c.Data == "" {
		return fault.New(fault.Invalid, "bad_flags", "name --redis, --data or both")
	}
	keys, err := release.LoadKeys(release.KeyFiles{Record: c.RecordKeyFile}, false)
	if err != nil {
		return err
	}
	trust, err := signed.ReadTrust(c.TrustKeys)
	if err != nil {
		return fmt.Errorf("--trust-keys: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	places, closed, err := c.places()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
	for _, place := range places {
		s, err := place.read(ctx)
		if err != nil {
			return fmt.Errorf("read the release in %s: %w", place.name, err)
		}
		if s.Records, err = release.Renew(s, trust, keys.Record, time.Now()); err != nil {
			return err
		}
		if err := place.write(ctx, s); err != nil {
			return fmt.Errorf("put renewed records into %s: %w", place.name, err)
		}
		fmt.Fprintf(out.out, "%s: records of release %d are valid until %s\n", place.name, s.Number, time.Now().Add(release.RecordLife).UTC().Format(time.RFC3339))
	}
	return nil
}

func (c *renewCmd) places() (places []copies, closed func() error, err error) {
	closed = func() error { return nil }
	if c.Redis != "" {
		r, err := fleet.NewRedis(fleet.RedisOptions{URL: c.Redis, Password: os.Getenv(redisPassword), Deployment: c.Deployment, Replica: "renew"})
		if err != nil {
			return nil, nil, fmt.Errorf("--redis: %w", err)
		}
		closed = r.Close
		places = append(places, copies{"redis", func(ctx context.Context) (release.Signed, error) { return newestInRedis(ctx, r) },
			func(ctx context.Context, s release.Signed) error { return r.Offer(ctx, fleet.Offer{All: s}, r) }})
	}
	if c.Data != "" {
		dir := filepath.Join(c.Data, "releases")
		if _, err := os.Stat(dir); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("--data: %w", err), closed())
		}
		disk, err := release.OpenDisk(dir)
		if err != nil {
			return nil, nil, errors.Join(err, closed())
		}
		places = append(places, copies{dir, func(context.Context) (release.Signed, error) { return disk.Newest() }, disk.Renewed})
	}
	return places, closed, nil
}

func newestInRedis(ctx context.Context, r *fleet.Redis) (release.Signed, error) {
	s, err := r.Next(ctx, fleet.Report{})
	if err != nil {
		return release.Signed{}, err
	}
	if s == nil {
		return release.Signed{}, fault.New(fault.NotFound, "no_release", "no control node has put a release there")
	}
	return *s, nil
}
