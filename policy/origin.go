package policy

// origin is one compiled way to find where a request comes from.
type origin struct {
	source  originSource
	name    string // of the table
	table   *Prefixes
	country map[string]string
	parts   map[string]string // by subdivision, CN-SH or SH
}

type originSource uint8

const (
	fromHint originSource = iota
	fromTable
	fromGeo
	fromReplica
)

// finding is the origin of a request: a label, empty if nothing answered, and
// which of the app's origins gave it.
type finding struct {
	label string
	by    int
}

// origin asks the app's origins in order. A label that no rule of the app can
// know, such as a hint for a region of another app, is no answer.
func (w *walker) origin() finding {
	if !w.first(knowOrigin) {
		return w.from
	}
	for i := range w.t.origins {
		if label := w.ask(&w.t.origins[i]); label != "" {
			w.from = finding{label: label, by: i}
			break
		}
	}
	return w.from
}

func (w *walker) ask(o *origin) string {
	switch o.source {
	case fromTable:
		label, _ := o.table.Lookup(w.addr)
		return label
	case fromGeo:
		return o.region(w.place())
	case fromHint:
		return w.t.knownLabel(w.req.Hint)
	default: // fromReplica
		return w.t.knownLabel(w.t.replica.Region)
	}
}

// knownLabel is label if some origin or region of the app can mean it.
func (t *Table) knownLabel(label string) string {
	if label != "" && t.labels[label] {
		return label
	}
	return ""
}

// region maps a place: the subdivision within its country, the subdivision
// alone, then the country. The lookup key CN-SH is built on the stack.
func (o *origin) region(p Place) string {
	if p.Subdivision != "" {
		var buf [16]byte
		key := append(append(append(buf[:0], p.Country...), '-'), p.Subdivision...)
		if region, ok := o.parts[string(key)]; ok {
			return region
		}
		if region, ok := o.parts[p.Subdivision]; ok {
			return region
		}
	}
	return o.country[p.Country]
}
