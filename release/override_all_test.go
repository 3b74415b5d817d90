package release

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
)

// forAll is an override for all replicas of the bank, made so long ago.
func forAll(ago time.Duration, actions ...OverrideAction) *Override {
	o := breakGlass(actions...)
	o.Deployment, o.Created = "bank", time.Now().UTC().Add(-ago)
	if len(actions) == 0 {
		o = EndOverrides("bank", "end-1", "it is over", o.Created)
		o.By = "publisher"
	}
	return o
}

// all lays one that was found and says whether it was taken.
func all(t *testing.T, k *Keeper, o *Override, over uint64) bool {
	t.Helper()
	taken, err := k.OverrideAll(t.Context(), o, over)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// What is found again and again is taken once, and nothing older after it, also
// after a restart and whatever ended it.
func TestOverrideForAllIsTakenOnce(t *testing.T) {
	t.Parallel()
	b, dir := newBank(t), t.TempDir()
	k := b.serving(t, must(OpenDisk(dir)))
	first, second := forAll(time.Hour, swapAction()), forAll(time.Minute, regionAction("sh", domain.Draining))
	if !all(t, k, first, 1) || all(t, k, first, 1) || !all(t, k, second, 1) || all(t, k, first, 1) {
		t.Error("the first, the second, and nothing again: that is not what was taken")
	}
	if o := k.Status().Override; o == nil || !o.Created.Equal(second.Created) {
		t.Errorf("in force is %+v", o)
	}
	if err := k.Override(t.Context(), nil); err != nil { // by hand
		t.Fatal(err)
	}
	if all(t, k, second, 1) || k.Status().Override != nil {
		t.Error("what was taken away by hand came back")
	}
	k = b.keeper(must(OpenDisk(dir)))
	if err := k.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all(t, k, second, 1) || all(t, k, first, 1) || k.Status().Override != nil {
		t.Error("after a restart it came back")
	}
	if err := os.WriteFile(filepath.Join(dir, takenName), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k = b.serving(t, must(OpenDisk(dir))); !all(t, k, second, 1) {
		t.Error("a damaged file keeps overrides away")
	}
}

// A later one of this replica's own stays in force; an earlier one makes way.
func TestOverrideForAllAndALocalOne(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.serving(t, nil)
	b.override(t, k, regionAction("sh", domain.Draining))
	if all(t, k, forAll(time.Hour, swapAction()), 1) || k.Status().Override.Deployment != "" {
		t.Error("an older one took the place of a local one")
	}
	if !all(t, k, forAll(-time.Second, swapAction()), 1) || k.Status().Override.Deployment != "bank" {
		t.Error("a newer one did not take the place of a local one")
	}
}

// The end of overrides for all ends those alone.
func TestOverrideForAllEnds(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.serving(t, nil)
	if !all(t, k, forAll(time.Hour, swapAction()), 1) || !all(t, k, forAll(time.Minute), 1) || k.Status().Override != nil {
		t.Errorf("in force is still %+v", k.Status().Override)
	}
	if all(t, k, forAll(time.Hour, swapAction()), 1) {
		t.Error("the one that was ended came back")
	}
	b.override(t, k, swapAction())
	if !all(t, k, forAll(-time.Second), 1) || k.Status().Override == nil {
		t.Error("it ended a local one")
	}
	local := breakGlass()
	if err := k.Override(t.Context(), local); fault.CodeOf(err) != "bad_override" {
		t.Errorf("a local one without actions: %v", err)
	}
}

// A release that cleared it clears it for a replica that finds it later; one that
// it was made over does not, and is waited for unless it was refused.
func TestOverrideForAllAndReleases(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	second := next(b.first, func(_ *Document, _ *Operational, c *Change) { c.Clears = true })
	third := next(second, nil)
	k := b.serving(t, nil)
	o := forAll(time.Minute, swapAction())
	if all(t, k, o, 2) {
		t.Error("it was laid over the release before the one that it was made over")
	}
	b.accept(t, k, second)
	if !all(t, k, o, 2) {
		t.Error("made over the release in use, it was not taken")
	}
	b.accept(t, k, third)
	if k.Current().Override == nil {
		t.Error("a mark that is older than it cleared it")
	}
	late := b.serving(t, nil)
	b.accept(t, late, third)
	if all(t, late, o, 1) || late.Status().Override != nil {
		t.Error("a replica that came later took what a release had cleared")
	}
	refusing := b.serving(t, nil)
	forged := b.sign(second)
	forged.Signature = b.sign(third).Signature
	if err := refusing.Accept(t.Context(), forged, b.blobs, "test"); err == nil {
		t.Fatal("a forged release was taken")
	}
	if !all(t, refusing, o, 2) {
		t.Error("a replica that refuses the release waits for it")
	}
}

// Whatever lies where overrides are found, only ours, that last and fit, are laid.
func TestOverrideForAllRefuses(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.serving(t, nil)
	foreign, over := forAll(time.Minute, swapAction()), forAll(5*time.Hour, swapAction())
	foreign.Deployment, over.Until = "elsewhere", over.Created.Add(4*time.Hour)
	unsigned := forAll(time.Minute, OverrideAction{Swap: &Swap{App: "mobile", Region: "sh", From: "sh-main", To: "evil.example"}})
	for code, o := range map[string]*Override{"other_deployment": foreign, "override_over": over, "override_unfit": unsigned, "bad_override": breakGlass(swapAction())} {
		if taken, err := k.OverrideAll(t.Context(), o, 1); taken || fault.CodeOf(err) != code {
			t.Errorf("%v, %v, want %s", taken, err, code)
		}
	}
	if k.Status().Override != nil {
		t.Error("one of them is in force")
	}
	if _, err := b.keeper(nil).OverrideAll(t.Context(), forAll(time.Minute, swapAction()), 1); fault.CodeOf(err) != "no_release" {
		t.Errorf("without a release: %v", err)
	}
}

func TestReadOverrideVerifiesNothing(t *testing.T) {
	t.Parallel()
	b, o := newBank(t), forAll(time.Minute, swapAction())
	jws := must(SignOverride(o, b.keys.Publisher))
	if got, err := ReadOverride(append(jws, '\n')); err != nil || got.Deployment != "bank" || !got.Until.Equal(o.Until) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "a.b.c", "{}", "e30.e30.e30", string(jws[:20])} {
		if got, err := ReadOverride([]byte(bad)); fault.CodeOf(err) != "bad_override" {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}
