package main

import (
	"fmt"
	"os"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

// rotateApart is how long a rotation should stand before the next: a key file
// holds two keys, so the next one ends the key that the first one left valid.
const rotateApart = 24 * time.Hour

type keysRotateCmd struct {
	keyFiles
	FleetTokenFile string `placeholder:"FILE" help:"Token that nodes show each other."`
	Force          bool   `help:"Also where the previous key may still be in use, because the file was rotated within a day. A leaked key is a reason."`
}

// rotation is one file and what to do with it afterwards.
type rotation struct {
	path string
	next string
	file func(path string) (write func() error, id string, two bool, err error)
}

// Run rotates every named file or, if one cannot be, none. Processes read their
// files when they start, so nothing changes until then.
func (c *keysRotateCmd) Run(out streams) error {
	var p fault.Problems
	var all []rotation
	for _, r := range c.rotations() {
		if r.path != "" {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		p.Addf("dispatch keys rotate", "name at least one file")
	}
	var writes []func() error
	var ids []string
	for _, r := range all {
		write, id, two, err := r.file(r.path)
		if err != nil {
			p.Addf(r.path, "%v", err)
			continue
		}
		if age := ageOfFile(r.path); two && age < rotateApart && !c.Force {
			p.Addf(r.path, "was rotated %s ago: what the key before made would be void; wait, or --force", age.Round(time.Second))
		}
		writes, ids = append(writes, write), append(ids, id)
	}
	if err := p.Err("bad_keys", "nothing was rotated:"); err != nil {
		return err
	}
	for i, r := range all {
		if err := writes[i](); err != nil {
			return err
		}
		fmt.Fprintf(out.out, "%s  %s\nnext: %s\n", r.path, ids[i], r.next)
	}
	return nil
}

func ageOfFile(path string) time.Duration {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return time.Since(info.ModTime())
}

// rotations are the files and the order in which nodes must get them: whoever has
// to believe or to open what the new key makes comes first.
func (c *keysRotateCmd) rotations() []rotation {
	const (
		trusted = "put what dispatch keys export prints now into --trust-keys of every edge and start the edges again; then bring this file to the control nodes and start them again"
		shared  = "bring this file to every edge and start it again; then to the control nodes; "
	)
	return []rotation{
		{c.PublisherKeyFile, trusted, rotateKeys(signed.Publisher)},
		{c.RecordKeyFile, trusted + "; apps that pin record keys know the previous one until they are updated", rotateKeys(signed.Record)},
		{c.SessionKeyFile, shared + "the next release uses the new key, and sessions of the previous one go on", rotateKeys(signed.Session)},
		{c.ListKeyFile, shared + "then POST /api/v1/keys/rehash", rotateKeys(signed.List)},
		{c.ListSealKeyFile, "bring this file to every control node and start it again; then POST /api/v1/keys/rehash", rotateKeys(signed.ListSeal)},
		{c.FleetTokenFile, "bring this file to every control node and start it again; then to every edge", rotateToken},
	}
}

func rotateKeys(purpose signed.Purpose) func(string) (func() error, string, bool, error) {
	return func(path string) (func() error, string, bool, error) {
		old, err := signed.ReadKeys(path, purpose)
		if err != nil {
			return nil, "", false, err
		}
		next, err := old.Rotate()
		if err != nil {
			return nil, "", false, err
		}
		return func() error { return signed.WriteKeys(path, next) }, next.Current().ID(), len(old.All()) > 1, nil
	}
}

func rotateToken(path string) (func() error, string, bool, error) {
	old, err := signed.ReadTokens(path)
	if err != nil {
		return nil, "", false, err
	}
	return func() error { return signed.WriteTokens(path, signed.NewToken(), old[0]) }, "a new token", len(old) > 1, nil
}
