package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Furnish does what people do in a day, so that every page of a demo has something
// to show: an emergency, lists with a mistake, hosts, drafts, a gray with a plan,
// services that call each other, somebody who is new.
func (s *Server) Furnish(ctx context.Context) error {
	steps := []struct {
		call    string
		body    any
		headers []string
	}{
		{"POST /emergency", map[string]any{"reason": "sh-main loses packets", "action": "swap", "confirm": Environment + "/sh",
			"targets": []any{map[string]string{"app": "corporate", "region": "sh", "expect": "sh-main", "from": "sh-main", "to": "sh-spare"}}}, nil},
		{"POST /lists/staff-devices/import?confirm=staff-devices&reason=new+phones", []byte("d-1001\nd-1002\nd-1003\nd 10 04\nd-1005\n"), []string{"Content-Type", "text/plain"}},
		{"POST /hosts", map[string]string{"host": "wapabst3.a.com.cn", "reason": "third endpoint in Shanghai"}, nil},
		{"POST /hosts", map[string]string{"host": "wapcdst2.b.com.cn", "reason": "second endpoint in Hefei"}, nil},
		{"POST /approvals/wapcdst2.b.com.cn", map[string]string{"reason": "seen the certificate"}, nil},
		{"PUT /grays/mobile/gray-10-2", map[string]any{"reason": "10.2 is out", "rev": 0, "region": "hf", "steps": []int{2000, 5000, 10000},
			"bake": "1m", "sample": 10, "signals": []any{map[string]string{"kind": "errors"}}}, nil},
		{"POST /accounts", map[string]any{"reason": "new in the team", "login": "new.engineer", "name": "New Engineer", "roles": []string{"release-engineer", "on-call"}}, nil},
	}
	for _, step := range steps {
		if err := s.patiently(ctx, step.call, step.body, step.headers...); err != nil {
			return fmt.Errorf("furnish: %w", err)
		}
	}
	if err := s.furnishInner(ctx); err != nil {
		return fmt.Errorf("furnish: %w", err)
	}
	return s.furnishDrafts(ctx)
}

// furnishDrafts leaves a draft in each of three states.
func (s *Server) furnishDrafts(ctx context.Context) error {
	var newest struct{ Current uint64 }
	if err := s.Call(ctx, s.Token, "GET /releases?limit=1", nil, &newest); err != nil {
		return err
	}
	var head struct {
		Manifest struct{ Document json.RawMessage }
	}
	if err := s.Call(ctx, s.Token, fmt.Sprintf("GET /releases/%d", newest.Current), nil, &head); err != nil {
		return err
	}
	for i, title := range []string{"Hefei takes more of the mobile bank", "Longer sessions for companies", "Night shift of the split"} {
		document := strings.Replace(string(head.Manifest.Document), `"of":6000`, fmt.Sprintf(`"of":%d`, 6000-i), 1)
		document = strings.Replace(document, `"of":4000`, fmt.Sprintf(`"of":%d`, 4000+i), 1)
		var made struct{ ID, Digest string }
		if err := s.Call(ctx, s.Token, "POST /drafts", map[string]any{"title": title, "document": document, "base": newest.Current, "reason": "agreed in the weekly meeting"}, &made); err != nil {
			return fmt.Errorf("furnish: %w", err)
		}
		path := "POST /drafts/" + url.PathEscape(made.ID)
		if i == 0 {
			continue
		}
		if err := s.Call(ctx, s.Token, path+"/submit", map[string]string{"reason": "ready"}, &made); err != nil {
			return fmt.Errorf("furnish: %w", err)
		}
		if i == 1 {
			continue
		}
		if err := s.Call(ctx, s.Token, path+"/schedule", map[string]any{"reason": "at night", "digest": made.Digest, "at": "2099-02-05T02:30 Asia/Shanghai"}, nil); err != nil {
			return fmt.Errorf("furnish: %w", err)
		}
	}
	return nil
}

// patiently calls the API again while a safety rule waits for probers, who have just begun.
func (s *Server) patiently(ctx context.Context, call string, body any, headers ...string) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for {
		err := s.Call(ctx, s.Token, call, body, nil, headers...)
		if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != "safety_rule" {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
