package release

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// place is where a value belongs: its path, and the field whose rules hold for it.
type place struct {
	path  string
	owner reflect.Type // the struct around it
	key   string       // of the field in owner
}

func (p place) item(i int) place {
	p.path = fmt.Sprintf("%s[%d]", p.path, i)
	return p
}

// private says that values here are ids of people or devices and never shown.
func (p place) private() bool { return p.owner == reflect.TypeFor[List]() && p.key == "ids" }

// value decodes n into v. The schema is v's type with its json tags.
func (d *decoder) value(n *node, v reflect.Value, at place) {
	switch n.kind {
	case isRefused:
		return
	case isNull:
		d.add(n.line, at.path, "write it or leave the key out", "the value is missing; it wants %s", wanted(v.Type()))
		return
	}
	switch target := v.Addr().Interface().(type) {
	case *Duration:
		d.duration(n, target, at)
		return
	case *time.Time:
		d.instant(n, target, at)
		return
	case *policy.Origin:
		d.origin(n, v, at)
		return
	case *policy.Strings:
		d.words(n, target, at)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, v, at)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), at)
	case reflect.Slice:
		d.list(n, v, at)
	case reflect.Array:
		d.array(n, v, at)
	case reflect.Map:
		d.table(n, v, at)
	case reflect.String:
		d.text(n, v, at)
	case reflect.Bool:
		d.boolean(n, v, at)
	default:
		d.integer(n, v, at)
	}
}

func (d *decoder) wrong(n *node, want string, at place) {
	got, hint := n.String(), hintFor(at)
	if at.private() {
		got = "something else"
	}
	if n.kind == isNumber && strings.HasPrefix(want, "text") {
		hint = "put it in quotes, so that every digit counts"
	}
	d.add(n.line, at.path, hint, "wants %s, got %s", want, got)
}

// wanted names a type in a message.
func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return "a duration with a unit"
	case reflect.TypeFor[time.Time]():
		return "an instant with a zone"
	case reflect.TypeFor[policy.Strings]():
		return "text or a list of texts"
	case reflect.TypeFor[policy.Origin]():
		return "a source of the origin"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Struct, reflect.Map:
		return "a map"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	default:
		return "a whole number"
	}
}

// field is a part of a struct as documents see it.
type field struct {
	key      string
	index    int
	optional bool // may be left out, and is when it is empty
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		key, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if key != "" && key != "-" {
			fields = append(fields, field{key, i, strings.HasPrefix(options, "omit")})
		}
	}
	return fields
}

func (d *decoder) object(n *node, v reflect.Value, at place) {
	if n.kind != isMapping {
		d.wrong(n, "a map", at)
		return
	}
	fields, written, typo := fieldsOf(v.Type()), map[string]bool{}, false
	for _, p := range n.pairs {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == p.key })
		if i < 0 {
			d.unknown(p, at, fields)
			typo = true
			continue
		}
		written[p.key] = true
		d.value(p.value, v.Field(fields[i].index), place{join(at.path, p.key), v.Type(), p.key})
	}
	for _, f := range fields {
		settleEmpty(v.Field(f.index), f.optional)
		if !f.optional && !written[f.key] && !typo { // a key with a typo is often the missing one
			d.add(n.line, join(at.path, f.key), "", "is required and missing")
		}
	}
}

func (d *decoder) unknown(p pair, at place, fields []field) {
	hint := ""
	if len(d.problems) < maxProblems { // the search is slow beside a key that nobody will see
		hint = nearest(p.key, fields)
	}
	d.add(p.line, join(at.path, p.key), hint, "the key %s is unknown", quote(p.key))
}

// settleEmpty gives an empty list or map the one form that survives a trip
// through JSON: nil where it is left out, else empty.
func settleEmpty(v reflect.Value, optional bool) {
	switch {
	case v.Kind() != reflect.Slice && v.Kind() != reflect.Map, v.Len() > 0:
	case optional:
		v.SetZero()
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
}

func (d *decoder) list(n *node, v reflect.Value, at place) {
	if n.kind != isSequence {
		d.wrong(n, "a list", at)
		return
	}
	if len(n.items) == 0 {
		d.refuseEmpty(n, at)
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	if plain, ok := v.Interface().([]string); ok {
		d.texts(n, plain, at)
		return
	}
	for i, item := range n.items {
		d.value(item, v.Index(i), at.item(i))
	}
}

// texts is the fast way through a list of ids: a place costs more than its text.
func (d *decoder) texts(n *node, to []string, at place) {
	for i, item := range n.items {
		if to[i] = item.text; item.kind != isText {
			d.value(item, reflect.ValueOf(&to[i]).Elem(), at.item(i))
		}
	}
}

// refuseEmpty reports an empty condition, which would match nobody while the
// same key left out matches everybody, and an empty absent_ids, which would mean
// the default.
func (d *decoder) refuseEmpty(n *node, at place) {
	const hint = "name at least one value, or leave the key out"
	switch {
	case at.owner == reflect.TypeFor[policy.When]():
		d.add(n.line, at.path, hint, "the condition is empty, so it could never hold")
	case at.owner == reflect.TypeFor[Document]() && at.key == "absent_ids":
		d.add(n.line, at.path, hint, "an empty list cannot be told from none")
	}
}

func (d *decoder) array(n *node, v reflect.Value, at place) {
	if n.kind != isSequence || len(n.items) != v.Len() {
		d.add(n.line, at.path, hintFor(at), "wants a list of exactly %d numbers", v.Len())
		return
	}
	for i, item := range n.items {
		d.value(item, v.Index(i), at.item(i))
	}
}

func (d *decoder) table(n *node, v reflect.Value, at place) {
	if n.kind != isMapping {
		d.wrong(n, "a map", at)
		return
	}
	if len(n.pairs) == 0 {
		d.refuseEmpty(n, at)
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.pairs)))
	for _, p := range n.pairs {
		element := reflect.New(v.Type().Elem()).Elem()
		inside := at
		inside.path = join(at.path, p.key)
		d.value(p.value, element, inside)
		v.SetMapIndex(reflect.ValueOf(p.key), element)
	}
}

