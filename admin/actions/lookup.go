package actions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/whitelist"
)

// LookUpsAnHour is how many people one person may look up within an hour: whoever
// answers complaints makes a dozen, whoever goes through a list of customers
// thousands. They are counted in the audit trail, so over all control nodes.
const LookUpsAnHour = 100

const lookUpWindow = time.Hour

// LookUp is one look-up of a person's route, or its refusal.
type LookUp struct {
	By      string
	Action  string
	Alert   bool // this one was the last that the hour has room for
	Refused bool // the hour had room for no more
}

// RetryAfter is the Data of a refusal that time alone mends.
type RetryAfter struct {
	Seconds int `json:"retry_after"`
}

// turns let one at a time through for each name. Names are those of accounts and
// tokens, so there are not many.
type turns struct{ of sync.Map }

// take waits for the turn of the name and returns how to give it back.
func (t *turns) take(ctx context.Context, name string) (func(), error) {
	held, _ := t.of.LoadOrStore(name, make(chan struct{}, 1))
	turn, _ := held.(chan struct{})
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fault.New(fault.Unavailable, "busy", "other look-ups by %s took too long", name).WithHint("try again").Because(ctx.Err())
	}
}

// lookUp answers a question about a person, if its author has not asked too many.
// answer says what is written down and about whom; ids, in normal form, are written
// only as keyed hashes. One person's look-ups wait for each other, so that a hundred
// at once are a hundred and no more.
func (a *Actions) lookUp(ctx context.Context, who Actor, answer func() (ledger.Change, map[whitelist.Of]string, error)) error {
	done, err := a.asking.take(ctx, who.Name)
	if err != nil {
		return err
	}
	defer done()
	made, wait, err := a.lookUps(ctx, who.Name)
	if err != nil {
		return err
	}
	if wait > 0 {
		a.lookedUp(LookUp{By: who.Name, Refused: true})
		refusal := fault.New(fault.Throttled, "too_many_look_ups", "%s looked up %d people within the hour", who.Name, LookUpsAnHour).
			Hintf("wait %s; to know a whole list, export it", wait.Truncate(time.Second))
		refusal.Data = RetryAfter{int(wait.Seconds()) + 1}
		return refusal
	}
	c, whom, err := answer()
	if err != nil {
		return err
	}
	if err := a.recordLookUp(ctx, c, whom); err != nil {
		return err
	}
	a.lookedUp(LookUp{By: who.Name, Action: c.Action, Alert: made+1 == LookUpsAnHour})
	return nil
}

// lookUps is how many look-ups somebody made within the hour, and how long they have
// to wait for the next; 0 while there is room.
func (a *Actions) lookUps(ctx context.Context, name string) (made int, wait time.Duration, err error) {
	now := a.now()
	var at []time.Time
	for _, action := range []string{"explain", "contains"} {
		rows, err := a.Ledger.Audit(ctx, ledger.AuditFilter{Actor: name, Action: action, Since: now.Add(-lookUpWindow), Limit: LookUpsAnHour})
		if err != nil {
			return 0, 0, fmt.Errorf("count look-ups of %s: %w", name, err)
		}
		for _, row := range rows {
			at = append(at, row.At)
		}
	}
	if len(at) < LookUpsAnHour {
		return len(at), 0, nil
	}
	slices.SortFunc(at, func(x, y time.Time) int { return y.Compare(x) })
	return len(at), max(at[LookUpsAnHour-1].Add(lookUpWindow).Sub(now), time.Second), nil
}

func (a *Actions) lookedUp(l LookUp) {
	if a.LookedUp != nil {
		a.LookedUp(l)
	}
}

// recordLookUp writes down who looked up whom; ids, in normal form, only as keyed hashes.
func (a *Actions) recordLookUp(ctx context.Context, c ledger.Change, whom map[whitelist.Of]string) error {
	key, err := a.listKey()
	if err != nil {
		return err
	}
	details := map[whitelist.Of]string{}
	for of, id := range whom {
		if id != "" {
			details[of] = key.Hash(of, id).String()
		}
	}
	if c.Details, err = json.Marshal(details); err != nil {
		return fmt.Errorf("write audit details of %s: %w", c.Action, err)
	}
	if err := a.Ledger.Record(ctx, c); err != nil {
		return fmt.Errorf("record look-up: %w", err)
	}
	return nil
}
