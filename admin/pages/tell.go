package pages

import (
	"fmt"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// What actions refuse, and how their rules stand, is English from Go: the API and the
// command line have it as it is. The catalogue knows such a sentence by its English
// format, which locale/en/faults.yaml repeats, and locale/zh/faults.yaml has the same
// values in Chinese, by their numbers where the order is another one. What it does
// not know a page shows in English.

// tellers begin the ids of what Go says.
func tellers() []string { return []string{"fault.", "rule."} }

// learn fills told.
func (c *catalogue) learn() error {
	known := map[string]string{}
	for _, lang := range languages() {
		c.told[lang] = map[string]string{}
	}
	for id, english := range c.plain["en"] {
		if !strings.HasPrefix(id, tellers()[0]) && !strings.HasPrefix(id, tellers()[1]) {
			continue
		}
		if other := known[english]; other != "" {
			return fmt.Errorf("%s: %s says the same", id, other)
		}
		known[english] = id
		for _, lang := range languages() {
			c.told[lang][english] = c.plain[lang][id]
		}
	}
	return nil
}

// tell is what Go says, in the language.
func (c *catalogue) tell(lang string, t fault.Text) string {
	if lang == languages()[0] {
		return t.String()
	}
	format, known := c.told[lang][t.Format]
	if len(t.Args) == 0 {
		if known {
			return format
		}
		return t.String()
	}
	if !known {
		format = t.Format
	}
	args := make([]any, len(t.Args))
	for i, arg := range t.Args {
		if part, ok := arg.(fault.Text); ok {
			arg = c.tell(lang, part)
		}
		args[i] = arg
	}
	return fmt.Sprintf(format, args...)
}

// teller is something with a detail and a hint, which may be empty.
type teller interface {
	Texts() (detail, hint fault.Text)
}

// detail and hint are those of something, in the language.
func (c *catalogue) detail(lang string, of teller) string {
	detail, _ := of.Texts()
	return c.tell(lang, detail)
}

func (c *catalogue) hint(lang string, of teller) string {
	_, hint := of.Texts()
	return c.tell(lang, hint)
}
