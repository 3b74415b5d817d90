package watch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"dispatch.example/dispatch/internal/testenv"
)

// dashboard is what matters of one of Grafana's.
type dashboard struct {
	UID           string
	Title         string
	SchemaVersion int
	Panels        []drawn
	Templating    struct{ List []variable }
	Annotations   struct{ List []struct{ Expr string } }
}

type drawn struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ UID string }
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct{ RefID, Expr, LegendFormat string }
}

type variable struct {
	Name, Type, Definition string
}

// dashboards are all of them, by title.
func dashboards(t testing.TB) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dashboardsDir, "*.json"))
	must(t, err)
	all := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if strings.Contains(string(text), "://") {
			t.Errorf("%s leads to a host", file)
		}
		all[d.Title] = d
	}
	if len(all) != 3 {
		t.Fatalf("%d dashboards, want edge, fleet and inner", len(all))
	}
	return all
}

// queries are those of a dashboard, as Prometheus gets them.
func (d dashboard) queries() (list []string) {
	asked := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$service", ".*")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			list = append(list, asked.Replace(target.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		list = append(list, a.Expr)
	}
	for _, v := range d.Templating.List {
		if metric, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			metric, label, _ := strings.Cut(strings.TrimSuffix(metric, ")"), ", ")
			list = append(list, fmt.Sprintf("count by (%s) (%s)", label, metric))
		}
	}
	return list
}

func TestDashboardsAreWhole(t *testing.T) {
	t.Parallel()
	uids := map[string]bool{}
	for title, d := range dashboards(t) {
		if d.UID == "" || uids[d.UID] || d.SchemaVersion < 39 {
			t.Errorf("%s has the uid %q and the schema %d", title, d.UID, d.SchemaVersion)
		}
		uids[d.UID] = true
		if len(d.Templating.List) == 0 || d.Templating.List[0].Type != "datasource" || d.Templating.List[0].Name != "datasource" {
			t.Errorf("%s does not let people choose a Prometheus", title)
		}
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W <= 0 || p.GridPos.H <= 0 {
				t.Errorf("%s: panel %d %q stands at %+v", title, p.ID, p.Title, p.GridPos)
			}
			ids[p.ID] = true
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if taken[cell] != "" {
						t.Fatalf("%s: %q lies over %q", title, p.Title, taken[cell])
					}
					taken[cell] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			refs := map[string]bool{}
			for _, target := range p.Targets {
				if refs[target.RefID] || target.Expr == "" {
					t.Errorf("%s: %q has the query %+v", title, p.Title, target)
				}
				refs[target.RefID] = true
			}
			if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
				t.Errorf("%s: %q asks %q", title, p.Title, p.Datasource.UID)
			}
		}
	}
}

// Prometheus reads every query.
func TestDashboardQueriesParse(t *testing.T) {
	t.Parallel()
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for _, d := range dashboards(t) {
		for _, q := range d.queries() {
			rules = append(rules, rule{fmt.Sprintf("query_%d", len(rules)), q})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": rules}}})
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "queries.yaml"), text, 0o600))
	out := promtool(t, dir, "check", "rules", "queries.yaml")
	if want := fmt.Sprintf("%d rules found", len(rules)); !strings.Contains(out, want) {
		t.Errorf("promtool says %s, want %s", out, want)
	}
}

// promtool runs Prometheus' own checks in a folder.
func promtool(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testenv.Tool(t, "promtool"), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
	return string(out)
}