func (d *decoder) text(n *node, v reflect.Value, at place) {
	if n.kind != isText {
		d.wrong(n, "text", at)
		return
	}
	v.SetString(n.text)
	if allowed := wordsFor(v.Type(), at); allowed != nil && !slices.Contains(allowed, n.text) {
		d.add(n.line, at.path, proposal(n.text, allowed), "%s is not one of %s", quote(n.text), strings.Join(allowed, ", "))
	}
	if at.owner == reflect.TypeFor[List]() && at.key == "expires" {
		if _, err := time.Parse(time.DateOnly, n.text); err != nil {
			d.add(n.line, at.path, "write YYYY-MM-DD, such as 2027-06-30", "%s is not a date", quote(n.text))
		}
	}
}

// words reads policy.Strings: one text or a list of them.
func (d *decoder) words(n *node, to *policy.Strings, at place) {
	if n.kind == isText {
		*to = policy.Strings{n.text}
		return
	}
	if n.kind != isSequence {
		d.wrong(n, "text or a list of texts", at)
		return
	}
	var texts []string
	d.list(n, reflect.ValueOf(&texts).Elem(), at)
	*to = texts
}

func (d *decoder) boolean(n *node, v reflect.Value, at place) {
	if n.kind != isBoolean {
		d.wrong(n, "true or false", at)
		return
	}
	v.SetBool(strings.EqualFold(n.text, "true"))
}

func (d *decoder) integer(n *node, v reflect.Value, at place) {
	digits := strings.TrimPrefix(n.text, "-")
	whole := n.kind == isNumber && digits != "" && strings.Trim(digits, "0123456789") == "" &&
		(digits == "0" || digits[0] != '0')
	if !whole {
		d.wrong(n, "a whole number in plain digits", at)
		return
	}
	least, most := int64(math.MinInt32), int64(math.MaxInt32) // no number of the schema needs more
	if v.CanUint() {
		least, most = 0, math.MaxUint32
	}
	number, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil || number < least || number > most {
		d.add(n.line, at.path, hintFor(at), "%s is not between %d and %d", n.text, least, most)
		return
	}
	if v.CanUint() {
		v.SetUint(uint64(number))
		return
	}
	v.SetInt(number)
}

func (d *decoder) duration(n *node, to *Duration, at place) {
	if n.kind != isText && n.kind != isNumber {
		d.wrong(n, "a duration with a unit", at)
		return
	}
	err := to.UnmarshalText([]byte(n.text))
	if e, ok := err.(*fault.Error); ok {
		d.add(n.line, at.path, e.Hint, "%s", e.Detail)
	}
}

func (d *decoder) instant(n *node, to *time.Time, at place) {
	const hint = "write it with its distance from UTC, such as 2027-01-31T22:00:00+08:00"
	if n.kind != isText {
		d.add(n.line, at.path, hint, "wants an instant with a zone, got %s", n)
		return
	}
	read, err := time.Parse(time.RFC3339, n.text)
	if read = read.UTC(); err == nil && read.Year() > 0 && read.Year() < 10_000 { // JSON can write no other year
		*to = read // one form, whatever zone it was written in
		return
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if _, err := time.Parse(layout, n.text); err == nil {
			d.add(n.line, at.path, hint, "%s has no zone", quote(n.text))
			return
		}
	}
	d.add(n.line, at.path, hint, "%s is not an instant", quote(n.text))
}

// origin reads the bare words hint and replica, or the map form.
func (d *decoder) origin(n *node, v reflect.Value, at place) {
	switch {
	case n.kind == isMapping:
		d.object(n, v, at)
	case n.text == "hint" && n.kind == isText:
		v.Set(reflect.ValueOf(policy.Origin{Hint: true}))
	case n.text == "replica" && n.kind == isText:
		v.Set(reflect.ValueOf(policy.Origin{Replica: true}))
	default:
		d.add(n.line, at.path, "write hint, replica, {table: KEY} or {geoip: {subdivision: {SH: sh}}}",
			"wants a source of the origin, got %s", n)
	}
}
