package topology

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/examples"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/release"
)

// Answer is what /route says.
type Answer struct {
	App      string `json:"app"`
	Region   string `json:"region"`
	Domain   string `json:"domain"`
	Fallback string `json:"fallback"`
	Release  uint64 `json:"release"`
	Record   string `json:"record"`
	TTL      int    `json:"ttl"`
	Session  string `json:"session"`
}

// Outcome is the answer to a change, as far as tests read it.
type Outcome struct {
	Release      uint64                `json:"release"`
	Canary       string                `json:"canary"`
	Acknowledged fleet.Acknowledgement `json:"acknowledged"`
}

// Problem is a refusal of the admin API.
type Problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

// Error is the refusal in one line.
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// Domains are the endpoints of the app mobile in Shanghai, which Swap exchanges.
type Domains struct{ Serving, Standby string }

// Request is one call of the admin API.
type Request struct {
	Method  string // default POST with a body, else GET
	Path    string // below /api/v1
	Body    any    // []byte as it is, anything else as JSON
	Token   string // default the administrator's
	Headers map[string]string
}

// Call sends a request to a control node and reads the answer into out, unless
// that is nil. A refusal is a *Problem.
func (t *Topology) Call(ctx context.Context, n *Node, r Request, out any) error {
	body, ok := r.Body.([]byte)
	if !ok && r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			return err
		}
	}
	if r.Method == "" && r.Body != nil {
		r.Method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, "http://"+n.Admin+"/api/v1"+r.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if r.Token == "" {
		r.Token = t.Token
	}
	req.Header.Set("Authorization", "Bearer "+r.Token)
	if !ok && r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		p := &Problem{Status: resp.StatusCode, Detail: string(text)}
		_ = json.Unmarshal(text, p) // what is no problem document is shown as it is
		return p
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// waitAdmin returns when the node's admin API answers.
func (t *Topology) waitAdmin(ctx context.Context, n *Node) error {
	return until(ctx, 30*time.Second, func(ctx context.Context) error {
		return t.Call(ctx, n, Request{Path: "/me"}, nil)
	})
}

// publishFirst registers hosts as two people and publishes the document.
func (t *Topology) publishFirst(ctx context.Context) error {
	var made struct{ Secret string }
	second := map[string]any{"name": "second person", "role": "approver", "days": 1, "reason": "two people for every host"}
	if err := t.Call(ctx, t.Controls[0], Request{Path: "/tokens", Body: second}, &made); err != nil {
		return err
	}
	t.Approver = made.Secret
	if t.opt.Empty {
		return nil
	}
	doc := t.opt.Document
	if doc == nil {
		var err error
		if doc, err = Document(); err != nil {
			return err
		}
	}
	hosts, err := hostsOf(doc)
	if err != nil {
		return err
	}
	if err := t.Approve(ctx, hosts...); err != nil {
		return err
	}
	if doc, err = t.uploadTables(ctx, doc); err != nil {
		return err
	}
	_, err = t.Publish(ctx, 0, doc)
	return err
}

// Approve proposes hosts as one person and approves them as another.
func (t *Topology) Approve(ctx context.Context, hosts ...string) error {
	for _, host := range hosts {
		if err := t.Call(ctx, t.Controls[0], Request{Path: "/hosts", Body: map[string]string{"host": host, "reason": "first document"}}, nil); err != nil {
			return err
		}
		if err := t.Call(ctx, t.Controls[0], Request{Path: "/approvals/" + host, Token: t.Approver, Body: map[string]string{"reason": "first document"}}, nil); err != nil {
			return err
		}
	}
	return nil
}

// uploadTables brings the tables that the document names beside it, and writes
// their digests into it.
func (t *Topology) uploadTables(ctx context.Context, doc []byte) ([]byte, error) {
	const named = "file: cn-prefixes.csv"
	if !bytes.Contains(doc, []byte(named)) {
		return doc, nil
	}
	table, err := examples.Files.ReadFile("cn-prefixes.csv")
	if err != nil {
		return nil, err
	}
	var up struct{ Digest string }
	err = t.Call(ctx, t.Controls[0], Request{Path: "/tables/cn-prefixes?reason=first+document", Body: table, Headers: map[string]string{"Content-Type": "text/csv"}}, &up)
	return bytes.Replace(doc, []byte(named), []byte("digest: "+up.Digest), 1), err
}

// Publish publishes a document that was made from release base.
func (t *Topology) Publish(ctx context.Context, base uint64, doc []byte) (Outcome, error) {
	return t.PublishBy(ctx, t.Controls[0], base, doc)
}

// PublishBy is Publish by one control node.
func (t *Topology) PublishBy(ctx context.Context, n *Node, base uint64, doc []byte) (o Outcome, err error) {
	err = t.Call(ctx, n, Request{Path: "/releases?reason=test&file=bank.yaml&approve_big_move=true", Body: doc,
		Headers: map[string]string{"If-Match": fmt.Sprint(base), "Content-Type": "application/yaml"}}, &o)
	return o, err
}

// Head is the number of the newest release.
func (t *Topology) Head(ctx context.Context) (uint64, error) {
	var list struct{ Current uint64 }
	err := t.Call(ctx, t.Controls[0], Request{Path: "/releases?limit=1"}, &list)
	return list.Current, err
}

// Swap exchanges the two endpoints of the app mobile in Shanghai, by the first
// control node.
func (t *Topology) Swap(ctx context.Context) (Outcome, error) { return t.SwapBy(ctx, t.Controls[0]) }

// SwapBy is Swap by one control node.
func (t *Topology) SwapBy(ctx context.Context, n *Node) (o Outcome, err error) {
	d := &t.Domain
	err = t.Emergency(ctx, n, map[string]any{"action": "swap", "reason": "test", "targets": []map[string]string{
		{"app": "mobile", "region": "sh", "expect": d.Serving, "from": d.Serving, "to": d.Standby}}}, &o)
	if err == nil {
		d.Serving, d.Standby = d.Standby, d.Serving
	}
	return o, err
}

// Emergency sends an emergency action on one region to a control node, confirmed as
// a person would. It comes more often than people may: the rules that it goes past
// are named.
func (t *Topology) Emergency(ctx context.Context, n *Node, action map[string]any, out *Outcome) error {
	action = maps.Clone(action)
	action["override"] = []string{"flap_wait", "rate"}
	if targets, ok := action["targets"].([]map[string]string); ok && len(targets) == 1 {
		action["confirm"] = environment + "/" + targets[0]["region"]
		if cluster := targets[0]["cluster"]; cluster != "" {
			action["confirm"] = environment + "/" + targets[0]["region"] + "/" + cluster
		}
	}
	return t.Call(ctx, n, Request{Path: "/emergency", Body: action}, out)
}

// Fleet is what a control node says of every replica.
func (t *Topology) Fleet(ctx context.Context, n *Node) ([]fleet.Member, error) {
	var page struct {
		Members []fleet.Member `json:"members"`
	}
	err := t.Call(ctx, n, Request{Path: "/fleet"}, &page)
	return page.Members, err
}

// Route asks an edge, or the reverse proxy, as an app does.
func (t *Topology) Route(ctx context.Context, addr string, headers ...string) (Answer, error) {
	return t.ask(ctx, http.MethodGet, "http://"+addr+"/route?app=mobile", nil, headers)
}

// Ask is Route with the inputs as JSON.
func (t *Topology) Ask(ctx context.Context, addr string, inputs map[string]string, headers ...string) (Answer, error) {
	body, err := json.Marshal(inputs)
	if err != nil {
		return Answer{}, err
	}
	return t.ask(ctx, http.MethodPost, "http://"+addr+"/route", body, append(headers, "Content-Type", "application/json"))
}

func (t *Topology) ask(ctx context.Context, method, url string, body []byte, headers []string) (a Answer, err error) {
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, method, url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &Problem{Status: resp.StatusCode, Detail: string(text)}
	}
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// Ready is the page of a node's readiness, whatever it says.
func (t *Topology) Ready(ctx context.Context, n *Node) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Ops+"/readyz", nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// WaitServing returns when every edge serves release n or a later one.
func (t *Topology) WaitServing(ctx context.Context, n uint64) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, edge := range t.Edges {
		g.Go(func() error { return t.WaitEdge(ctx, edge, n) })
	}
	return g.Wait()
}

// WaitEdge is WaitServing for one edge.
func (t *Topology) WaitEdge(ctx context.Context, edge *Node, n uint64) error {
	return until(ctx, 30*time.Second, func(ctx context.Context) error {
		a, err := t.Route(ctx, edge.Public)
		if err == nil && a.Release < n {
			err = fmt.Errorf("%s serves release %d, want %d", edge.Name, a.Release, n)
		}
		return err
	})
}

// until calls try every few milliseconds, until it succeeds or the limit is over.
func until(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(limited)
		if err == nil {
			return nil
		}
		select {
		case <-limited.Done():
			return errors.Join(limited.Err(), err)
		case <-tick.C:
		}
	}
}

// hostsOf are the domains and fallbacks that the document names.
func hostsOf(doc []byte) ([]string, error) {
	parsed, err := release.Parse("bank.yaml", doc)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(parsed.Domains())), nil
}

// Get wants an answer of that status whose body holds the words.
func Get(ctx context.Context, url string, status int, words string) error {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // leaves no goroutine behind
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != status || !bytes.Contains(text, []byte(words))) {
		err = fmt.Errorf("%s: status %d, want %d and %q in %.300q", url, resp.StatusCode, status, words, text)
	}
	return err
}
