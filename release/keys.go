package release

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

// Keyring holds the keys of a process. An edge has only session and list keys;
// the Keys of what it does not have are empty.
type Keyring struct {
	Publisher signed.Keys // signs manifests
	Record    signed.Keys // signs domain records
	Session   signed.Keys // authenticates session tokens
	List      signed.Keys // hashes ids of lists
	ListSeal  signed.Keys // encrypts raw ids in the store
}

// KeyFiles are the paths of key files. An empty path is a key that the process
// does not need.
type KeyFiles struct{ Publisher, Record, Session, List, ListSeal string }

// KeyFilesIn are all five files under their usual names in a folder.
func KeyFilesIn(dir string) KeyFiles {
	name := func(p signed.Purpose) string { return filepath.Join(dir, string(p)+".jwks") }
	return KeyFiles{Publisher: name(signed.Publisher), Record: name(signed.Record), Session: name(signed.Session),
		List: name(signed.List), ListSeal: name(signed.ListSeal)}
}

// LoadKeys reads key files. One that does not exist is made if create is set,
// which only a process alone with its data may ask for: two processes with keys
// of their own would void each other's sessions. Otherwise it is an error that
// names the flag and the command; all that are missing or wrong are named at once.
func LoadKeys(files KeyFiles, create bool) (*Keyring, error) {
	var ring Keyring
	var p fault.Problems
	for _, f := range []struct {
		path    string
		purpose signed.Purpose
		keys    *signed.Keys
	}{
		{files.Publisher, signed.Publisher, &ring.Publisher},
		{files.Record, signed.Record, &ring.Record},
		{files.Session, signed.Session, &ring.Session},
		{files.List, signed.List, &ring.List},
		{files.ListSeal, signed.ListSeal, &ring.ListSeal},
	} {
		if f.path == "" {
			continue
		}
		keys, err := loadKeys(f.path, f.purpose, create)
		if err != nil {
			p = append(p, keyProblem(f.path, f.purpose, err))
			continue
		}
		*f.keys = keys
	}
	if len(p) > 0 {
		return nil, &fault.Error{Kind: fault.Invalid, Code: "bad_keys", Detail: "keys are missing or unusable", Problems: p}
	}
	return &ring, nil
}

func loadKeys(path string, p signed.Purpose, create bool) (signed.Keys, error) {
	keys, err := signed.ReadKeys(path, p)
	if !create || !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	if keys, err = signed.NewKeys(p); err != nil {
		return signed.Keys{}, err
	}
	return keys, signed.WriteKeys(path, keys)
}

func keyProblem(path string, p signed.Purpose, err error) fault.Problem {
	flag := fmt.Sprintf("--%s-key-file %s", p, path)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Problem{Path: flag, Detail: "no such file",
			Hint: fmt.Sprintf("bring the file that the other nodes use, or make a first one: dispatch keys new --%s-key-file %s", p, path)}
	}
	return fault.Problem{Path: flag, Detail: err.Error()}
}

// Trust believes what this keyring signs.
func (k *Keyring) Trust() *signed.Trust { return signed.TrustOf(k.Publisher, k.Record) }

// IDs names the keys that edges need to serve releases made now.
func (k *Keyring) IDs() KeyIDs { return KeyIDs{Session: k.Session.IDs(), List: k.List.IDs()} }
