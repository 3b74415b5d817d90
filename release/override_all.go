package release

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// takenName is the file with the time at which the newest override for all was
// made that was taken here. It only rises, so that who can put an older one back
// where replicas look cannot bring it back here.
const takenName = "override-taken"

// EndOverrides is the override that ends those for all replicas of a deployment.
// It lasts as long as any of them can.
func EndOverrides(deployment, id, reason string, now time.Time) *Override {
	return &Override{ID: id, Deployment: deployment, Actions: []OverrideAction{}, Reason: reason, Created: now, Until: now.Add(MaxOverride)}
}

// OverrideAll lays over what is served what OpenOverride found in a place that
// anybody may write to. over is the release that was newest when it was put there,
// 0 if that is not known. One that is forged, over, or for others is an error.
// Nothing changes, and nothing is wrong, when this one or a later one was taken
// before, one that was made later is in force, a release cleared it, or the
// release that it was made over is on its way here.
func (k *Keeper) OverrideAll(ctx context.Context, o *Override, over uint64) (taken bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if taken, err = k.overrideAll(o, over); taken {
		k.keepOverride()
	}
	return taken, err
}

func (k *Keeper) overrideAll(o *Override, over uint64) (taken bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.Deployment == "" {
		return false, fault.New(fault.Invalid, "bad_override", "the override names no deployment")
	}
	if err := k.mayLay(o); err != nil {
		return false, err
	}
	switch {
	case !o.Created.After(k.taken),
		k.over != nil && !o.Created.After(k.over.Created),
		over > 0 && k.released.Manifest.Clears > over,
		over > k.released.Number && k.status.Refusal == nil: // laid now, that release might clear it
		return false, nil
	}
	if err := k.lay(o); err != nil {
		return false, err
	}
	k.taken = o.Created
	return true, nil
}

// ReadOverride is what a signed override says. Nothing is verified: replicas do that.
func ReadOverride(data []byte) (*Override, error) {
	parts := bytes.Split(bytes.TrimSpace(data), []byte("."))
	bad := fault.New(fault.Invalid, "bad_override", "it is no signed override").WithHint("dispatch override sign makes one")
	if len(data) > maxOverrideText || len(parts) != 3 {
		return nil, bad
	}
	payload, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil {
		return nil, bad.Because(err)
	}
	var o Override
	if err := decodeStrict(payload, &o); err != nil {
		return nil, bad.Because(err)
	}
	if o.Deployment == "" {
		return nil, bad
	}
	return &o, o.check()
}

// keepTaken replaces the file of the newest override for all.
func (d *Disk) keepTaken(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	if err := replaceFile(filepath.Join(d.dir, takenName), []byte(t.UTC().Format(time.RFC3339Nano))); err != nil {
		return fmt.Errorf("keep the time of the override in %s: %w", d.dir, err)
	}
	return nil
}

// taken is the time in the file. Without one, or with a damaged one, any override
// that still lasts is taken.
func (d *Disk) taken() time.Time {
	text, err := os.ReadFile(filepath.Join(d.dir, takenName))
	if err != nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return time.Time{}
	}
	return t
}
