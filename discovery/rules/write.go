package rules

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Text is the rule as its file has it. While a gray runs it is not that file, and
// says so.
func (r Rule) Text() string {
	var b strings.Builder
	b.Grow(256) // a usual one
	if r.Gray != nil {
		b.WriteString("# not in Git: a gray runs; " + strings.ReplaceAll(r.Gray.String(), "\n", " ") + "\n")
	}
	b.WriteString("service: " + scalar(r.Service) + "\nupdated: " + r.Updated.UTC().Format(time.RFC3339) +
		"\nselector: {cluster: " + scalar(r.Selector.Cluster) + ", region: " + scalar(r.Selector.Region) + ", env: " + scalar(r.Selector.Env) +
		"}\nstrategy: {version: " + scalar(r.Strategy.Version) + ", weight: " + strconv.Itoa(r.Strategy.Weight) + "}\n")
	if f := r.Fallback; f != nil {
		b.WriteString("fallback: {version: " + scalar(f.Version) + ", weight: " + strconv.Itoa(f.Weight))
		if c := f.Condition; c != nil {
			b.WriteString(`, condition: "` + c.String() + `"`)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// scalar quotes what YAML would read as something else than a text: 2.10 is a number.
func scalar(text string) string {
	plain := text != "" && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(text))
	for i, c := range text {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		plain = plain && (letter || i > 0 && (c >= '0' && c <= '9' || strings.ContainsRune("._-/", c)))
	}
	if plain {
		return text
	}
	return strconv.Quote(text)
}
