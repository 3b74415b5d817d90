package release

import (
	"context"
	"errors"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// Overriding is an override in force and what became of it here.
type Overriding struct {
	Override
	Over  uint64         `json:"over"`            // the release that it was first laid over
	Unfit fault.Problems `json:"unfit,omitempty"` // what does not fit the release in use and has no effect
}

// Override lays o over what is served, now and after every later release, until
// its time is over or a release clears it. It takes the place of the one in force;
// nil takes that away. An override that does not fit the release in use is refused
// whole, with everything that is wrong. Of a later release, what does not fit has
// no effect, and Status says so.
//
// It is in effect when Override returns, and kept on the disk if that can be
// written; if not, Status says so, because a full disk must not stop break glass.
func (k *Keeper) Override(ctx context.Context, o *Override) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := k.override(o); err != nil {
		return err
	}
	k.keepOverride()
	return nil
}

func (k *Keeper) override(o *Override) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o == nil {
		if k.over != nil {
			k.over = nil
			k.show()
		}
		return nil
	}
	if err := k.mayLay(o); err != nil {
		return err
	}
	return k.lay(o)
}

// The callers of mayLay, lay, show and take hold k.mu.

// mayLay says what is wrong with an override, whatever it does.
func (k *Keeper) mayLay(o *Override) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.Deployment != "" && o.Deployment != k.loader.opt.Deployment {
		return fault.New(fault.Invalid, "other_deployment", "the override is for %s, this process serves %s", o.Deployment, k.loader.opt.Deployment)
	}
	if o.left(time.Now()) <= 0 {
		return fault.New(fault.Invalid, "override_over", "the override ended at %s", o.Until.Format(time.RFC3339)).WithHint("make a new one")
	}
	if k.released == nil {
		return fault.New(fault.Unavailable, "no_release", "there is no release to lay an override over").
			WithHint("an override chooses among the domains of a release: bring one first")
	}
	return nil
}

// lay puts an override into force, or ends those for all replicas.
func (k *Keeper) lay(o *Override) error {
	if o.ends() {
		if k.over != nil && k.over.Deployment != "" {
			k.over = nil
			k.show()
		}
		return nil
	}
	over := newKept(o, k.released.Number)
	laid, unfit, err := k.loader.lay(k.released, &over.Override, true)
	if err == nil {
		err = unfit.Err("override_unfit", "the override does not fit the release in use")
	}
	if err != nil {
		return err
	}
	k.over = over
	k.take(laid, nil)
	return nil
}

// show serves the released snapshot with the override in force laid over it. One
// that is over is gone; one that cannot be laid has no effect.
func (k *Keeper) show() {
	if k.released == nil {
		return
	}
	if k.over != nil && k.over.endedBy(k.released.Manifest) {
		k.over = nil
	}
	if k.over == nil {
		k.take(k.released, nil)
		return
	}
	laid, unfit, err := k.loader.lay(k.released, &k.over.Override, false)
	if err != nil {
		bare := *k.released
		bare.Override, bare.under = &k.over.Override, k.released
		laid, unfit = &bare, fault.Problems{{Path: "actions", Detail: err.Error()}}
	}
	k.take(laid, unfit)
}

// take puts a snapshot into use and wakes whoever waits for that.
func (k *Keeper) take(s *Snapshot, unfit fault.Problems) {
	k.current.Store(s)
	k.status.Override = nil
	if k.over != nil {
		k.status.Override = &Overriding{Override: k.over.Override, Over: k.over.Over, Unfit: unfit}
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// Expire takes an override away whose time is over. It returns when to call it
// again, the zero time while none is in force. Whoever owns the Keeper calls it
// at that time and when Changed is closed; a release that comes looks too.
func (k *Keeper) Expire() time.Time {
	ends, ended := k.expire()
	if ended {
		k.keepOverride()
	}
	return ends
}

func (k *Keeper) expire() (ends time.Time, ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over == nil:
		return time.Time{}, false
	case time.Until(k.over.ends) > 0:
		return k.over.ends, false
	}
	k.over = nil
	k.show()
	return time.Time{}, true
}

// keepOverride makes the file say what is in force. Only its caller waits for the
// disk. It writes what is in force when its turn comes, so the last one is right.
func (k *Keeper) keepOverride() {
	if k.disk == nil {
		return
	}
	k.file.Lock()
	defer k.file.Unlock()
	k.mu.Lock()
	over, taken := k.over, k.taken
	k.mu.Unlock()
	err := errors.Join(k.disk.keepTaken(taken), k.disk.keepOverride(over))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.OverrideErr = ""
	if err != nil {
		k.status.OverrideErr = err.Error()
	}
}

// recall reads the override that was in force when the process ended.
func (k *Keeper) recall() {
	if k.disk == nil {
		return
	}
	k.taken = k.disk.taken()
	var err error
	if k.over, err = k.disk.override(); err != nil {
		k.status.OverrideErr = err.Error()
	}
}
