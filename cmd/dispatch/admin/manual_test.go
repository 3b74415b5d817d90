package admin_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
)

var update = flag.Bool("update", false, "rewrite the table of roles in docs/operate.md")

// The manual's table is that of the program.
func TestTheManualHasTheRoles(t *testing.T) {
	const file, before, after = "../../../docs/operate.md", "-run TestTheManualHasTheRoles -update -->\n", "<!-- end of roles -->"
	var table strings.Builder
	table.WriteString("| role | may |\n|---|---|\n")
	for _, role := range roles {
		var may []string
		for _, operation := range actions.Operations() {
			if allowed := actions.Roles(operation); len(allowed) < len(roles) && slices.Contains(allowed, role) {
				may = append(may, "`"+operation+"`")
			}
		}
		switch role {
		case actions.Viewer:
			may = []string{"look"}
		case actions.Administrator:
			may = []string{"everything; two people are two people all the same"}
		}
		fmt.Fprintf(&table, "| %s | %s |\n", role, strings.Join(may, " "))
	}
	text, err := os.ReadFile(file)
	must(t, err)
	head, rest, ok := strings.Cut(string(text), before)
	has, tail, ended := strings.Cut(rest, after)
	if !ok || !ended {
		t.Fatal("docs/operate.md has no place for the table of roles")
	}
	if *update {
		must(t, os.WriteFile(file, []byte(head+before+table.String()+after+tail), 0o644))
		return
	}
	if has != table.String() {
		t.Errorf("docs/operate.md has\n%s\nwant\n%s\ngo test ./cmd/dispatch/admin -run TestTheManualHasTheRoles -update", has, table.String())
	}
}
