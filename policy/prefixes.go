package policy

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// maxBadLines bounds the problems that one address table lists, so that a file
// of the wrong kind does not become an error of a million lines.
const maxBadLines = 1000

// Prefixes is an address table: it gives an address the label of its most
// specific prefix. It is immutable.
type Prefixes struct {
	v4     prefixSet[ip4]
	v6     prefixSet[ip6]
	labels []string
}

// ParsePrefixes reads an address table as CSV: prefix,label. A first line that
// names these columns, blank lines and lines that start with # are skipped. A
// bare address is a prefix of its full length, and an IPv4-mapped IPv6 prefix
// is its IPv4 one. The error lists every bad line: unreadable prefixes, those
// with bits set beyond their length, a prefix with two labels.
func ParsePrefixes(r io.Reader) (*Prefixes, error) {
	b := prefixBuilder{p: new(Prefixes), numbers: map[string]uint32{}}
	lines := csv.NewReader(r)
	lines.Comment = '#'
	lines.FieldsPerRecord = -1
	lines.ReuseRecord = true
	lines.TrimLeadingSpace = true
	for first := true; ; first = false {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if bad, ok := errors.AsType[*csv.ParseError](err); ok {
			b.refuse(bad.Line, bad.Err.Error())
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read address table: %w", err)
		}
		if first {
			record[0] = strings.TrimPrefix(record[0], "\ufeff")
			if isHeader(record) {
				continue
			}
		}
		line, _ := lines.FieldPos(0)
		if err := b.add(record, line); err != nil {
			b.refuse(line, err.Error())
		}
		// The text of a line is garbage at once, and that of a large table is more
		// than the table: left to the collector's own pace it would double the peak.
		if line%collectEvery == 0 {
			runtime.GC()
		}
	}
	return b.finish()
}

func isHeader(record []string) bool {
	names := []string{"prefix", "cidr", "network"}
	return len(record) == 2 && slices.Contains(names, strings.ToLower(strings.TrimSpace(record[0])))
}

// collectEvery is how many lines leave about 3 MB of garbage. A collection beside
// millions of ids, which hold no pointers, takes a few milliseconds.
const collectEvery = 1 << 16

// prefixBuilder fills a Prefixes.
type prefixBuilder struct {
	p        *Prefixes
	numbers  map[string]uint32 // of labels
	problems fault.Problems
	bad      int
}

func (b *prefixBuilder) refuse(line int, detail string) {
	if b.bad++; b.bad <= maxBadLines {
		b.problems = append(b.problems, fault.Problem{Line: line, Detail: detail})
	}
}

func (b *prefixBuilder) add(record []string, line int) error {
	if len(record) != 2 {
		return fmt.Errorf("want prefix,label, got %d fields", len(record))
	}
	prefix, err := parsePrefix(strings.TrimSpace(record[0]))
	if err != nil {
		return err
	}
	label := strings.TrimSpace(record[1])
	if label == "" {
		return fmt.Errorf("%s has no label", prefix)
	}
	number, known := b.numbers[label]
	if !known {
		if len(b.p.labels) == maxLabels {
			return fmt.Errorf("%s: more than %d labels", prefix, maxLabels)
		}
		label = strings.Clone(label) // the record shares its bytes with the whole line
		number = uint32(len(b.p.labels))
		b.numbers[label] = number
		b.p.labels = append(b.p.labels, label)
	}
	what := number<<8 | uint32(prefix.Bits())
	if addr := prefix.Addr(); addr.Is4() {
		b.p.v4.add(prefixEntry[ip4]{first: toIP4(addr), what: what, around: uint32(line)})
	} else {
		b.p.v6.add(prefixEntry[ip6]{first: toIP6(addr), what: what, around: uint32(line)})
	}
	return nil
}

func (b *prefixBuilder) finish() (*Prefixes, error) {
	b.p.v4.finish(func(first, again prefixEntry[ip4]) {
		b.clash(first.first.prefix(first.bits()), [2]uint32{first.label(), again.label()}, again.around)
	})
	b.p.v6.finish(func(first, again prefixEntry[ip6]) {
		b.clash(first.first.prefix(first.bits()), [2]uint32{first.label(), again.label()}, again.around)
	})
	if b.bad > maxBadLines {
		b.problems.Addf("", "and %d more bad lines", b.bad-maxBadLines)
	}
	if b.bad == 0 && b.p.Len() == 0 {
		b.problems.Addf("", "no prefixes")
	}
	slices.SortStableFunc(b.problems, func(x, y fault.Problem) int { return byLine(x) - byLine(y) })
	if err := b.problems.Err("bad_table", "the address table has mistakes"); err != nil {
		return nil, err
	}
	index4(&b.p.v4)
	return b.p, nil
}

// clash notes that a prefix has two labels.
func (b *prefixBuilder) clash(prefix netip.Prefix, labels [2]uint32, line uint32) {
	b.refuse(int(line), fmt.Sprintf("%s is %q here and %q before", prefix, b.p.labels[labels[1]], b.p.labels[labels[0]]))
}

// byLine sorts what has no line to the end.
func byLine(p fault.Problem) int { return cmp.Or(p.Line, math.MaxInt) }

// Lookup is the label of the most specific prefix that holds addr. IPv4-mapped
// addresses count as IPv4 and zones do not count. It does not allocate.
func (p *Prefixes) Lookup(addr netip.Addr) (label string, ok bool) {
	addr = plainAddr(addr)
	switch {
	case addr.Is4():
		if e, ok := find4(&p.v4, toIP4(addr)); ok {
			return p.labels[e.label()], true
		}
	case addr.Is6():
		if e, ok := find6(&p.v6, toIP6(addr)); ok {
			return p.labels[e.label()], true
		}
	}
	return "", false
}

// Match is the most specific prefix that holds addr, for explanations.
func (p *Prefixes) Match(addr netip.Addr) (prefix netip.Prefix, label string, ok bool) {
	addr = plainAddr(addr)
	switch {
	case addr.Is4():
		if e, ok := find4(&p.v4, toIP4(addr)); ok {
			return e.first.prefix(e.bits()), p.labels[e.label()], true
		}
	case addr.Is6():
		if e, ok := find6(&p.v6, toIP6(addr)); ok {
			return e.first.prefix(e.bits()), p.labels[e.label()], true
		}
	}
	return netip.Prefix{}, "", false
}

// Labels are all labels, in the order of the file.
func (p *Prefixes) Labels() []string { return slices.Clone(p.labels) }

// Len is the number of prefixes.
func (p *Prefixes) Len() int { return p.v4.Len() + p.v6.Len() }

// plainAddr is addr without a zone, and as IPv4 if it is IPv4 inside IPv6.
func plainAddr(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// parsePrefix reads a prefix or a bare address. Bits beyond the length are
// refused, not cleared: 10.1.2.0/8 was more likely meant as /24.
func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		addr, notAddr := netip.ParseAddr(text)
		if notAddr != nil || addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not a prefix such as 203.0.113.0/24", text)
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%s holds more than the IPv4-mapped addresses; write the IPv4 prefix", text)
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if masked := prefix.Masked(); masked != prefix {
		return netip.Prefix{}, fmt.Errorf("%s has bits set beyond its length; write %s if that is meant", text, masked)
	}
	return prefix, nil
}
