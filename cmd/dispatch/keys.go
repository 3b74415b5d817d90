package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/release"
)

type keysCmd struct {
	New    keysNewCmd    `cmd:"" help:"Make key files that do not exist yet."`
	Rotate keysRotateCmd `cmd:"" help:"Make a new current key in each file; the one before stays valid beside it."`
	Export keysExportCmd `cmd:"" help:"Print the public keys that edges and apps trust, as JWKS."`
}

// keyFiles are the flags that name key files.
type keyFiles struct {
	PublisherKeyFile string `placeholder:"FILE" help:"Signs releases."`
	RecordKeyFile    string `placeholder:"FILE" help:"Signs domain records."`
	SessionKeyFile   string `placeholder:"FILE" help:"Seals session tokens."`
	ListKeyFile      string `placeholder:"FILE" help:"Hashes ids in lists."`
	ListSealKeyFile  string `placeholder:"FILE" help:"Seals the ids of lists in the database."`
}

func (k keyFiles) paths() release.KeyFiles {
	return release.KeyFiles{Publisher: k.PublisherKeyFile, Record: k.RecordKeyFile, Session: k.SessionKeyFile,
		List: k.ListKeyFile, ListSeal: k.ListSealKeyFile}
}

type keysNewCmd struct {
	Dir string `arg:"" optional:"" help:"Folder for all six files, under their usual names."`
	keyFiles
	FleetTokenFile string `placeholder:"FILE" help:"Token that nodes show each other."`
}

// Run makes every named file. One that exists is never touched: its loss would void what it signed.
func (c *keysNewCmd) Run(out streams) error {
	files, token := c.paths(), c.FleetTokenFile
	if c.Dir != "" {
		if files != (release.KeyFiles{}) || token != "" {
			return fault.New(fault.Invalid, "bad_flags", "name a folder or files, not both")
		}
		if err := os.MkdirAll(c.Dir, 0o700); err != nil {
			return fmt.Errorf("make key folder: %w", err)
		}
		files, token = release.KeyFilesIn(c.Dir), filepath.Join(c.Dir, "fleet.token")
	}
	named := []string{files.Publisher, files.Record, files.Session, files.List, files.ListSeal, token}
	var p fault.Problems
	count := 0
	for _, path := range named {
		if path == "" {
			continue
		}
		count++
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			p.Addf(path, "exists; remove it yourself if you mean it, everything that it signed or sealed is then void")
		}
	}
	if count == 0 {
		p.Addf("dispatch keys new", "name a folder or at least one file")
	}
	if err := p.Err("bad_keys", "no key was made:"); err != nil {
		return err
	}
	if _, err := release.LoadKeys(files, true); err != nil {
		return err
	}
	if token != "" {
		if err := signed.WriteTokens(token, signed.NewToken()); err != nil {
			return err
		}
	}
	for _, path := range named {
		if path != "" {
			fmt.Fprintln(out.out, path)
		}
	}
	return nil
}

type keysExportCmd struct {
	PublisherKeyFile string `placeholder:"FILE" help:"Whose public keys edges trust."`
	RecordKeyFile    string `placeholder:"FILE" help:"Whose public keys edges and apps trust."`
}

// Run prints public keys only.
func (c *keysExportCmd) Run(out streams) error {
	if c.PublisherKeyFile == "" && c.RecordKeyFile == "" {
		return fault.New(fault.Invalid, "bad_flags", "name --publisher-key-file, --record-key-file or both")
	}
	keys, err := release.LoadKeys(release.KeyFiles{Publisher: c.PublisherKeyFile, Record: c.RecordKeyFile}, false)
	if err != nil {
		return err
	}
	jwks, err := signed.Public(keys.Publisher, keys.Record)
	if err != nil {
		return fmt.Errorf("export keys: %w", err)
	}
	_, err = fmt.Fprintf(out.out, "%s\n", jwks)
	return err
}
