package signin

import (
	"net/url"
	"strings"
)

// Local is next if it is a path of this console, else the first page. Whoever makes
// a link to the sign-in page must not choose where it leads afterwards. What browsers
// read as another host (//evil, /\evil, and both with white space inside) is no path
// that starts with one slash and a letter.
func Local(next string) string {
	const first = "/"
	path, query, _ := strings.Cut(next, "?")
	if len(path) < 2 || path[0] != '/' || strings.Trim(path, pathLetters) != "" || strings.Contains(path, "//") || strings.Contains(path, "..") {
		return first
	}
	if known, _, _ := strings.Cut(path[1:], "/"); known == "login" || known == "logout" || known == "api" {
		return first
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return first
	}
	if len(values) > 0 {
		path += "?" + values.Encode()
	}
	return path
}

// pathLetters are those of our paths: keys, numbers and hosts.
const pathLetters = "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
