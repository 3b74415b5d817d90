package pages

import (
	"crypto/rand"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// functions are what templates can call. may is bound later, see templates.of.
func functions(c *catalogue, lang string, a assets, now func() time.Time) template.FuncMap {
	say := func(id string, pairs ...any) string { return c.say(lang, id, pairs...) }
	return template.FuncMap{
		"t":       say,
		"detail":  func(of teller) string { return c.detail(lang, of) },
		"hint":    func(of teller) string { return c.hint(lang, of) },
		"tell":    func(text fault.Text) string { return c.tell(lang, text) },
		"deed":    func(action string) string { return deed(c, say, action) },
		"may":     func(string) bool { return false },
		"key":     rand.Text,
		"asset":   a.path,
		"num":     number,
		"percent": percent,
		"share":   share,
		"time":    func(t time.Time) string { return clock(t, now(), lang) },
		"minute":  func(t time.Time) string { return t.UTC().Format("15:04") },
		"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"ago":     func(t time.Time) string { return ago(say, t, now()) },
		"seconds": func(s float64) string { return lasting(say, time.Duration(s*float64(time.Second))) },
		"lasting": func(d time.Duration) string { return lasting(say, d) },
		"spelled": func(d release.Duration) string { return spelled(say, time.Duration(d)) },
		"dict":    dict,
		"list":    func(items ...any) []any { return items },
		"join":    strings.Join,
	}
}

// deed is what made a release, in words where the catalogue has some.
func deed(c *catalogue, say func(string, ...any) string, action string) string {
	if id := "layout.did." + action; c.has(id) {
		return say(id)
	}
	return action
}

// clock is a time as people read it. All times of the console are in UTC, and say so.
func clock(t, now time.Time, lang string) string {
	switch t = t.UTC(); {
	case t.IsZero():
		return "–"
	case lang == "zh" && t.Year() == now.UTC().Year():
		return t.Format("1月2日 15:04:05 UTC")
	case lang == "zh":
		return t.Format("2006年1月2日 15:04 UTC")
	case t.Year() == now.UTC().Year():
		return t.Format("2 Jan 15:04:05 UTC")
	default:
		return t.Format("2 Jan 2006 15:04 UTC")
	}
}

func ago(say func(string, ...any) string, t, now time.Time) string {
	if t.IsZero() {
		return say("layout.never")
	}
	if d := now.Sub(t); d < 0 {
		return say("layout.ahead", "Time", lasting(say, -d))
	}
	return say("layout.ago", "Time", lasting(say, max(time.Second, now.Sub(t))))
}

// lasting is a duration in its largest unit.
func lasting(say func(string, ...any) string, d time.Duration) string {
	switch {
	case d < time.Second:
		return say("layout.seconds", "N", strconv.FormatFloat(d.Seconds(), 'f', 1, 64))
	case d < 2*time.Minute:
		return say("layout.seconds", "N", int(d.Seconds()))
	case d < 2*time.Hour:
		return say("layout.minutes", "N", int(d.Minutes()))
	case d < 48*time.Hour:
		return say("layout.hours", "N", int(d.Hours()))
	default:
		return say("layout.days", "N", int(d.Hours()/24))
	}
}

// spelled is all of a duration of whole seconds, in words: 1 h 30 min.
func spelled(say func(string, ...any) string, d time.Duration) string {
	var parts []string
	for _, unit := range []struct {
		id string
		d  time.Duration
	}{{"layout.days", 24 * time.Hour}, {"layout.hours", time.Hour}, {"layout.minutes", time.Minute}, {"layout.seconds", time.Second}} {
		if n := d / unit.d; n > 0 && (unit.id != "layout.days" || d%unit.d == 0 && n > 1) { // a day is 24 h, and 25 h are no day and an hour
			parts = append(parts, say(unit.id, "N", int(n)))
			d -= n * unit.d
		}
	}
	return strings.Join(parts, " ")
}

// number is n with thin spaces between its thousands: 1 234 567.
func number(n any) string {
	digits := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	whole, rest, _ := strings.Cut(digits, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "\u202f" + whole[i:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return sign + whole
}

// percent is a part of one: 0.051 is 5.1 %.
func percent(part float64) string {
	text := strconv.FormatFloat(part*100, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0") + "\u202f%"
}

// share is a share of ten thousand, as a number or as its text: 500 is 5 %.
func share(of any) string {
	n, err := strconv.ParseFloat(fmt.Sprint(of), 64)
	if err != nil {
		return fmt.Sprint(of)
	}
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(n/100, 'f', 2, 64), "0"), ".") + "\u202f%"
}

// dict passes several values to a template: names and values in turn.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict needs pairs, got %d values", len(pairs))
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m, nil
}
