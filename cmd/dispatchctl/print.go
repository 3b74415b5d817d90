package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// show prints an answer: as it came, or the text for people, which is printable.
func (p *program) show(answer []byte, text string) error {
	if p.json {
		text = string(answer)
	}
	_, err := io.WriteString(p.out, strings.TrimSuffix(text, "\n")+"\n")
	return err
}

// showRows prints a table, or what to say where it would have a head alone.
func (p *program) showRows(answer []byte, rows [][]string, none string) error {
	if len(rows) == 1 {
		return p.show(answer, none+"\n")
	}
	return p.show(answer, table(rows, false))
}

// printable is text that a terminal shows and does not obey. Reasons come from
// people, and a replica says of itself what it likes.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, text)
}

// table aligns rows; the first is the head. With red, what stands in the last column
// below the head is an alarm. Nothing is aligned behind it, so that its color needs
// no width.
func table(rows [][]string, red bool) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, row := range rows {
		for j, cell := range row {
			row[j] = strings.ReplaceAll(printable(cell), "\n", " ")
		}
		if last := &row[len(row)-1]; red && i > 0 && *last != "" {
			*last = "\x1b[31m" + *last + "\x1b[0m"
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a strings.Builder takes everything
	var trimmed strings.Builder
	for line := range strings.Lines(b.String()) {
		trimmed.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return trimmed.String()
}

// moment is a time as all tables show it.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// age is how long something has been so, in its largest unit.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
