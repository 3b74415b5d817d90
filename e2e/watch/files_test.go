// Package watch holds what people on call look at: dashboards, alerts and the
// runbook. They are files, so they can be wrong without a compiler's notice; here
// each query is parsed, each alert fires and does not, each metric, label and value
// that they name exists, and each alert leads to a section of the runbook.
//
//	deploy/dashboards ─┐                  ┌─ promtool: parsed, fired
//	deploy/alerts ─────┼─ names, labels ──┼─ /metrics of a control node and two edges
//	docs/runbook.md ───┘                  └─ registries of a caller's parts
package watch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"dispatch.example/dispatch/internal/testenv"
)

const (
	alertsDir     = "../../deploy/alerts"
	dashboardsDir = "../../deploy/dashboards"
	runbook       = "../../docs/runbook.md"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// alert is a rule of Prometheus.
type alert struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

// alerts are those of all files, by file.
func alerts(t testing.TB) map[string][]alert {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(alertsDir, "*.yaml"))
	must(t, err)
	all := map[string][]alert{}
	for _, file := range files {
		if strings.HasSuffix(file, ".test.yaml") {
			continue
		}
		var rules struct{ Groups []struct{ Rules []alert } }
		read(t, file, &rules)
		for _, g := range rules.Groups {
			all[filepath.Base(file)] = append(all[filepath.Base(file)], g.Rules...)
		}
	}
	if len(all) != 3 {
		t.Fatalf("%d files of alerts, want edge, fleet and inner", len(all))
	}
	return all
}

func read(t testing.TB, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// Row A59, and P27 for drills: every alert is shown firing, and silent.
func TestEveryAlertFiresAndStaysSilent(t *testing.T) {
	t.Parallel()
	for file, rules := range alerts(t) {
		tests := strings.Replace(file, ".yaml", ".test.yaml", 1)
		promtool(t, alertsDir, "check", "rules", file)
		promtool(t, alertsDir, "test", "rules", tests)
		var written struct {
			Tests []struct {
				Rules []struct {
					Alertname string
					Want      []any `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		read(t, filepath.Join(alertsDir, tests), &written)
		fires, silent := map[string]bool{}, map[string]bool{}
		for _, one := range written.Tests {
			for _, r := range one.Rules {
				fires[r.Alertname] = fires[r.Alertname] || len(r.Want) > 0
				silent[r.Alertname] = silent[r.Alertname] || len(r.Want) == 0
			}
		}
		for _, a := range rules {
			if !fires[a.Alert] || !silent[a.Alert] {
				t.Errorf("%s: %s is shown firing: %v, silent: %v", tests, a.Alert, fires[a.Alert], silent[a.Alert])
			}
		}
	}
}

// Whoever is woken finds a section with four answers behind the link, and no section
// is about an alert that is gone.
func TestEveryAlertHasItsSectionOfTheRunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(runbook)
	must(t, err)
	sections := map[string]string{}
	for part := range strings.SplitSeq(string(text), "\n### ") {
		name, body, _ := strings.Cut(part, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		sections[name] = body
	}
	for file, rules := range alerts(t) {
		for _, a := range rules {
			if s := a.Labels["severity"]; s != "page" && s != "ticket" {
				t.Errorf("%s: the severity of %s is %q", file, a.Alert, s)
			}
			if want := "docs/runbook.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want || a.Annotations["summary"] == "" {
				t.Errorf("%s: %s has the annotations %v, want a summary and %s", file, a.Alert, a.Annotations, want)
			}
			body := sections[a.Alert]
			for _, question := range []string{"*" + a.Labels["severity"] + ".*", "**Users see:**", "**Look first:**", "**Do:**", "**Wake:**"} {
				if !strings.Contains(body, question) {
					t.Errorf("the runbook's section %s lacks %s", a.Alert, question)
				}
			}
			delete(sections, a.Alert)
		}
	}
	for name := range sections {
		if strings.HasPrefix(name, "Dispatch") {
			t.Errorf("the runbook has a section %s, and no alert of that name is there", name)
		}
	}
	for _, name := range regexp.MustCompile(`Dispatch[A-Z]\w+`).FindAllString(string(text), -1) {
		if !strings.Contains(string(text), "\n### "+name+"\n") {
			t.Errorf("the runbook speaks of %s, which it does not have", name)
		}
	}
	for _, named := range regexp.MustCompile(`[Dd]ashboard (Edge|Fleet|Inner layer), ([^:.;?]+)`).FindAllStringSubmatch(string(text), -1) {
		for _, title := range regexp.MustCompile(`\*([^*]+)\*`).FindAllStringSubmatch(named[2], -1) {
			if d := dashboards(t)["dispatch / "+named[1]]; !slices.ContainsFunc(d.Panels, func(p drawn) bool { return p.Title == title[1] }) {
				t.Errorf("the dashboard %s has no panel %q", named[1], title[1])
			}
		}
	}
}
