package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// change is what every write has.
type change struct {
	Reason string `required:"" help:"Why; people read it in the audit trail."`
	Yes    bool   `help:"Do it without asking at the terminal."`
	Key    string `placeholder:"KEY" help:"Idempotency-Key, to ask again when an answer was lost (default: a new one)."`
}

// deed is one write. word is what a person types to confirm it.
type deed struct {
	what, word, path string
	body             any
}

// do confirms the deed, sends it and prints how far it has come.
func (c change) do(ctx context.Context, p *program, d deed) error {
	if !c.Yes {
		if err := p.confirm(d); err != nil {
			return err
		}
	}
	key := c.Key
	if key == "" {
		key = "dispatchctl-" + rand.Text()
	}
	var out outcome
	answer, err := p.ask(ctx, request{method: http.MethodPost, path: d.path, key: key, body: d.body}, &out)
	if err != nil {
		return err
	}
	if out.Release == 0 {
		return p.stranger(d.path, nil)
	}
	for _, w := range out.Warnings {
		fmt.Fprintln(p.log, "warning:", printable(w.String()))
	}
	if err := p.show(answer, printable(out.String())); err != nil {
		return err
	}
	if out.lagging() {
		return errLagging
	}
	return nil
}

// confirm asks whoever sits at the terminal. Without one it refuses: a script says --yes.
func (p *program) confirm(d deed) error {
	typed := ""
	if p.asks {
		fmt.Fprintf(p.log, "%s, on %s\ntype %s to do it: ", printable(d.what), p.base, printable(d.word))
		line, err := bufio.NewReader(p.in).ReadString('\n')
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(p.log)
		} else if err != nil {
			return fmt.Errorf("read confirmation: %w", err)
		}
		typed = strings.TrimSpace(line)
	}
	switch typed {
	case d.word:
		return nil
	case "":
		return usageError{fault.New(fault.Invalid, "not_confirmed", "not confirmed; nothing was changed").WithHint("--yes, where nobody can be asked")}
	default:
		return fault.New(fault.Invalid, "not_confirmed", "%q is not %s; nothing was changed", typed, d.word)
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
