package actions

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// ListInfo is a list of the current release.
type ListInfo struct {
	Key     string       `json:"key"`
	Of      whitelist.Of `json:"of"`
	Owner   string       `json:"owner,omitempty"`
	Expires string       `json:"expires,omitempty"`
	Expiry  string       `json:"expiry" enum:"none,later,soon,past" doc:"soon: within 30 days; past: nothing can be published before the list is reviewed"`
	Count   int          `json:"count"`
	Folds   bool         `json:"folds" doc:"whether ids are compared without letter case"`
	UsedBy  []ListUse    `json:"used_by" doc:"policies whose conditions name it; none: it decides nothing"`
}

// ListUse is a policy that asks for a list.
type ListUse struct {
	App    string `json:"app"`
	Policy string `json:"policy"`
	Not    bool   `json:"not,omitempty" doc:"it wants ids that are not in the list"`
}

// How near the end of a list's life is.
const (
	NeverExpires = "none"
	ExpiresLater = "later"
	ExpiresSoon  = "soon"
	Expired      = "past"
)

// expireSoon is how long before its end a list is shown as ending: the check of
// documents warns as long before.
const expireSoon = 30 * 24 * time.Hour

// Lists are the lists of the release in use.
func (a *Actions) Lists() []ListInfo {
	infos := []ListInfo{}
	cur := a.Keeper.Current()
	if cur == nil {
		return infos
	}
	for i := range cur.Manifest.Document.Lists {
		infos = append(infos, a.listInfo(cur, &cur.Manifest.Document.Lists[i]))
	}
	return infos
}

// List is one list of the release in use.
func (a *Actions) List(key string) (ListInfo, error) {
	cur := a.Keeper.Current()
	if cur == nil {
		return ListInfo{}, noRelease()
	}
	l, err := listOf(cur.Manifest, key)
	if err != nil {
		return ListInfo{}, err
	}
	return a.listInfo(cur, l), nil
}

func (a *Actions) listInfo(cur *release.Snapshot, l *release.List) ListInfo {
	folds, _ := cur.Manifest.Document.FoldsIDs(l.Key)
	return ListInfo{Key: l.Key, Of: l.Of, Owner: l.Owner, Expires: l.Expires, Expiry: expiry(l.Expires, a.now()),
		Count: cur.Lists.Count(l.Key), Folds: folds, UsedBy: usersOf(&cur.Manifest.Document, l.Key)}
}

// expiry is how near the end of the day is, in UTC.
func expiry(date string, now time.Time) string {
	day, err := time.Parse(time.DateOnly, date)
	if err != nil {
		return NeverExpires
	}
	switch left := day.AddDate(0, 0, 1).Sub(now); {
	case left <= 0:
		return Expired
	case left <= expireSoon:
		return ExpiresSoon
	default:
		return ExpiresLater
	}
}

// usersOf are the policies that name the list.
func usersOf(doc *release.Document, list string) []ListUse {
	uses := []ListUse{}
	for i := range doc.Apps {
		for j := range doc.Apps[i].Policies {
			p := &doc.Apps[i].Policies[j]
			if slices.Contains(p.When.InList, list) {
				uses = append(uses, ListUse{App: doc.Apps[i].Key, Policy: p.Key})
			}
			if p.When.Not != nil && slices.Contains(p.When.Not.InList, list) {
				uses = append(uses, ListUse{App: doc.Apps[i].Key, Policy: p.Key, Not: true})
			}
		}
	}
	return uses
}

// Contains says whether the release in use has the id in the list; absent is why
// the text counts as no id. Who asked is written down and bounded as for Explain.
func (a *Actions) Contains(ctx context.Context, who Actor, list, raw string) (contains bool, absent string, err error) {
	cur := a.Keeper.Current()
	if cur == nil {
		return false, "", noRelease()
	}
	l, err := listOf(cur.Manifest, list)
	if err != nil {
		return false, "", err
	}
	ids, err := normalizer(&cur.Manifest.Document, list)
	if err != nil {
		return false, "", err
	}
	id, why := ids.Normalize(raw)
	if id == "" {
		return false, why.String(), nil
	}
	err = a.lookUp(ctx, who, func() (ledger.Change, map[whitelist.Of]string, error) {
		n, _ := cur.Lists.Number(list)
		contains = cur.Lists.Lookup(l.Of, id).Has(n)
		return Write{Actor: who}.change("contains", list), map[whitelist.Of]string{l.Of: id}, nil
	})
	return contains && err == nil, "", err
}

func listOf(m *release.Manifest, key string) (*release.List, error) {
	doc := document(m)
	for i := range doc.Lists {
		if doc.Lists[i].Key == key {
			return &doc.Lists[i], nil
		}
	}
	return nil, fault.New(fault.NotFound, "unknown_list", "the current document has no list %q", key).
		WithHint("publish a document that names it first, with ids: [] if there are none yet")
}

// normalizer gives the ids of a list the form that the apps using it look for.
func normalizer(doc *release.Document, list string) (*whitelist.Normalizer, error) {
	folds, mixed := doc.FoldsIDs(list)
	if mixed {
		return nil, fault.New(fault.Invalid, "mixed_id_case", "list %s is used by apps that fold ids and by apps that do not", list).
			WithHint("give those apps one id_case, or each its own list")
	}
	return whitelist.NewNormalizer(doc.AbsentIDs, folds)
}

// listKey is the key that new lists are hashed under.
func (a *Actions) listKey() (whitelist.Key, error) {
	k := a.Keys.List.Current()
	return whitelist.NewKey(k.ID(), k.Secret())
}

// stored is a list as m has it, with its raw ids at hand.
func (a *Actions) stored(ctx context.Context, m *release.Manifest, list string) (*whitelist.Stored, error) {
	l, err := listOf(m, list)
	if err != nil {
		return nil, err
	}
	data, err := a.Ledger.Blob(ctx, m.Lists[list])
	if err != nil {
		return nil, fmt.Errorf("read index of list %s: %w", list, err)
	}
	index, err := whitelist.ParseIndexBlob(data)
	if err != nil {
		return nil, fmt.Errorf("read index of list %s: %w", list, err)
	}
	for _, k := range a.Keys.List.All() {
		if k.ID() != index.KeyID {
			continue
		}
		key, err := whitelist.NewKey(k.ID(), k.Secret())
		if err != nil {
			return nil, err
		}
		return &whitelist.Stored{Key: key, Of: l.Of, Index: index, Raw: func(n int) ([]byte, error) {
			raw, err := a.Ledger.Raw(ctx, index.Digests[n])
			if fault.CodeOf(err) == "no_raw_ids" {
				err = fault.New(fault.Conflict, "no_raw_ids", "raw ids of list %s are not in the database: it was adopted from the fleet", list).
					WithHint("import the whole list again").Because(whitelist.ErrNoRaw)
			}
			return raw, err
		}}, nil
	}
	return nil, fault.New(fault.Unavailable, "missing_key", "list %s is hashed under the key %s, which is not here", list, index.KeyID).
		WithHint("bring the list key file that the other nodes use, --list-key-file")
}
