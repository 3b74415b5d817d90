package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/release"
)

// overrideCmd is break glass: what to do on a replica when nothing behind it answers.
type overrideCmd struct {
	Set   overrideSetCmd   `cmd:"" help:"Lay actions over what this replica serves, now and after later releases, for a limited time."`
	Clear overrideClearCmd `cmd:"" help:"Take away the override in force here."`
	Show  overrideShowCmd  `cmd:"" help:"Print the override in force here."`
	Apply overrideApplyCmd `cmd:"" help:"Lay the override of a file over what this replica serves: a signed one, or JSON."`
	Sign  overrideSignCmd  `cmd:"" help:"Print an override for all replicas, made with the publisher key alone; each takes it with apply, or from Redis with publish."`

	Publish overridePublishCmd `cmd:"" help:"Put a signed override into Redis, from where every replica takes it; or end the one that is there."`
}

// overrideSocket says which process is meant.
type overrideSocket struct {
	Data           string `default:"data" placeholder:"DIR" help:"Data folder of the process."`
	OverrideSocket string `placeholder:"PATH" help:"Its socket (default DATA/override.sock)."`
}

// overrideActions are what an override does, and why.
type overrideActions struct {
	Swap        []string      `placeholder:"APP/REGION/FROM/TO" help:"The region is served by endpoint TO instead of FROM."`
	RegionState []string      `placeholder:"APP/REGION/STATE" help:"The region is active, draining or off."`
	Reason      string        `required:"" help:"Why; shown wherever the override is shown."`
	For         time.Duration `default:"4h" help:"How long; at most 24h."`
}

// override is what the flags say. Everything wrong is named at once.
func (a overrideActions) override(now time.Time) (*release.Override, error) {
	var p fault.Problems
	o := &release.Override{ID: newOverrideID(), Reason: a.Reason, Created: now.UTC().Truncate(time.Millisecond)}
	o.Until = o.Created.Add(a.For)
	for _, text := range a.Swap {
		part := strings.Split(text, "/")
		if len(part) != 4 {
			p.Addf("--swap", "%q is not APP/REGION/FROM/TO", text)
			continue
		}
		o.Actions = append(o.Actions, release.OverrideAction{Swap: &release.Swap{App: part[0], Region: part[1], From: part[2], To: part[3]}})
	}
	for _, text := range a.RegionState {
		part := strings.Split(text, "/")
		if len(part) != 3 {
			p.Addf("--region-state", "%q is not APP/REGION/STATE", text)
			continue
		}
		o.Actions = append(o.Actions, release.OverrideAction{Region: &release.SetRegion{App: part[0], Region: part[1], State: domain.RegionState(part[2])}})
	}
	if len(a.Swap)+len(a.RegionState) == 0 {
		p.Addf("--swap", "name at least one --swap or --region-state")
	}
	if a.For < time.Minute || a.For > release.MaxOverride {
		p.Addf("--for", "%s is not between 1m and %s", a.For, release.MaxOverride)
	}
	return o, p.Err("bad_override", "the override is wrong:")
}

type overrideSetCmd struct {
	overrideActions
	overrideSocket
}

// Run asks the process; it does not touch its files.
func (c *overrideSetCmd) Run(ctx context.Context, out streams) error {
	o, err := c.override(time.Now())
	if err != nil {
		return err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("write override: %w", err)
	}
	return c.ask(ctx, http.MethodPost, body, out)
}

type overrideClearCmd struct{ overrideSocket }

// Run ends what is in force.
func (c *overrideClearCmd) Run(ctx context.Context, out streams) error {
	return c.ask(ctx, http.MethodDelete, nil, out)
}

type overrideShowCmd struct{ overrideSocket }

// Run prints what is in force.
func (c *overrideShowCmd) Run(ctx context.Context, out streams) error {
	return c.ask(ctx, http.MethodGet, nil, out)
}

type overrideApplyCmd struct {
	File string `arg:"" help:"What dispatch override sign printed, or an override as JSON."`
	overrideSocket
}

// Run refuses an unsigned file that others than its owner could have written or read.
func (c *overrideApplyCmd) Run(ctx context.Context, out streams) error {
	data, err := os.ReadFile(c.File)
	if err != nil {
		return fmt.Errorf("read override: %w", err)
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		info, err := os.Stat(c.File)
		if err != nil {
			return fmt.Errorf("read override: %w", err)
		}
		if info.Mode().Perm() != 0o600 {
			return fault.New(fault.Denied, "open_file", "%s is not signed and has mode %04o: others may have written it", c.File, info.Mode().Perm()).
				WithHint("read it, then chmod 0600")
		}
	}
	return c.ask(ctx, http.MethodPost, data, out)
}

type overrideSignCmd struct {
	overrideActions
	Deployment       string `default:"dispatch" help:"Whose replicas it is for."`
	PublisherKeyFile string `required:"" placeholder:"FILE" help:"Signs it."`
}

// Run needs no process, no network and no database.
func (c *overrideSignCmd) Run(out streams) error {
	o, err := c.override(time.Now())
	if err != nil {
		return err
	}
	keys, err := release.LoadKeys(release.KeyFiles{Publisher: c.PublisherKeyFile}, false)
	if err != nil {
		return err
	}
	o.Deployment = c.Deployment
	text, err := release.SignOverride(o, keys.Publisher)
	if err != nil {
		return err
	}
	// What is printed must be what replicas will take.
	if _, err := release.OpenOverride(text, signed.TrustOf(keys.Publisher)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out.out, "%s\n", text)
	return err
}

// overrideTimeout bounds the wait for a process that hangs.
const overrideTimeout = 30 * time.Second

// ask sends one request to the socket and prints what is in force afterwards.
func (s overrideSocket) ask(ctx context.Context, method string, body []byte, out streams) error {
	path := s.OverrideSocket
	if path == "" {
		path = filepath.Join(s.Data, "override.sock")
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	ctx, cancel := context.WithTimeout(ctx, overrideTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://override/override", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the process: %w", err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("reach the process on %s: %w\ntry: --data or --override-socket as the process has it, as its login or root", path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read the answer of the process: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return refusal(answer, resp.Status)
	}
	var state overrideState
	if err := json.Unmarshal(answer, &state); err != nil {
		return fmt.Errorf("read the answer of the process: %w", err)
	}
	return state.print(out.out)
}

// refusal is the problem that a process answered, as the error that it was.
func refusal(answer []byte, status string) error {
	var b fault.Body
	if err := json.Unmarshal(answer, &b); err != nil || b.Code == "" {
		return fmt.Errorf("the process answers %s: %s", status, answer)
	}
	return &fault.Error{Kind: fault.Denied, Code: b.Code, Detail: b.Detail, Hint: b.Hint, Problems: b.Problems}
}

func (s overrideState) print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "release   %d\n", s.Release)
	o := s.Override
	if o == nil {
		b.WriteString("override  none\n")
	} else {
		fmt.Fprintf(&b, "override  %s until %s\nby        %s\nreason    %s\n", o.ID, o.Until.UTC().Format(time.RFC3339), o.By, o.Reason)
		for _, a := range o.Actions {
			fmt.Fprintf(&b, "          %s\n", a)
		}
		for _, unfit := range o.Unfit {
			fmt.Fprintf(&b, "no effect %s\n", unfit)
		}
	}
	if s.Problem != "" {
		fmt.Fprintf(&b, "problem   %s\n", s.Problem)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
