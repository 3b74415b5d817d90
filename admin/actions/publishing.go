package actions

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// maxIDProblems is how many ids of a document that are none are named; the rest
// is counted. A person corrects in steps anyway.
const maxIDProblems = 100

// publishing collects what a document's lists and tables become, and what is
// wrong with them.
type publishing struct {
	actions      *Actions
	doc          *release.Document
	from         *release.Manifest
	uploaded     map[string]string
	listDigests  map[string]release.Digest
	tableDigests map[string]release.Digest
	prefixes     map[string]*policy.Prefixes
	blobs        []whitelist.Blob
	problems     fault.Problems
}

// err lists what is wrong in the order of the text.
func (p *publishing) err(source *release.Source) error {
	source.Locate(p.problems)
	slices.SortStableFunc(p.problems, func(x, y fault.Problem) int { return cmp.Compare(x.Line, y.Line) })
	return p.problems.Err("bad_document", "the document has mistakes; nothing was changed")
}

// tables gives each table the digest that the document states, or the one it had.
func (p *publishing) tables(ctx context.Context) error {
	p.tableDigests, p.prefixes = map[string]release.Digest{}, map[string]*policy.Prefixes{}
	for i := range p.doc.Tables {
		t, path := &p.doc.Tables[i], fmt.Sprintf("tables[%d]", i)
		upload := "POST /api/v1/tables/" + t.Key + ", then write the digest that it answers"
		digest, known := release.Digest{}, false
		if p.from != nil {
			digest, known = p.from.Tables[t.Key]
		}
		if stated := cmp.Or(t.Digest, p.uploaded[t.Key]); stated != "" {
			raw, err := hex.DecodeString(stated)
			if err != nil || len(raw) != len(digest) {
				continue // Check says so
			}
			digest, known = release.Digest(raw), true
		}
		if !known {
			p.problems = append(p.problems, fault.Problem{Path: path, Detail: "table " + t.Key + " was never uploaded", Hint: upload})
			continue
		}
		table, err := p.actions.table(ctx, digest)
		if fault.KindOf(err) == fault.NotFound {
			p.problems = append(p.problems, fault.Problem{Path: path + ".digest", Detail: "no table with this digest was uploaded", Hint: upload})
			continue
		}
		if err != nil {
			return err
		}
		t.Digest = digest.String()
		p.tableDigests[t.Key], p.prefixes[t.Key] = digest, table
	}
	return nil
}

// emptied refuses what looks like a file that was cut off: an app that had
// policies and has none, a list that had ids and shall have none.
func (p *publishing) emptied() {
	const meant = "allow_empty=true if that is meant"
	had := map[string]int{}
	for i := range document(p.from).Apps {
		app := &p.from.Document.Apps[i]
		had[app.Key] = len(app.Policies)
	}
	for i := range p.doc.Apps {
		if app := &p.doc.Apps[i]; len(app.Policies) == 0 && had[app.Key] > 0 {
			p.problems = append(p.problems, fault.Problem{Path: fmt.Sprintf("apps[%d]", i), Hint: meant,
				Detail: fmt.Sprintf("app %s has %d policies and would have none", app.Key, had[app.Key])})
		}
	}
	for i := range p.doc.Lists {
		l := &p.doc.Lists[i]
		if old, err := listOf(p.from, l.Key); err == nil && old.Count > 0 && l.IDs != nil && len(*l.IDs) == 0 {
			p.problems = append(p.problems, fault.Problem{Path: fmt.Sprintf("lists[%d].ids", i), Hint: meant,
				Detail: fmt.Sprintf("list %s has %d ids and would have none", l.Key, old.Count)})
		}
	}
}

