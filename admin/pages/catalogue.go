package pages

import (
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/nicksnyder/go-i18n/v2/i18n"
	"go.yaml.in/yaml/v4"
	"golang.org/x/text/language"
)

// languages that the catalogue has, the default first.
func languages() []string { return []string{"en", "zh"} }

// catalogue is every word of every page in each language.
type catalogue struct {
	speakers map[string]*i18n.Localizer
	ids      map[string]map[string]string // language → id → file
	plain    map[string]map[string]string // language → id → the message, where it takes no values
	told     map[string]map[string]string // language → what Go says in English → the same there
	matcher  language.Matcher
}

// readCatalogue reads locale/LANGUAGE/PAGE.yaml.
func readCatalogue(files fs.FS) (*catalogue, error) {
	c := &catalogue{speakers: map[string]*i18n.Localizer{}, ids: map[string]map[string]string{}, plain: map[string]map[string]string{},
		told: map[string]map[string]string{}, matcher: language.NewMatcher([]language.Tag{language.English, language.Chinese})}
	bundle := i18n.NewBundle(language.English)
	bundle.RegisterUnmarshalFunc("yaml", yaml.Unmarshal)
	for _, lang := range languages() {
		c.ids[lang] = map[string]string{}
		names, err := fs.Glob(files, "locale/"+lang+"/*.yaml")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				return nil, err
			}
			// The library reads the language from the end of the name.
			file, err := bundle.ParseMessageFileBytes(text, strings.TrimSuffix(path.Base(name), ".yaml")+"."+lang+".yaml")
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			for _, m := range file.Messages {
				if other := c.ids[lang][m.ID]; other != "" {
					return nil, fmt.Errorf("%s: %s stands in %s too", name, m.ID, other)
				}
				c.ids[lang][m.ID] = name
			}
		}
		c.speakers[lang] = i18n.NewLocalizer(bundle, lang)
	}
	for _, lang := range languages() {
		plain := map[string]string{}
		for id := range c.ids[lang] {
			plain[id] = c.say(lang, id)
		}
		c.plain[lang] = plain
	}
	return c, c.learn()
}

// has says whether the message exists.
func (c *catalogue) has(id string) bool { return c.ids["en"][id] != "" }

// say is the message in the language. pairs are names and values; Count chooses the
// plural. A message that does not exist is its own id: a page with one ugly word is
// worth more at night than none.
func (c *catalogue) say(lang, id string, pairs ...any) string {
	if text, known := c.plain[lang][id]; known && len(pairs) == 0 {
		return text
	}
	data := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		data[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	text, err := c.speakers[lang].Localize(&i18n.LocalizeConfig{MessageID: id, TemplateData: data, PluralCount: plural(data)})
	if err != nil {
		return id
	}
	return text
}

// language is what the visitor chose, or else what the browser asks for.
func (p *Pages) language(r *http.Request) string {
	if cookie, err := r.Cookie(langCookie); err == nil && p.catalogue.speakers[cookie.Value] != nil {
		return cookie.Value
	}
	wanted, _, err := language.ParseAcceptLanguage(r.Header.Get("Accept-Language"))
	if err != nil {
		return languages()[0]
	}
	_, i, _ := p.catalogue.matcher.Match(wanted...)
	return languages()[i]
}

// plural is the Count of a message as the library wants it, nil where it has none.
func plural(data map[string]any) any {
	if count, ok := data["Count"]; ok {
		return fmt.Sprint(count)
	}
	return nil
}
