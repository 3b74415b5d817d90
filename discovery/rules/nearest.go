package rules

import "strings"

// nearest is the known word that a wrong one was probably meant to be, empty if none is near.
func nearest(word string, known []string) string {
	best, least := "", len(word)/4+2 // one slip in four letters, and one more
	for _, k := range known {
		if n := distance(strings.ToLower(word), strings.ToLower(k)); n < least {
			best, least = k, n
		}
	}
	return best
}

// distance is the number of edits between two words (Levenshtein). Words that are
// longer than any value may be count as far apart.
func distance(a, b string) int {
	if len(a) > maxText || len(b) > maxText {
		return maxText
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
