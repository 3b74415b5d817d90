package inner

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/testenv"
)

// The alerts say what their tests want, and speak of metrics that exist.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	const alerts = "../../deploy/alerts"
	promtool := testenv.Tool(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "inner.yaml"}, {"test", "rules", "inner.test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = alerts
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(alerts, "inner.yaml"))
	must(t, err)
	var source strings.Builder
	for _, folder := range []string{"*", "*/*"} {
		files, err := filepath.Glob(filepath.Join("../../discovery", folder+".go"))
		must(t, err)
		for _, file := range files {
			code, err := os.ReadFile(file)
			must(t, err)
			source.Write(code)
		}
	}
	for _, metric := range regexp.MustCompile(`dispatch_\w+`).FindAllString(string(text), -1) {
		if !strings.Contains(source.String(), `"`+metric+`"`) {
			t.Errorf("an alert reads %s, which nobody exports", metric)
		}
	}
}
