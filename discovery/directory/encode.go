package directory

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

// span is what an answer is about: changes after one version up to another, or all.
type span struct {
	from, to uint64
	full     bool
}

// pick keeps the tables that an answer needs, by name.
func (s span) pick(all []*table) []*table {
	all = slices.DeleteFunc(all, func(t *table) bool {
		if s.full {
			return t.gone
		}
		return t.changed <= s.from && t.loaded <= s.from
	})
	slices.SortFunc(all, func(a, b *table) int { return strings.Compare(a.name, b.name) })
	return slices.Compact(all)
}

// answer is a wire.Tables in the making. Its large parts are shared by all who get
// the same.
type answer struct {
	head     wire.Tables // without services and loads
	services []byte      // the JSON object; nil: none
	loads    []byte
}

// news says whether the answer is worth more than the end of a wait.
func (a *answer) news() bool { return a.head.Full || a.services != nil }

// with adds which registries are away.
func (a *answer) with(partial map[string]string) *answer {
	own := *a
	own.head.Partial = partial
	return &own
}

// newAnswer joins the bodies of tables.
func newAnswer(epoch string, s span, picked []*table) *answer {
	a := &answer{head: wire.Tables{Epoch: epoch, Version: s.to, Full: s.full}}
	var services, loads [][]byte
	for _, t := range picked {
		if s.full || t.changed > s.from {
			services = append(services, t.bodies.service(t))
		} else {
			loads = append(loads, t.bodies.load(t))
		}
	}
	a.services, a.loads = object(services), object(loads)
	return a
}

// object is a JSON object of members, nil for none.
func object(members [][]byte) []byte {
	if len(members) == 0 {
		return nil
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
}

// bodies are the JSON of one table, each made when it is first asked for.
type bodies struct {
	mu           sync.Mutex // guards the rest
	whole, loads []byte
}

// service is "NAME":{…}, a wire.Service.
func (b *bodies) service(t *table) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole == nil {
		out := wire.Service{Scale: t.scale, Load: t.load, Gone: t.gone}
		instances := []byte("[]")
		if t.list != nil {
			out.Digest, instances = t.list.digest, t.list.json
		}
		// The list has its JSON already; it takes the place of the null of a missing one.
		text := bytes.Replace(plain(out), []byte(`"instances":null`), slices.Concat([]byte(`"instances":`), instances), 1)
		b.whole = slices.Concat(plain(t.name), []byte(":"), text)
	}
	return b.whole
}

// load is "NAME":{…}, the loads of one service.
func (b *bodies) load(t *table) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loads == nil {
		loads := []byte("{}")
		if len(t.load) > 0 {
			loads = plain(t.load)
		}
		b.loads = slices.Concat(plain(t.name), []byte(":"), loads)
	}
	return b.loads
}

// plain encodes what always can be.
func plain(v any) []byte {
	text, _ := json.Marshal(v) // texts, numbers, times of four-digit years and maps of them
	return text
}

// parts are the JSON of the answer, to be written one after the other. newest is
// added where it is not nil.
func (a *answer) parts(newest []byte) [][]byte {
	head := plain(a.head)
	parts := [][]byte{head[:len(head)-1]}
	for _, more := range []struct {
		name string
		text []byte
	}{{"services", a.services}, {"loads", a.loads}, {"rules", newest}} {
		if more.text != nil {
			parts = append(parts, []byte(`,"`+more.name+`":`), more.text)
		}
	}
	return append(parts, []byte("}"))
}

// newestRules encodes a release of rules once for all who lack it.
type newestRules struct {
	mu     sync.Mutex // guards the rest
	number uint64
	text   []byte
}

func (n *newestRules) encode(s rules.Signed) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text == nil || n.number != s.Number {
		n.number, n.text = s.Number, plain(s)
	}
	return n.text
}
