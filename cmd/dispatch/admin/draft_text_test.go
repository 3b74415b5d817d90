package admin_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// rebase brings a draft onto the newest release.
func (c *control) rebase(d actions.DraftView) actions.DraftView {
	c.t.Helper()
	return c.call(request{role: actions.ReleaseEngineer, method: http.MethodPost, path: "/drafts/" + d.ID + "/rebase", body: `{"reason":"take the new base"}`,
		headers: []string{"If-Match", strconv.FormatUint(d.Rev, 10)}}).view()
}

// A rebase changes of the author's text what the others changed, and nothing else.
func TestARebaseKeepsTheAuthorsText(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		own := edit(t, "apps:\n", "# Our apps.\n\napps:\n", "        capacity: 40\n", "        capacity: 40   # half\n        # nothing below\n",
			"      - key: staff\n", "      # people of ours\n      - key: staff   # first\n        name: Staff\n", "    otherwise: {region: sh}\n", "\n    # all of them\n    otherwise: {region: hf}\n")
		d := c.draft(actions.ReleaseEngineer, own, 1)
		c.publish(1, edit(t, "capacity: 40", "capacity: 45", "{in_list: staff}", "{in_list: staff, platform: ios}"), "").ok()
		want := strings.NewReplacer("capacity: 40   # half", "capacity: 45   # half", "{in_list: staff}", "{in_list: staff, platform: [ios]}").Replace(own)
		if d = c.rebase(d); d.Document != want || d.Anew || d.Base != 2 {
			t.Errorf("on release %d, anew %v, it is\n%s\nwant\n%s", d.Base, d.Anew, d.Document, want)
		}
		page := string(c.page(actions.Viewer, http.MethodGet, "/changes/"+d.ID, nil).words("# people of ours").body)
		if strings.Contains(page, "wrote all of it anew") {
			t.Error("the page says that it was written anew")
		}
	})
}

// Where a change finds no place the text is written anew, and answer and page say so,
// until somebody edits it.
func TestARebaseSaysThatItWroteAnew(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite").twoPeople()
	lines := "          - {key: sh-main, domain: wapabst.a.com.cn}\n          - {key: sh-spare, domain: wapabst2.a.com.cn, state: standby}\n"
	own := edit(t, "        endpoints:\n"+lines, "        endpoints: [\n          {key: sh-main, domain: wapabst.a.com.cn},   # serves\n          {key: sh-spare, domain: wapabst2.a.com.cn, state: standby},   # waits\n        ]\n",
		"        capacity: 40\n", "        capacity: 41\n")
	d := c.draft(actions.ReleaseEngineer, own, 1)
	turned := strings.SplitAfter(lines, "\n")
	c.publish(1, edit(t, lines, turned[1]+turned[0]), "").ok()
	if d = c.rebase(d); !d.Anew || strings.Contains(d.Document, "#") || !strings.Contains(d.Document, "capacity: 41") {
		t.Errorf("anew %v:\n%s", d.Anew, d.Document)
	}
	c.page(actions.Viewer, http.MethodGet, "/changes/"+d.ID, nil).words("wrote all of it anew")
	if d = c.editDraft(actions.ReleaseEngineer, d, d.Document, 2).view(); d.Anew {
		t.Error("an edit did not end it")
	}
}

// What was sent as JSON is kept, shown and edited as YAML that says the same.
func TestADraftSentAsJSONIsYAML(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		doc, err := release.Parse("spare.yaml", []byte(spare(t)))
		must(t, err)
		sent := jsonOf(t, doc)
		d := c.draft(actions.ReleaseEngineer, sent, 1)
		again, err := release.Parse("draft.yaml", []byte(d.Document))
		if err != nil || !reflect.DeepEqual(again, doc) || !strings.HasPrefix(d.Document, "apps:\n  - key: mobile\n    default: true\n") {
			t.Errorf("%v\n%s", err, d.Document)
		}
		if as := c.draft(actions.ReleaseEngineer, spare(t), 1); as.Digest != d.Digest {
			t.Error("a second person would sign another document")
		}
		c.page(actions.ReleaseEngineer, http.MethodGet, "/changes/"+d.ID+"/edit", nil).words("apps:\n  - key: mobile\n")
		if d = c.editDraft(actions.ReleaseEngineer, d, sent, 1).view(); strings.HasPrefix(d.Document, "{") {
			t.Errorf("edited it is %s", d.Document)
		}
		// One from before is shown as if it had been sent today.
		paper := must2(c.store.Paper(t.Context(), ledger.Draft, d.ID))(t)
		var body map[string]any
		must(t, json.Unmarshal(paper.Body, &body))
		if body["document"] != d.Document {
			t.Errorf("stored is %v", body["document"])
		}
		body["document"] = sent
		paper.Body = []byte(jsonOf(t, body))
		must2(c.store.SavePaper(t.Context(), paper, ledger.Change{By: "test", Reason: "test", Action: "draft_edit"}))(t)
		if old := c.draftAt(d.ID); old.Document != d.Document || old.Digest != d.Digest {
			t.Errorf("from before it is %s", old.Document)
		}
	})
}
