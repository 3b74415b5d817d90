package admin_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
)

// upload sends the form of an import, its fields before the file.
func (c *control) upload(role string, fields map[string]string, file io.Reader) *reply {
	c.t.Helper()
	body, into := io.Pipe()
	form := multipart.NewWriter(into)
	go func() {
		for name, value := range fields {
			_ = form.WriteField(name, value)
		}
		if file != nil {
			part, err := form.CreateFormFile("file", "ids.txt")
			if err == nil {
				_, err = io.Copy(part, file)
			}
			_ = into.CloseWithError(err)
		}
		_ = into.CloseWithError(form.Close())
	}()
	root := strings.TrimSuffix(c.url, "/api/v1")
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, root+"/lists/staff/import", body)
	must(c.t, err)
	for name, value := range map[string]string{"Content-Type": form.FormDataContentType(), "Cookie": c.signedIn(role), "Origin": root, "Sec-Fetch-Site": "same-origin", "Accept": "text/html"} {
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	must(c.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(c.t, err)
	return &reply{t: c.t, what: "upload", status: resp.StatusCode, header: resp.Header, body: text}
}

// shows opens a page that must hold the texts.
func (c *control) shows(role, path string, texts ...string) string {
	c.t.Helper()
	body := string(c.page(role, http.MethodGet, path, nil).ok().body)
	for _, text := range texts {
		if !strings.Contains(body, text) {
			c.t.Errorf("%s has no %q:\n%s", path, text, body)
		}
	}
	return body
}

// field is a value of a form on the page.
func field(t *testing.T, page, name string) string {
	t.Helper()
	m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no field %s", name)
	}
	return m[1]
}

// An import by page: uploaded once, compared, asked for, and agreed to by somebody else.
func TestAnImportByPage(t *testing.T) {
	eachCareful(t, func(t *testing.T, c *control) {
		done := func(r *reply, to string) {
			t.Helper()
			if r.status != http.StatusSeeOther || r.header.Get("Location") != to {
				t.Fatalf("%s: %d to %q\n%s", r.what, r.status, r.header.Get("Location"), r.body)
			}
		}
		c.shows(actions.Viewer, "/lists", `href="/lists/staff"`, "release-team", "mobile/staff", "2099-12-31")
		c.shows(actions.ListManager, "/lists/staff/import", `enctype="multipart/form-data"`, `data-events="/events/import/`)
		c.page(actions.Viewer, http.MethodGet, "/lists/staff/import", nil).pageRefused(http.StatusForbidden, "role")

		bad := c.upload(actions.ListManager, map[string]string{"reason": "monthly list", "max_bad": "0"}, strings.NewReader("d-1\nnull\n"))
		if bad.pageRefused(http.StatusUnprocessableEntity, "bad_lines"); !strings.Contains(string(bad.body), "line 2") || !strings.Contains(string(bad.body), `value="monthly list"`) {
			t.Errorf("the refusal names no line, or what was typed is gone:\n%s", bad.body)
		}
		c.upload(actions.ListManager, map[string]string{"reason": "x", "max_bad": "0"}, nil).pageRefused(http.StatusUnprocessableEntity, "no_file")
		done(c.upload(actions.ListManager, map[string]string{"reason": "monthly list", "max_bad": "1"}, strings.NewReader("d-1\nd-20\nnull\n")), "/lists/staff")
		if c.size() != 10 {
			t.Fatal("the upload was used before anybody looked at it")
		}
		kept := c.imports()[0]
		c.shows(actions.ListManager, "/lists/staff", "looked at by nobody yet", "+ 1 added", "− 9 removed", "1 bad line", "/imports/"+kept.ID+"/apply", `placeholder="staff"`)
		apply := "/lists/staff/imports/" + kept.ID + "/apply"
		c.page(actions.ListManager, http.MethodPost, apply, url.Values{"reason": {"the new rota"}}).pageRefused(http.StatusUnprocessableEntity, "confirm_mismatch")
		c.page(actions.ListManager, http.MethodPost, apply, url.Values{"reason": {"the new rota"}, "confirm": {"staff"}}).pageRefused(http.StatusForbidden, "needs_approval")
		page := c.shows(actions.Approver, "/lists/staff", "waits for a second person", kept.Digest)
		c.shows(actions.Approver, "/changes?tab=review", `href="/lists/staff"`)
		sign := url.Values{"reason": {"compared with the rota"}, "digest": {field(t, page, "digest")}}
		c.page(actions.ListManager, http.MethodPost, "/lists/staff/approve", sign).pageRefused(http.StatusForbidden, "self_approval")
		done(c.page(actions.Approver, http.MethodPost, "/lists/staff/approve", sign), "/lists/staff")
		if c.size() != 2 || !c.contains("staff", "d-20") {
			t.Errorf("%d ids", c.size())
		}

		found := c.page(actions.ListManager, http.MethodPost, "/lists/staff/contains", url.Values{"id": {" d-20 "}}).ok()
		if !strings.Contains(string(found.body), "● in the list") || strings.Contains(string(found.body), "d-20") {
			t.Errorf("the search shows\n%s", found.body)
		}
		done(c.page(actions.ListManager, http.MethodPost, "/lists/staff/patch", url.Values{"reason": {"two joined"}, "add": {"d-21\r\n\r\n d-22\r\n"}}), "/lists/staff")
		export := c.page(actions.ListManager, http.MethodPost, "/lists/staff/export", url.Values{"format": {"lines"}}).ok()
		if lines := strings.Fields(string(export.body)); len(lines) != 4 || !strings.Contains(string(export.body), "d-22\n") {
			t.Errorf("exported are %q", lines)
		}
		if r := c.page(actions.ListManager, http.MethodGet, "/lists/staff/export", nil); r.status != http.StatusMethodNotAllowed {
			t.Errorf("an export by link: %d", r.status)
		}
	})
}

// While an upload is read, whoever sends it sees how far it is.
func TestAnUploadShowsItsProgress(t *testing.T) {
	t.Parallel()
	c := careful(t, "sqlite")
	file, send := io.Pipe()
	finished := make(chan *reply, 1)
	go func() {
		finished <- c.upload(actions.ListManager, map[string]string{"reason": "monthly list", "max_bad": "0", "key": "form-1"}, file)
	}()
	follow := func(role string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(c.url, "/api/v1")+"/events/import/form-1", nil)
		must(t, err)
		req.Header.Set("Cookie", c.signedIn(role))
		resp, err := (&http.Client{Timeout: 20 * time.Second}).Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		var seen bytes.Buffer
		piece := make([]byte, 4096)
		for !strings.Contains(seen.String(), "lines read") {
			n, err := resp.Body.Read(piece)
			seen.Write(piece[:n])
			if err != nil {
				return seen.String(), err
			}
		}
		return seen.String(), nil
	}
	for i := range 25_000 {
		must2(fmt.Fprintf(send, "device-%d\n", i))(t)
	}
	if seen, err := follow(actions.ListManager); err != nil || !strings.Contains(seen, "000 lines read, 0 bad") {
		t.Errorf("%v, the progress is %q", err, seen)
	}
	must(t, send.Close())
	if r := <-finished; r.status != http.StatusSeeOther || c.imports()[0].Count != 25_000 {
		t.Errorf("%d %s", r.status, r.body)
	}
}
