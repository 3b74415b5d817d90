package actions

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// minReason is the shortest reason that says anything, in bytes: a Chinese word has more.
const minReason = 3

// asked is everything that makes a request what it is, beside who asks and why.
type asked struct {
	action string
	input  any
}

// remembered answers what was answered before under the caller's idempotency
// key, or lets do answer. do changes something with w.change, and before that
// gives w.remember what the caller will hear.
func remembered[T any](ctx context.Context, a *Actions, w Write, ask asked, do func(Write) (T, error)) (answer T, err error) {
	if len(strings.TrimSpace(w.Reason)) < minReason {
		return answer, fault.New(fault.Invalid, "no_reason", "a change needs a reason of at least %d characters", minReason).
			WithHint("say why; people read it in the audit trail")
	}
	if w.Key == "" {
		return do(w)
	}
	prints, err := a.fingerprints(w, ask)
	if err != nil {
		return answer, err
	}
	if found, err := a.earlier(ctx, w, prints, &answer); found || err != nil {
		return answer, err
	}
	w.once = &ledger.Once{Key: w.Key, Request: prints[0], Status: http.StatusOK}
	answer, err = do(w)
	if fault.KindOf(err) != fault.Conflict {
		return answer, err
	}
	// The conflict may be with the same request, which came twice at once.
	var first T
	if found, err := a.earlier(ctx, w, prints, &first); found && err == nil {
		return first, nil
	}
	return answer, err
}

// remember notes the answer that the change will give, in the change's own transaction.
func (w Write) remember(answer any) (err error) {
	if w.once == nil {
		return nil
	}
	if w.once.Response, err = json.Marshal(answer); err != nil {
		return fmt.Errorf("remember answer under idempotency key: %w", err)
	}
	return nil
}

// fingerprints of the request, current key first. They are keyed, because a
// request may hold little more than a telephone number, and a plain hash of that
// can be guessed.
func (a *Actions) fingerprints(w Write, ask asked) ([]release.Digest, error) {
	text, err := json.Marshal([]any{ask.action, w.Reason, ask.input})
	if err != nil {
		return nil, fmt.Errorf("fingerprint %s: %w", ask.action, err)
	}
	var prints []release.Digest
	for _, key := range a.Keys.List.All() {
		mac := hmac.New(sha256.New, key.Secret())
		mac.Write(text)
		prints = append(prints, release.Digest(mac.Sum(nil)))
	}
	return prints, nil
}

// earlier reads the answer under the caller's key. The release that it tells of
// is served before the caller hears of it again: the first time may have ended
// between the two.
func (a *Actions) earlier(ctx context.Context, w Write, prints []release.Digest, answer any) (found bool, err error) {
	was, found, err := a.Ledger.Once(ctx, w.Actor.Name, w.Key)
	if err != nil {
		return false, fmt.Errorf("look up idempotency key: %w", err)
	}
	if !found {
		return false, nil
	}
	same := false
	for _, print := range prints {
		same = same || print == was.Request
	}
	if !same {
		return true, fault.New(fault.Conflict, "idempotency_key_used", "this idempotency key came with another request").
			WithHint("use a new key for a new request")
	}
	if err := json.Unmarshal(was.Response, answer); err != nil {
		return true, fmt.Errorf("read earlier answer: %w", err)
	}
	return true, a.follow(ctx)
}

// follow takes the newest release of the ledger into use, if it is not yet. A
// ledger that is behind what is served has none.
func (a *Actions) follow(ctx context.Context) error {
	h, err := a.head(ctx)
	if err != nil || h.written == nil || h.lost > 0 {
		return err
	}
	if err := a.Keeper.Accept(ctx, h.newest, a.Ledger, publisher); err != nil {
		return fmt.Errorf("serve release %d: %w", h.newest.Number, err)
	}
	return nil
}
