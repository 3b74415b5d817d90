package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"dispatch.example/dispatch/internal/fault"
)

// change is what every write has.
type change struct {
	Reason  string `required:"" help:"Why, in 3 characters or more; people read it in the audit trail."`
	Confirm string `placeholder:"NAME" help:"The name of what is changed, instead of typing it at the terminal."`
	Key     string `placeholder:"KEY" help:"Idempotency-Key, to ask again when an answer was lost (default: a new one)."`
}

// minReason is what the server takes for a reason, in characters.
const minReason = 3

// Validate refuses a reason that the server would refuse, before anybody is asked.
func (c change) Validate() error {
	if utf8.RuneCountInString(c.Reason) < minReason || strings.TrimSpace(c.Reason) == "" {
		return fmt.Errorf("--reason: %q is no reason: write %d characters or more", c.Reason, minReason)
	}
	return nil
}

// deed is one write. word is what a person types to confirm it. Where the server
// compares it, body takes what was typed, and preview shows what stands in the way.
type deed struct {
	what, word, method, path string
	ifMatch                  string
	body                     any
	confirmed                func(typed string) any                                   // instead of body
	preview                  func(context.Context, *program) (word string, err error) // nil: word is known
}

// do confirms the deed, sends it and prints how far it has come.
func (c change) do(ctx context.Context, p *program, d deed) error {
	var out outcome
	answer, err := c.send(ctx, p, d, &out)
	if err != nil {
		return err
	}
	if out.Release == 0 {
		return p.stranger(d.path, nil)
	}
	return p.showOutcome(answer, out, "")
}

// showOutcome prints how far a change has come, behind what else there is to say.
func (p *program) showOutcome(answer []byte, out outcome, before string) error {
	for _, w := range out.Warnings {
		fmt.Fprintln(p.log, "warning:", printable(w.String()))
	}
	if err := p.show(answer, before+printable(out.String())); err != nil {
		return err
	}
	if out.lagging() {
		return errLagging
	}
	return nil
}

// send confirms the deed, sends it and reads its answer into v.
func (c change) send(ctx context.Context, p *program, d deed, v any) ([]byte, error) {
	typed, err := c.typed(ctx, p, d)
	if err != nil {
		return nil, err
	}
	body := d.body
	if d.confirmed != nil {
		body = d.confirmed(typed)
	}
	return p.ask(ctx, request{method: cmp.Or(d.method, http.MethodPost), path: d.path, key: c.key(), ifMatch: d.ifMatch, body: body}, v)
}

// key is the idempotency key of the write.
func (c change) key() string {
	if c.Key != "" {
		return c.Key
	}
	return "dispatchctl-" + rand.Text()
}

// typed is the word that confirms the deed: from --confirm, or typed by whoever
// sits at the terminal. What the server compares goes to it as it is.
func (c change) typed(ctx context.Context, p *program, d deed) (string, error) {
	if c.Confirm != "" && d.confirmed != nil {
		return c.Confirm, nil
	}
	typed := c.Confirm
	if typed == "" {
		if !p.asks {
			return "", usageError{fault.New(fault.Invalid, "not_confirmed", "not confirmed; nothing was changed").
				WithHint("--confirm " + d.word + ", where nobody can be asked")}
		}
		if d.preview != nil {
			word, err := d.preview(ctx, p)
			if err != nil {
				return "", err
			}
			d.word = or(word, d.word)
		}
		fmt.Fprintf(p.log, "%s, on %s\ntype %s to do it: ", printable(d.what), p.base, printable(d.word))
		line, err := bufio.NewReader(p.in).ReadString('\n')
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(p.log)
		} else if err != nil {
			return "", fmt.Errorf("read confirmation: %w", err)
		}
		typed = strings.TrimSpace(line)
	}
	switch {
	case strings.EqualFold(typed, d.word):
		return typed, nil
	case typed == "":
		return "", usageError{fault.New(fault.Invalid, "not_confirmed", "not confirmed; nothing was changed").WithHint("--confirm " + d.word + ", where nobody can be asked")}
	default:
		return "", fault.New(fault.Invalid, "not_confirmed", "%q is not %s; nothing was changed", typed, d.word)
	}
}

// outcome is the answer to every write.
type outcome struct {
	Release      uint64          `json:"release"`
	Canary       string          `json:"canary"`
	Acknowledged acknowledgement `json:"acknowledged"`
	Warnings     []fault.Problem `json:"warnings"`
}

type acknowledgement struct {
	Replicas int     `json:"replicas"`
	Of       int     `json:"of"`
	After    float64 `json:"after"` // seconds
	Lagging  []struct {
		Replica string `json:"replica"`
		Number  uint64 `json:"number"`
		Why     string `json:"why"`
	} `json:"lagging"`
}

func (o outcome) lagging() bool {
	return len(o.Acknowledged.Lagging) > 0 || o.Acknowledged.Replicas < o.Acknowledged.Of
}

// String is v1042 on 6/6 after 0.4 s, and a line for each replica that lags.
func (o outcome) String() string {
	a := o.Acknowledged
	var b strings.Builder
	fmt.Fprintf(&b, "v%d on ", o.Release)
	if o.Canary != "" {
		fmt.Fprintf(&b, "its canary %s, ", o.Canary)
	}
	fmt.Fprintf(&b, "%d/%d", a.Replicas, a.Of)
	if !o.lagging() {
		digits := 1
		if a.After < 0.1 {
			digits = 3
		}
		fmt.Fprintf(&b, " after %.*f s", digits, a.After)
	}
	b.WriteByte('\n')
	for _, l := range a.Lagging {
		fmt.Fprintf(&b, "  %s serves %s: %s\n", l.Replica, version(l.Number), strings.ReplaceAll(l.Why, "\n", "\n    "))
	}
	if o.Canary != "" {
		b.WriteString("the others follow when it has served well; dispatchctl fleet shows when\n")
	}
	return b.String()
}

// version is how people call a release.
func version(n uint64) string {
	if n == 0 {
		return "no release"
	}
	return "v" + strconv.FormatUint(n, 10)
}
