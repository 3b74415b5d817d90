package fault

import "fmt"

// Text is a sentence with its values apart, so that a page can say it in another
// language: a catalogue knows it by its Format. Its String is the English that the
// API, the command line and the log have.
type Text struct {
	Format  string // as fmt has it
	Args    []any  // a Text among them is a part that is said in the other language too
	english string
}

// Textf is a sentence, and what stands in it.
func Textf(format string, args ...any) Text {
	return Text{Format: format, Args: args, english: fmt.Sprintf(format, args...)}
}

// Word is a sentence without values, or a part of one, as it stands.
func Word(text string) Text { return Text{Format: text, english: text} }

// Join is all texts as one: format takes two of them, "%s, %s", and then what came out
// and the next.
func Join(format string, texts []Text) (all Text) {
	for i, t := range texts {
		if i == 0 {
			all = t
			continue
		}
		all = Textf(format, all, t)
	}
	return all
}

// For is t where that is its English, and else the English as it stands: whoever
// changed a Detail by itself is not said to have meant something else.
func (t Text) For(english string) Text {
	if t.english == english {
		return t
	}
	return Word(english)
}

// String is the sentence in English.
func (t Text) String() string { return t.english }

// Said is how a detail and its hint were put together. It is a part of no JSON: who
// reads that has the English, and the code.
type Said struct{ Detail, Hint Text }

// Texts are the two, as far as they belong to the detail and the hint in English.
func (s *Said) Texts(detail, hint string) (Text, Text) {
	if s == nil {
		return Word(detail), Word(hint)
	}
	return s.Detail.For(detail), s.Hint.For(hint)
}

// Texts are the detail and the hint, for other languages.
func (e *Error) Texts() (detail, hint Text) { return e.Said.Texts(e.Detail, e.Hint) }

// Texts are the detail and the hint, for other languages.
func (b Body) Texts() (detail, hint Text) { return b.Said.Texts(b.Detail, b.Hint) }

// Texts are the detail and the hint, for other languages.
func (p Problem) Texts() (detail, hint Text) { return p.Said.Texts(p.Detail, p.Hint) }

// ProblemOf is a problem at path whose detail and hint other languages can say.
func ProblemOf(path string, detail, hint Text) Problem {
	return Problem{Path: path, Detail: detail.String(), Hint: hint.String(), Said: &Said{detail, hint}}
}
