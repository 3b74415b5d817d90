package admin_test

import (
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/export"
)

// A56: the rules that callers follow, with the instances of the directory, for Envoy.
func TestRulesAsEnvoy(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.hangzhou(services)
	if p := c.get(actions.Viewer, "/rules/export/envoy").refused(404, "no_rule"); !strings.Contains(p.Hint, "dispatchctl rules show") {
		t.Errorf("the hint is %q", p.Hint)
	}
	c.apply(actions.Administrator, "", "order.yaml", orderRule, "pay.yaml", payRule).applied()

	var all, one export.Export
	c.get(actions.Viewer, "/rules/export/envoy").ok().into(&all)
	c.get(actions.Viewer, "/rules/export/envoy?service=order-core&env=prod&region="+region).ok().into(&one)
	if len(all.Files) != 2 || len(one.Files) != 2 || one.Files[0].Name != "rds-prod.yaml" || one.Files[1].Name != "cds.yaml" {
		t.Fatalf("files %v and %v", all.Files, one.Files)
	}
	for _, want := range []string{"address: 10.0.0.1\n", "name: order-core/prod/v2.3.1\n", "name: order-core/prod/v2.3.0\n"} {
		if !strings.Contains(one.Files[1].Text, want) {
			t.Errorf("no %q in\n%s", want, one.Files[1].Text)
		}
	}
	for _, stranger := range []string{"address: 10.0.0.2\n", "address: 10.0.0.4\n", "pay-core"} {
		if strings.Contains(one.Files[1].Text, stranger) {
			t.Errorf("%q is in\n%s", stranger, one.Files[1].Text)
		}
	}
	if !strings.Contains(all.Files[0].Text, "weight: 70\n") || !strings.Contains(all.Files[0].Text, "name: pay-core/prod/2.10\n") {
		t.Errorf("the routes are\n%s", all.Files[0].Text)
	}
	c.get(actions.Viewer, "/rules/export/envoy?region=cn-shanghai").refused(409, "other_region")
	c.get(actions.Viewer, "/rules/export/envoy?env=test").refused(404, "no_rule")
}
