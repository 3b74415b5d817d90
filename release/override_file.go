package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// overrideName is the file of the override in force, beside the generations:
//
//	dispatch-override sha256=9f86d0…
//	{"id":"…","actions":[…],…,"over":412}
//
// It is not signed: whoever can write here as this user can also ask the socket.
const overrideName = "override"

const overrideMagic = "dispatch-override"

// kept is an override in force, as its file holds it.
type kept struct {
	Override
	Over uint64    `json:"over"` // the release that it was first laid over
	ends time.Time // on the monotonic clock, so that setting the clock neither ends nor prolongs it
}

// newKept starts an override's time.
func newKept(o *Override, over uint64) *kept {
	now := time.Now()
	k := &kept{Override: *o, Over: over, ends: now.Add(o.left(now))}
	k.Actions = slices.Clone(o.Actions)
	return k
}

// endedBy says whether the override is over, in time or by what m says.
func (k *kept) endedBy(m *Manifest) bool { return time.Until(k.ends) <= 0 || m.Clears > k.Over }

func (d *Disk) overridePath() string { return filepath.Join(d.dir, overrideName) }

// keepOverride replaces the file; nil removes it.
func (d *Disk) keepOverride(k *kept) error {
	err := func() error {
		if k == nil {
			if err := os.Remove(d.overridePath()); err != nil {
				return ignoreAbsent(err)
			}
			return syncDir(d.dir)
		}
		body, err := json.Marshal(k)
		if err != nil {
			return err
		}
		text := append(fmt.Appendf(nil, "%s sha256=%s\n", overrideMagic, checksum(overrideMagic, body)), body...)
		if err := replaceFile(d.overridePath(), text); err != nil {
			return err
		}
		return syncDir(d.dir)
	}()
	if err != nil {
		return fmt.Errorf("keep override in %s: %w", d.dir, err)
	}
	return nil
}

// override is the override in the file, nil if there is none. A file that is
// damaged, or that others than its owner can read, is set aside.
func (d *Disk) override() (*kept, error) {
	data, err := os.ReadFile(d.overridePath())
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	k, err := decodeOverride(data)
	if info, e := os.Lstat(d.overridePath()); err == nil && e == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0) {
		err = fmt.Errorf("%w: mode %04o lets others at it", errDamaged, info.Mode().Perm())
	}
	if err != nil {
		d.setAside(d.overridePath())
		return nil, fmt.Errorf("read override %s, set aside as %s: %w", d.overridePath(), badExt, err)
	}
	return k, nil
}

func decodeOverride(data []byte) (*kept, error) {
	line, body, _ := bytes.Cut(data, []byte("\n"))
	if sum, ok := strings.CutPrefix(string(line), overrideMagic+" sha256="); !ok || sum != checksum(overrideMagic, body) {
		return nil, fmt.Errorf("%w: the checksum does not hold", errDamaged)
	}
	var k kept
	if err := decodeStrict(body, &k); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	return newKept(&k.Override, k.Over), nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
