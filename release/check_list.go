package release

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

const (
	// A list is valid on the whole date of its expiry, in UTC.
	day = 24 * time.Hour
	// warnBefore is how long before its expiry a list begins to warn.
	warnBefore = 30 * day
)

func (k *checker) lists() {
	k.limit("lists", len(k.doc.Lists), MaxLists)
	keys, used := k.keys("list"), k.doc.listsUsed()
	for i := range k.doc.Lists {
		l, path := &k.doc.Lists[i], fmt.Sprintf("lists[%d]", i)
		keys.check(path+".key", l.Key)
		if !l.Of.Valid() {
			k.addHint(path+".of", "write device or user", "the list does not say which ids it holds")
		}
		if l.Owner == "" {
			k.warnings.Addf(path, "nobody owns list %s; name a team as owner", quote(l.Key))
		}
		if !used[l.Key] {
			k.warnings.Addf(path, "no policy uses list %s", quote(l.Key))
		}
		if _, mixed := k.doc.FoldsIDs(l.Key); mixed {
			k.addHint(path, "give these apps one id_case, or each a list of its own",
				"apps that fold ids and apps that do not use list %s, so no spelling of an id serves both", quote(l.Key))
		}
		k.digest(path+".digest", l.Digest)
		if _, stored := k.Lists[l.Key]; k.Lists != nil && !stored && l.IDs == nil {
			k.addHint(path, "write ids, [] for none yet, or import it first", "list %s has no ids anywhere", quote(l.Key))
		}
		k.expiry(path+".expires", l)
	}
}

func (k *checker) expiry(path string, l *List) {
	if l.Expires == "" {
		return
	}
	date, err := time.Parse(time.DateOnly, l.Expires)
	if err != nil {
		k.addHint(path, "write YYYY-MM-DD", "%s is not a date", quote(l.Expires))
		return
	}
	switch left := date.Add(day).Sub(k.Now); {
	case left <= 0 && !k.AllowExpired:
		k.addHint(path, "review the list with its owner and write a later date, or remove it",
			"list %s expired at the end of %s", quote(l.Key), l.Expires)
	case left <= 0:
		k.warnings.Addf(path, "list %s expired at the end of %s", quote(l.Key), l.Expires)
	case left <= warnBefore:
		k.warnings.Addf(path, "list %s expires at the end of %s; after that nothing can be published until it is reviewed",
			quote(l.Key), l.Expires)
	}
}

func (k *checker) tables() {
	k.limit("tables", len(k.doc.Tables), MaxTables)
	keys, used := k.keys("table"), k.doc.tablesUsed()
	for i := range k.doc.Tables {
		t, path := &k.doc.Tables[i], fmt.Sprintf("tables[%d]", i)
		keys.check(path+".key", t.Key)
		if !used[t.Key] {
			k.warnings.Addf(path, "no app uses table %s as an origin", quote(t.Key))
		}
		k.digest(path+".digest", t.Digest)
		if t.File == "" && t.Digest == "" && k.Tables[t.Key] == nil {
			k.addHint(path, "name the file to upload", "table %s has neither file nor digest", quote(t.Key))
		}
	}
}

// digest checks the form of a digest; whether the blob exists is asked at publish.
func (k *checker) digest(path, digest string) {
	if digest == "" {
		return
	}
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != len(Digest{}) || hex.EncodeToString(raw) != digest {
		k.addHint(path, "leave it out; publishing writes it", "%s is not 64 digits of lower-case hex", quote(digest))
	}
}

func (d *Document) listsUsed() map[string]bool {
	used := map[string]bool{}
	d.conditions(func(w *policy.When) {
		for _, key := range w.InList {
			used[key] = true
		}
	})
	return used
}

func (d *Document) tablesUsed() map[string]bool {
	used := map[string]bool{}
	for i := range d.Apps {
		for _, o := range d.Apps[i].Origins {
			used[o.Table] = true
		}
	}
	return used
}

func (d *Document) conditions(visit func(*policy.When)) {
	for i := range d.Apps {
		d.Apps[i].conditions(visit)
	}
}

func (a *App) conditions(visit func(*policy.When)) {
	for i := range a.Policies {
		visit(&a.Policies[i].When)
		if not := a.Policies[i].When.Not; not != nil {
			visit(not)
		}
	}
}

// someLists is an index in which the document's lists exist. One that holds
// nobody is empty and each other holds a stand-in: the rules are checked for
// what they name, not for whom they match.
func (k *checker) someLists() (*whitelist.Index, error) {
	key, err := whitelist.NewKey("check", bytes.Repeat([]byte{1}, whitelist.KeySize)) // hashes nobody's id
	if err != nil {
		return nil, fmt.Errorf("make a key for lists: %w", err)
	}
	var lists []whitelist.List
	for i := range k.doc.Lists {
		l := &k.doc.Lists[i]
		twice := slices.ContainsFunc(lists, func(o whitelist.List) bool { return o.Key == l.Key })
		if !l.Of.Valid() || twice {
			continue
		}
		var ids []string
		if !k.holdsNobody(l) {
			ids = []string{"somebody"}
		}
		content, err := whitelist.Build(key, l.Of, slices.Values(ids))
		if err != nil {
			return nil, fmt.Errorf("stand in for a list: %w", err)
		}
		lists = append(lists, whitelist.List{Key: l.Key, Of: l.Of, Index: content.Index(), Chunk: content.Chunk})
	}
	index, err := new(whitelist.Index).With([]whitelist.Key{key}, lists)
	if err != nil {
		return nil, fmt.Errorf("index lists: %w", err)
	}
	return index, nil
}

// holdsNobody says whether a list will be known to be empty. Where the stored
// lists are not known, only the document's own ids say so.
func (k *checker) holdsNobody(l *List) bool {
	if l.IDs != nil {
		return len(*l.IDs) == 0
	}
	return k.Lists != nil && k.Lists[l.Key] == 0
}

// tablesFor are the document's tables, for the rules of app. A table that is not
// at hand is replaced by one that gives every label that the app's rules name.
func (k *checker) tablesFor(app *App) map[string]*policy.Prefixes {
	tables := make(map[string]*policy.Prefixes, len(k.doc.Tables))
	for _, t := range k.doc.Tables {
		tables[t.Key] = k.Tables[t.Key]
		if tables[t.Key] == nil {
			tables[t.Key] = tableOf(app)
		}
	}
	return tables
}

func tableOf(app *App) *policy.Prefixes {
	labels := []string{app.Key}
	app.conditions(func(w *policy.When) { labels = append(labels, w.Origin...) })
	var text bytes.Buffer
	rows, addr := csv.NewWriter(&text), netip.MustParseAddr("10.0.0.0")
	for _, label := range labels {
		addr = addr.Next()
		_ = rows.Write([]string{addr.String(), label}) // a buffer takes everything
	}
	rows.Flush()
	table, err := policy.ParsePrefixes(&text)
	if err != nil { // a label that no table can give; let the rules say so
		return new(policy.Prefixes)
	}
	return table
}
