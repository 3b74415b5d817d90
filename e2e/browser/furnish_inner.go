package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
)

// furnishInner lets the demo's services ask for each other and report their load, one
// of them from another address than it registered, isolates an instance, lets a version
// grow and records a call. A server without a registry has nothing to furnish.
func (s *Server) furnishInner(ctx context.Context) error {
	view, err := s.directory(ctx)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code == "no_registry" {
		return nil
	}
	if err != nil {
		return err
	}
	var home discovery.Coordinates
	var reports []wire.Report
	for _, service := range view.Services {
		if service.Name != "order-core" {
			continue
		}
		for i, in := range service.Instances {
			cpu, memory, calls := float64(20+7*i), float64(30+3*i), int64(40*i)
			r := wire.Report{ID: in.ID, Service: service.Name, Address: in.Address, Started: in.Started, Load: discovery.Load{CPU: &cpu, Memory: &memory, Connections: &calls}}
			if home = in.Coordinates; i == 1 {
				r.Address.Port++ // the fingerprint does not fit
			}
			reports = append(reports, r)
		}
		if err := s.isolate(ctx, service.Instances[0]); err != nil {
			return err
		}
	}
	if err := s.tell(ctx, wire.ReportsPath, reports, nil); err != nil {
		return err
	}
	for _, call := range []string{"mobile-gateway order-core account-core", "web-gateway order-query account-core", "order-core pay-core risk-engine", "pay-core pay-ledger.rpc risk-engine"} {
		names := strings.Fields(call)
		ask := wire.Ask{Caller: names[0] + "-1", Service: names[0], Home: home, Services: names[1:]}
		if err := s.tell(ctx, wire.TablesPath, ask, nil); err != nil {
			return err
		}
	}
	if err := s.grow(ctx); err != nil {
		return err
	}
	return s.pick(ctx)
}

// GrownService is the service of the demo of which Furnish lets a version grow.
const GrownService = "risk-engine"

// grow takes two steps of a new version.
func (s *Server) grow(ctx context.Context) error {
	if err := s.ruled(ctx); err != nil {
		return err
	}
	const at = "POST /rules/grays/" + GrownService + "/prod"
	for _, step := range []struct {
		call string
		body map[string]any
	}{
		{at, map[string]any{"reason": "v1.5.0 passed its tests", "version": "v1.5.0"}},
		{at + "/step", map[string]any{"reason": "an hour without errors", "expect": 5}},
	} {
		if err := s.Call(ctx, s.Token, step.call, step.body, nil); err != nil {
			return fmt.Errorf("%s: %w", step.call, err)
		}
	}
	return nil
}

// ruled waits until the demo has published its first rules.
func (s *Server) ruled(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, stepTime)
	defer stop()
	tick := time.NewTicker(10 * look)
	defer tick.Stop()
	for {
		var v actions.RulesView
		if err := s.Call(ctx, s.Token, "GET /rules", nil, &v); err != nil || v.Number > 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the demo's rules: %w", ctx.Err())
		}
	}
}

// PickedCall is the id of a call that Furnish lets a demo record.
const PickedCall = "call-to-order-core"

// pick makes one pick as a caller in prod does, and sends its record.
func (s *Server) pick(ctx context.Context) error {
	home := discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod", Version: "v1"}
	var tables wire.Tables
	if err := s.tell(ctx, wire.TablesPath, wire.Ask{Caller: "web-gateway-1", Service: "web-gateway", Home: home, Services: []string{"order-core"}}, &tables); err != nil {
		return err
	}
	var region actions.RulesView
	if err := s.Call(ctx, s.Token, "GET /rules", nil, &region); err != nil {
		return err
	}
	list := tables.Services["order-core"]
	in := route.Input{Service: "order-core", Home: home, Instances: list.Instances, Rules: region.Set.Effective().For("order-core", home.Env), Number: region.Number, Scale: list.Scale}
	const draw = 0xd15fa7c4
	explained := route.Compile(in).Explain(route.Query{}, draw)
	view := route.View{Key: "web-gateway-1/1", Service: in.Service, Home: home, Digest: list.Digest, Number: in.Number, Scale: in.Scale}
	record := wire.Record{ID: PickedCall, At: time.Now(), Caller: "web-gateway-1", Service: in.Service, View: view.Key, Draw: draw, Reason: explained.Reason, Chosen: explained.Chosen}
	if explained.Rule != nil {
		record.Rule = explained.Rule.ID()
	}
	return s.tell(ctx, wire.RecordsPath, wire.Batch{Caller: record.Caller, Records: []wire.Record{record}, Views: []route.View{view}}, nil)
}

// directory waits until the server has heard from its registry.
func (s *Server) directory(ctx context.Context) (view directory.View, err error) {
	ctx, stop := context.WithTimeout(ctx, stepTime)
	defer stop()
	tick := time.NewTicker(10 * look)
	defer tick.Stop()
	for {
		err := s.Call(ctx, s.Token, "GET /directory", nil, &view)
		r, refused := errors.AsType[*Refusal](err)
		if err == nil && len(view.Services) > 0 || err != nil && (!refused || r.Code != "directory_starting") {
			return view, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return view, fmt.Errorf("wait for the directory: %w", ctx.Err())
		}
	}
}

func (s *Server) isolate(ctx context.Context, in directory.Instance) error {
	return s.Call(ctx, s.Token, "POST /directory/verdicts", map[string]any{"reason": "answers with stale prices", "service": in.Service, "id": in.ID,
		"address": in.Address, "started": in.Started, "do": "isolate"}, nil)
}

// tell posts what services of the inner layer send, and reads the answer into out,
// unless that is nil.
func (s *Server) tell(ctx context.Context, path string, body, out any) error {
	token, err := os.ReadFile(filepath.Join(s.Data, "keys", "fleet.token"))
	if err != nil {
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Fleet+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("POST %s: %s: %s", path, resp.Status, answer)
	case out == nil:
		return nil
	default:
		return json.Unmarshal(answer, out)
	}
}
