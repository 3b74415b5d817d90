package actions

import (
	"encoding/base32"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
)

// A second factor is TOTP as RFC 6238 has it and every app knows it: SHA-1, six
// digits, 30 s. A code of the step before or after is taken too, for clocks that
// differ; none is taken twice.
const (
	totpPeriod = 30 * time.Second
	totpSecret = 20 // bytes
)

func secretText(secret []byte) string {
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret)
}

// totpStep is the step whose code this is.
func totpStep(secret []byte, code string, now time.Time) (step int64, ok bool) {
	at := now.Unix() / int64(totpPeriod/time.Second)
	for step := at - 1; step <= at+1; step++ {
		same, err := hotp.ValidateCustom(code, uint64(step), secretText(secret), hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1})
		if err == nil && same {
			return step, true
		}
	}
	return 0, false
}
