package actions

import "strings"

// cell is a text as it stands in a table that people open: a spreadsheet takes what
// begins like a formula for one, unless ' stands before it.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
