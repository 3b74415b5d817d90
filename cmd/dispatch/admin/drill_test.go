package admin_test

import (
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
)

// P27: the last drill is known from the audit trail; a swap that was meant is none.
func TestTheLastDrillIsKnown(t *testing.T) {
	each(t, func(t *testing.T, plain *control) {
		heard := make(chan actions.Waiting, 100)
		c := plain.fourEyed(plain.store, func(w actions.Waiting) { heard <- w })
		count := func() actions.Waiting {
			done := c.running(t)
			defer done()
			return <-heard
		}
		c.emergency(swapOut).ok()
		if w := count(); !w.Drilled.IsZero() {
			t.Errorf("a swap that was meant is a drill of %s", w.Drilled)
		}
		back := strings.NewReplacer("sh-main burns", "drill: weekly", `"expect":"sh-main","from":"sh-main","to":"sh-spare"`, `"expect":"sh-spare","from":"sh-spare","to":"sh-main"`)
		c.clock.ahead.Store(int64(time.Minute))
		c.emergency(back.Replace(swapOut)).ok()
		if w := count(); time.Until(w.Drilled).Abs() > 2*time.Minute || w.Drilled.IsZero() {
			t.Errorf("the last drill is of %s", w.Drilled)
		}
	})
}
