package pages

import (
	"net/http"
	"testing"

	"dispatch.example/dispatch/admin/actions"
)

func TestOverviewIsShown(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	a := c.get("/").has(t, "<h1>", "Overview", "v1")
	if a.StatusCode != http.StatusOK {
		t.Errorf("status %d", a.StatusCode)
	}
	c.get("/", "Accept-Language", "zh-CN,zh;q=0.9").has(t, "总览", `lang="zh-Hans"`)
}