// lists imports the ids that the document brings and keeps the other lists.
func (p *publishing) lists(ctx context.Context) error {
	p.listDigests = map[string]release.Digest{}
	for i := range p.doc.Lists {
		l, path := &p.doc.Lists[i], fmt.Sprintf("lists[%d]", i)
		index, err := p.list(ctx, l, path)
		if err != nil {
			return fmt.Errorf("list %s: %w", l.Key, err)
		}
		if index == nil {
			continue // it has a problem
		}
		digest := release.DigestOf(index.Bytes())
		p.blobs = append(p.blobs, whitelist.Blob{Digest: digest, Bytes: index.Bytes()})
		p.listDigests[l.Key] = digest
		l.IDs, l.Digest, l.Count = nil, digest.String(), index.Count
	}
	return nil
}

// list is the index of a list after the publication, nil if it has a problem
// that is in p.problems or that Check names.
func (p *publishing) list(ctx context.Context, l *release.List, path string) (*whitelist.IndexBlob, error) {
	if l.IDs != nil {
		return p.given(l, path)
	}
	old, err := listOf(p.from, l.Key)
	if err != nil {
		return nil, nil // it has no ids anywhere
	}
	folded, _ := document(p.from).FoldsIDs(l.Key)
	folds, _ := p.doc.FoldsIDs(l.Key)
	const again = "publish the list's ids with this document, so that they are read anew"
	switch {
	case old.Of != l.Of:
		p.problems = append(p.problems, fault.Problem{Path: path + ".of", Hint: again,
			Detail: fmt.Sprintf("list %s holds ids of a %s; they are not those of a %s", l.Key, old.Of, l.Of)})
		return nil, nil
	case old.Count > 0 && folded != folds:
		p.problems = append(p.problems, fault.Problem{Path: path, Hint: again,
			Detail: fmt.Sprintf("the apps that use list %s now spell ids another way", l.Key)})
		return nil, nil
	}
	stored, err := p.actions.stored(ctx, p.from, l.Key)
	if err != nil {
		return nil, err
	}
	return stored.Index, nil
}

// given reads the ids that stand in the document. Problems never repeat an id.
func (p *publishing) given(l *release.List, path string) (*whitelist.IndexBlob, error) {
	if _, mixed := p.doc.FoldsIDs(l.Key); mixed || !l.Of.Valid() {
		return nil, nil
	}
	ids, err := normalizer(p.doc, l.Key)
	if fault.KindOf(err) == fault.Invalid {
		return nil, nil // absent_ids are wrong
	}
	if err != nil {
		return nil, err
	}
	key, err := p.actions.listKey()
	if err != nil {
		return nil, err
	}
	forms, bad := make([]string, 0, len(*l.IDs)), 0
	for i, text := range *l.IDs {
		id, why := ids.Normalize(text)
		if id != "" {
			forms = append(forms, id)
			continue
		}
		if bad++; bad <= maxIDProblems {
			p.problems.Addf(fmt.Sprintf("%s.ids[%d]", path, i), "is no id: %s", why)
		}
	}
	if bad > maxIDProblems {
		p.problems.Addf(path+".ids", "%d more are no ids", bad-maxIDProblems)
	}
	if bad > 0 {
		return nil, nil
	}
	content, err := whitelist.Build(key, l.Of, slices.Values(forms))
	if err != nil {
		return nil, err
	}
	p.blobs = slices.AppendSeq(p.blobs, content.Blobs())
	return content.Index(), nil
}

// replaced warns of stored lists that a document brings other ids for: somebody
// may have imported or patched them since the document was written.
func replaced(from *release.Manifest, doc *release.Document, lists map[string]release.Digest) []fault.Problem {
	var warnings []fault.Problem
	for i := range doc.Lists {
		l := &doc.Lists[i]
		old, err := listOf(from, l.Key)
		if err != nil || from.Lists[l.Key] == lists[l.Key] {
			continue
		}
		warnings = append(warnings, fault.ProblemOf(fmt.Sprintf("lists[%d]", i),
			fault.Textf("the %d ids of list %s are replaced by %d", old.Count, l.Key, l.Count),
			fault.Textf("a document without ids leaves the stored ones as they are")))
	}
	return warnings
}
