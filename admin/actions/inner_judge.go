package actions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// What a person may do with an entry.
const (
	Accept  = "accept"
	Refuse  = "refuse"
	Isolate = "isolate"
	Lift    = "lift"
)

// VerdictInput is what a person decides about one entry.
type VerdictInput struct {
	Service string `json:"service" minLength:"1" maxLength:"200"`
	ID      string `json:"id" minLength:"1" maxLength:"500"`
	// Address and Started must be what the person saw.
	Address string    `json:"address" example:"10.0.0.1:8080"`
	Started time.Time `json:"started,omitzero"`
	Do      string    `json:"do" enum:"accept,refuse,isolate,lift" doc:"accept or refuse an entry of the queue; isolate an instance: it takes no traffic, whatever it registers; lift what was decided"`
}

// fingerprint is what the person saw.
func (in VerdictInput) fingerprint() (directory.Fingerprint, error) {
	address, err := discovery.ParseAddress(in.Address)
	if err != nil {
		return directory.Fingerprint{}, fault.New(fault.Invalid, "bad_address", "%q is no address", in.Address).WithHint("give host:port, as the directory shows it").Because(err)
	}
	return directory.Fingerprint{ID: in.ID, Address: address, Started: in.Started}, nil
}

// JudgeInstance accepts or refuses an entry of the queue, isolates an instance or lifts that.
func (a *Actions) JudgeInstance(ctx context.Context, w Write, in VerdictInput) error {
	_, err := remembered(ctx, a, w, asked{"instance_" + in.Do, in}, func(w Write) (struct{}, error) { return struct{}{}, a.judge(ctx, w, in) })
	return err
}

func (a *Actions) judge(ctx context.Context, w Write, in VerdictInput) error {
	seen, err := in.fingerprint()
	if err != nil {
		return err
	}
	v, err := a.view()
	if err != nil {
		return err
	}
	paper, was, err := a.decided(ctx, in.Service, in.ID)
	if err != nil {
		return err
	}
	if err := shown(v, was, in, seen); err != nil {
		return err
	}
	next, state, err := was.after(in.Do, seen)
	if err != nil {
		return err
	}
	next.Service, next.By, next.Reason, next.At = in.Service, w.Actor.Name, w.Reason, a.now()
	if paper.Body, err = json.Marshal(next); err != nil {
		return fmt.Errorf("write verdict about %s: %w", paper.ID, err)
	}
	paper.State = state
	c := w.change("instance_"+in.Do, clip(in.Service+"/"+in.ID))
	if c.Details, err = json.Marshal(map[string]any{"address": seen.Address, "started": seen.Started, "state": state}); err != nil {
		return fmt.Errorf("write audit details of %s: %w", c.Action, err)
	}
	if err := w.remember(struct{}{}); err != nil {
		return err
	}
	if _, err := a.Ledger.SavePaper(ctx, paper, c); err != nil {
		return err
	}
	a.Inner.Recheck()
	return nil
}

// judgement is what was decided about an entry and is on paper.
type judgement struct{ directory.Verdict }

// decided reads it; a paper of revision 0 is a new one.
func (a *Actions) decided(ctx context.Context, service, id string) (ledger.Paper, judgement, error) {
	p, err := a.Ledger.Paper(ctx, ledger.Instance, instancePaper(service, id))
	if fault.KindOf(err) == fault.NotFound {
		return ledger.Paper{Kind: ledger.Instance, ID: instancePaper(service, id)}, judgement{}, nil
	}
	if err != nil {
		return ledger.Paper{}, judgement{}, fmt.Errorf("read verdict about %s/%s: %w", service, id, err)
	}
	var was judgement
	if err := json.Unmarshal(p.Body, &was.Verdict); err != nil {
		return ledger.Paper{}, judgement{}, fmt.Errorf("read verdict about %s/%s: %w", service, id, err)
	}
	return p, was, nil
}

// maxPaperID is how many characters the id of a paper may have.
const maxPaperID = 200

// instancePaper is SERVICE/ID. What a registry calls an instance may be no id of a
// paper; then a hash stands in for it.
func instancePaper(service, id string) string {
	name := service + "/" + id
	if utf8.RuneCountInString(name) > maxPaperID || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || strings.TrimSpace(name) != name {
		sum := sha256.Sum256([]byte(name))
		return "sha256-" + hex.EncodeToString(sum[:])
	}
	return name
}

// clip shortens what a registry said to what an audit row has room for.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "")
	if runes := []rune(text); len(runes) > maxPaperID {
		return string(runes[:maxPaperID-1]) + "…"
	}
	return text
}

// after is the verdict that follows, and its state. Isolation stands above what was
// decided in the queue, which comes back when it is lifted.
func (was judgement) after(do string, seen directory.Fingerprint) (directory.Verdict, string, error) {
	next := directory.Verdict{Fingerprint: seen, Isolate: was.Isolate}
	switch do {
	case Accept:
		next.Accept = true
		return next, standing(next), nil
	case Refuse:
		next.Refuse = true
		return next, standing(next), nil
	case Isolate:
		as := same(was.Fingerprint, seen)
		next.Isolate, next.Accept, next.Refuse = true, was.Accept && as, was.Refuse && as
		return next, standing(next), nil
	case Lift:
		if next.Isolate = false; !was.Isolate && !was.Accept && !was.Refuse {
			return next, "", changedEntry("nothing is decided about %s", seen.ID)
		}
		if was.Isolate && (was.Accept || was.Refuse) {
			next.Fingerprint, next.Accept, next.Refuse = was.Fingerprint, was.Accept, was.Refuse
		}
		return next, standing(next), nil
	}
	return next, "", fault.New(fault.Invalid, "bad_verdict", "%q is none of accept, refuse, isolate, lift", do)
}

// standing is the state of a verdict's paper.
func standing(v directory.Verdict) string {
	switch {
	case v.Isolate:
		return ledger.Isolated
	case v.Accept:
		return ledger.Accepted
	case v.Refuse:
		return ledger.Refused
	}
	return ledger.Lifted
}

// shown is an error unless the directory, or what was decided before, has the entry
// as the person saw it.
func shown(v *directory.View, was judgement, in VerdictInput, seen directory.Fingerprint) error {
	var entries []directory.Fingerprint
	for _, s := range v.Queue {
		if s.Service == in.Service && s.ID == in.ID {
			entries = append(entries, s.Fingerprint)
		}
	}
	if in.Do == Isolate || in.Do == Lift {
		for _, i := range instancesOf(v, in.Service) {
			if i.ID == in.ID {
				entries = append(entries, directory.Fingerprint{ID: i.ID, Address: i.Address, Started: i.Started})
			}
		}
	}
	if in.Do == Lift && was.Service != "" {
		entries = append(entries, was.Fingerprint)
	}
	for _, e := range entries {
		if same(e, seen) {
			return nil
		}
	}
	if len(entries) == 0 {
		return changedEntry("%s of %s is not there, or nobody has to decide about it", in.ID, in.Service)
	}
	return changedEntry("%s of %s is now at %s, started %s", in.ID, in.Service, entries[0].Address, stamp(entries[0].Started))
}

func same(a, b directory.Fingerprint) bool {
	return a.ID == b.ID && a.Address == b.Address && a.Started.Equal(b.Started)
}

func changedEntry(format string, args ...any) error {
	return fault.New(fault.Conflict, "changed", format, args...).WithHint("look at the directory again (GET /api/v1/directory), then decide")
}
