package house

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestRepository(t *testing.T) {
	t.Parallel()
	repo, err := Open("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(repo.Packages) < 10 || repo.Module == "" {
		t.Fatalf("read only %d packages of module %q", len(repo.Packages), repo.Module)
	}
	used := make([]bool, len(exceptions))
	for _, rule := range rules {
		t.Run(strings.ReplaceAll(rule.name, " ", "_"), func(t *testing.T) {
			found := rule.check(repo)
			slices.SortFunc(found, func(a, b Finding) int {
				return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
			})
			for _, f := range found {
				if n := slices.IndexFunc(exceptions, func(e exception) bool {
					return e.rule == rule.name && within(f.Path, e.path)
				}); n >= 0 {
					used[n] = true
					continue
				}
				t.Error(f)
			}
		})
	}
	for i, e := range exceptions {
		if !used[i] || e.why == "" {
			t.Errorf("exception %+v is not needed any more, or gives no reason; delete it", e)
		}
	}
}

func TestOpenRefusesAFolderWithoutGit(t *testing.T) {
	t.Parallel()
	if _, err := Open(os.TempDir() + "/no/such/folder"); err == nil {
		t.Error("Open found files where there are none")
	}
}
