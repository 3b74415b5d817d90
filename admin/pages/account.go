package pages

import (
	"fmt"
	"image/color"
	"time"

	"github.com/boombuler/barcode/qr"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
)

// accountPage is one's own account.
type accountPage struct {
	Armed time.Time // zero: the session is not armed
	New   *actions.Enrolment
	QR    code
}

// code is a QR code as rows of dark pieces.
type code struct {
	Size  int // with the quiet zone, in modules
	Parts []part
}

type part struct{ X, Y, Width int }

// quiet is the white frame of a QR code in modules, as ISO 18004 wants it.
const quiet = 4

// draw makes the pieces of a QR code: each is a run of dark modules in one row.
func draw(text string) (code, error) {
	drawn, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return code{}, fmt.Errorf("draw QR code: %w", err)
	}
	size := drawn.Bounds().Dx()
	c := code{Size: size + 2*quiet}
	for y := range size {
		for x := 0; x < size; x++ {
			from := x
			for x < size && drawn.At(x, y) == color.Black {
				x++
			}
			if x > from {
				c.Parts = append(c.Parts, part{X: from + quiet, Y: y + quiet, Width: x - from})
			}
		}
	}
	return c, nil
}

// accountView is the page; enrolment is what a form that failed was about.
func (v *visit) accountView(enrolment *actions.Enrolment) (accountPage, error) {
	page := accountPage{Armed: v.Armed, New: enrolment}
	if v.SecondFactor {
		return page, nil
	}
	if page.New == nil {
		fresh := v.do.NewSecondFactor(v.Name)
		page.New = &fresh
	}
	var err error
	page.QR, err = draw(page.New.URL)
	return page, err
}

func (v *visit) account() error {
	page, err := v.accountView(nil)
	if err != nil {
		return err
	}
	return v.show("account", page)
}

// accountRefused shows the page again with what was wrong.
func (v *visit) accountRefused(cause error, enrolment *actions.Enrolment) error {
	page, err := v.accountView(enrolment)
	if err != nil {
		return err
	}
	return v.refuse("account", page, cause)
}

func (v *visit) proof() actions.Proof {
	return v.opt.SignIn.Proof(v.r, v.Visitor, v.r.PostForm.Get("password"))
}

// changedOwn goes on after a change that ended all sessions but this one, which begins anew.
func (v *visit) changedOwn(account ledger.Account, message string) error {
	if err := v.opt.SignIn.Again(v.w, v.r, account); err != nil {
		return err
	}
	return v.done("/account", message)
}

func (v *visit) changePassword() error {
	account, err := v.do.ChangePassword(v.r.Context(), v.proof(), v.r.PostForm.Get("new"))
	if err != nil {
		return v.accountRefused(err, nil)
	}
	return v.changedOwn(account, "account.password.done")
}

func (v *visit) enrol() error {
	secret := v.r.PostForm.Get("secret")
	account, err := v.do.EnrolSecondFactor(v.r.Context(), v.proof(), secret, v.r.PostForm.Get("code"))
	if err != nil {
		again := v.do.Enrolment(v.Name, secret)
		return v.accountRefused(err, &again)
	}
	return v.changedOwn(account, "account.factor.done")
}

func (v *visit) removeFactor() error {
	account, err := v.do.RemoveSecondFactor(v.r.Context(), v.proof(), v.r.PostForm.Get("code"))
	if err != nil {
		return v.accountRefused(err, nil)
	}
	return v.changedOwn(account, "account.factor.removed")
}

func (v *visit) arm() error {
	if _, err := v.opt.SignIn.Arm(v.w, v.r, v.r.PostForm.Get("code")); err != nil {
		return v.accountRefused(err, nil)
	}
	return v.done("/account", "account.arm.done")
}
