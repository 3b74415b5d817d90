package actions

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"

	"dispatch.example/dispatch/internal/fault"
)

// Passwords makes what is kept of a password, and compares.
type Passwords interface {
	Hash(ctx context.Context, password string) (string, error)
	Matches(ctx context.Context, password, hash string) (bool, error)
}

// argon2 is argon2id. Each password takes 64 MiB and one processor for about a
// fifth of a second, so only as many are worked on at once as there are slots:
// guesses queue, and memory has a bound.
type argon2 struct{ slots chan struct{} }

// maxSlots bounds the memory on large machines: 4 × 64 MiB.
const maxSlots = 4

// Argon2id is how passwords are kept.
func Argon2id() Passwords {
	return argon2{make(chan struct{}, min(runtime.GOMAXPROCS(0), maxSlots))}
}

// cost is the second choice of RFC 9106, section 4, with one lane in place of
// four: one password shall not take every processor.
func cost() *argon2id.Params {
	return &argon2id.Params{Memory: 64 << 10, Iterations: 3, Parallelism: 1, SaltLength: 16, KeyLength: 32}
}

func (a argon2) Hash(ctx context.Context, password string) (hash string, err error) {
	err = a.queued(ctx, func() (err error) {
		hash, err = argon2id.CreateHash(password, cost())
		return err
	})
	return hash, err
}

func (a argon2) Matches(ctx context.Context, password, hash string) (same bool, err error) {
	err = a.queued(ctx, func() (err error) {
		same, err = argon2id.ComparePasswordAndHash(password, hash)
		return err
	})
	return same, err
}

func (a argon2) queued(ctx context.Context, f func() error) error {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
		if err := f(); err != nil {
			return fmt.Errorf("hash password: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "busy", "too many people sign in at this moment").WithHint("try again").Because(ctx.Err())
	}
}

const (
	// minPassword is what a password that people choose has at least, in characters:
	// NIST SP 800-63B asks for 8 with a second factor and 15 without.
	minPassword = 12
	maxPassword = 256 // bytes; argon2 reads all of them
)

// passwordProblem says why a password cannot be taken, empty if it can.
func passwordProblem(login, password string) string {
	switch folded := strings.ToLower(password); {
	case utf8.RuneCountInString(password) < minPassword:
		return fmt.Sprintf("has fewer than %d characters", minPassword)
	case len(password) > maxPassword || !utf8.ValidString(password):
		return fmt.Sprintf("has more than %d bytes, or is no text", maxPassword)
	case strings.Contains(folded, strings.ToLower(login)):
		return "holds the login"
	case strings.Trim(folded, folded[:1]) == "":
		return "is one character many times"
	default:
		return ""
	}
}

// OneTimeFor is how long a one-time password holds that a user admin hands out: a
// working day and the night behind it.
const OneTimeFor = 24 * time.Hour

// OneTimePassword has 100 bits, in groups that can be read aloud.
func OneTimePassword() string {
	text := strings.ToLower(rand.Text()[:20])
	return text[:5] + "-" + text[5:10] + "-" + text[10:15] + "-" + text[15:]
}
