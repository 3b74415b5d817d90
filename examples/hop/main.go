// Command hop is a service with two ports that calls others by their names. It
// shows the whole inner layer in one file: register, call, leave.
//
// docs/inner-layer.md, In ten minutes, runs it.
//
// Its port api answers GET / with where it stands, and with where its calls went:
//
//	GET /?path=order.api,stock.api   calls order.api, which calls stock.api
//	GET /?path=order.api&n=1000      makes a thousand calls and counts where they went
//	GET /?path=order.api&keep=true   also says under which ID the decision is recorded
//
// Each request is one line on standard error, with the IDs of its trace, which
// dispatchctl trace reads, and of one that failed with the record of the call at fault.
// Before the first tables are loaded the answer is 503.
//
// Its port control answers GET /healthz and, for Prometheus, GET /metrics. POST
// /direct?on=true throws the kill switch of this process.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/heartbeat"
	"dispatch.example/dispatch/discovery/httpcall"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/trace"
	"dispatch.example/dispatch/internal/signed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hop:", err)
		stop()
		os.Exit(1)
	}
}

// config is what the command line says.
type config struct {
	server, listen, control     string
	registry, rules, callees    string
	fleet, token, trust, copies string
	overrides                   string
	isolate, loopback           bool
}

func (c *config) parse(args []string) error {
	flags := flag.NewFlagSet("hop", flag.ContinueOnError)
	flags.StringVar(&c.server, "server", "hop", "name of this server: its ports are SERVER.api and SERVER.control")
	flags.StringVar(&c.listen, "listen", "127.0.0.1:0", "address of the port api")
	flags.StringVar(&c.control, "control", "127.0.0.1:0", "address of the port control")
	flags.StringVar(&c.registry, "registry", "", "static:FILE, consul://HOST:PORT or nacos://HOST:PORT")
	flags.StringVar(&c.callees, "calls", "", "services that are called, separated by commas")
	flags.StringVar(&c.rules, "rules", "", "folder of rules, where no control node hands them out")
	flags.StringVar(&c.fleet, "fleet", "", "URLs of control nodes' fleet listeners, separated by commas")
	flags.StringVar(&c.token, "fleet-token-file", "", "their token")
	flags.StringVar(&c.trust, "trust-keys", "", "public keys whose rules are believed, from dispatch keys export")
	flags.StringVar(&c.copies, "dir", "", "folder for the copy of the tables that starts this process when everything else is down")
	flags.StringVar(&c.overrides, "override", "", "NAME@IP:PORT;IP:PORT, several separated by commas")
	flags.BoolVar(&c.isolate, "isolate", false, "instances of developers are their own")
	flags.BoolVar(&c.loopback, "loopback", false, "register addresses that only this machine reaches")
	return flags.Parse(args)
}

// run is a service's main: listen, register, serve, leave.
func run(ctx context.Context, args []string) error {
	var c config
	if err := c.parse(args); err != nil {
		return err
	}
	log := slog.New(trace.Handler(slog.NewJSONHandler(os.Stderr, nil))).With("service", c.server+".api")
	self, err := discovery.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	registry, err := discovery.Open(c.registry, discovery.Options{Log: log})
	if err != nil {
		return fmt.Errorf("-registry: %w", err)
	}
	defer registry.Close()
	h := &hop{server: c.server, self: self, log: log, metrics: prometheus.NewRegistry()}
	if err := c.connect(h, registry); err != nil {
		return err
	}
	api, err := new(net.ListenConfig).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	control, err := new(net.ListenConfig).Listen(ctx, "tcp", c.control)
	if err != nil {
		return fmt.Errorf("-control: %w", err)
	}
	h.address = api.Addr().String()

	// Serving outlives the registration: callers that know this instance still find it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return serve(serving, api, httpcall.Count(&h.inWork, httpcall.Middleware(http.HandlerFunc(h.answer))))
	})
	group.Go(func() error { return serve(serving, control, h.controls()) })
	group.Go(func() error { return h.calls.Run(ctx) })
	group.Go(func() error {
		defer stop()
		if err := h.calls.Ready(ctx); err != nil { // nobody should find this process before it can call
			return err
		}
		h.ready.Store(true)
		reg, err := discovery.Register(ctx, registry, discovery.RegisterOptions{Log: log, Force: c.loopback, Retry: true},
			self.Instance(c.server+".api", port(api)), self.Instance(c.server+".control", port(control)))
		if err != nil {
			return err
		}
		fmt.Printf("%s serves api on %s, control on %s\n", c.server, api.Addr(), control.Addr())
		group.Go(func() error { return c.report(ctx, reg, h, log) })
		return reg.Run(ctx)
	})
	return group.Wait()
}

// report tells control nodes, where there are some, how busy this process is.
func (c *config) report(ctx context.Context, reg *discovery.Registration, h *hop, log *slog.Logger) error {
	if c.fleet == "" {
		return nil
	}
	tokens, err := signed.ReadTokens(c.token)
	if err != nil {
		return fmt.Errorf("-fleet-token-file: %w", err)
	}
	beat, err := heartbeat.New(heartbeat.Options{Control: strings.Split(c.fleet, ","), Token: tokens[0], Instances: reg.Instances(), InWork: h.inWork.Load, Log: log, Metrics: h.metrics})
	if err != nil {
		return err
	}
	return beat.Run(ctx)
}

// connect gives a hop its calls, and guards them.
func (c *config) connect(h *hop, registry discovery.Source) error {
	calls, err := c.calls(h, registry)
	if err != nil {
		return err
	}
	guards, err := guard.New(calls, guard.Options{Log: h.log, Metrics: h.metrics}) // 3 s, one retry: the defaults
	if err != nil {
		return err
	}
	h.calls, h.client = calls, &http.Client{Transport: httpcall.NewGuarded(guards, nil)}
	return nil
}

// calls is the inner layer of this process: fed by control nodes where there are
// some, else by the registry and a folder of rules.
func (c *config) calls(h *hop, registry discovery.Source) (*caller.Caller, error) {
	opt := caller.Options{Service: c.server + ".api", Self: h.self.Coordinates, Registry: registry, RulesDir: c.rules, Dir: c.copies, Isolate: c.isolate,
		Lane: route.Query{Env: h.self.LaneEnv, Base: h.self.LaneBase}, Log: h.log, Metrics: h.metrics}
	if c.overrides != "" {
		opt.Overrides = strings.Split(c.overrides, ",")
	}
	if c.callees != "" {
		opt.Services = strings.Split(c.callees, ",")
	}
	if c.fleet == "" {
		return caller.New(opt)
	}
	opt.Control = strings.Split(c.fleet, ",")
	tokens, err := signed.ReadTokens(c.token)
	if err != nil {
		return nil, fmt.Errorf("-fleet-token-file: %w", err)
	}
	opt.Token = tokens[0]
	if opt.Trust, err = signed.ReadTrust(c.trust); err != nil {
		return nil, fmt.Errorf("-trust-keys: %w", err)
	}
	return caller.New(opt)
}

func port(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// serve answers until ctx ends, and then what is under way.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		done <- server.Shutdown(ending)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-done
}

// hop answers.
type hop struct {
	server, address string
	self            discovery.Self
	calls           *caller.Caller
	client          *http.Client
	metrics         *prometheus.Registry
	log             *slog.Logger
	inWork          atomic.Int64
	ready           atomic.Bool // it can call
}

// place is one station of a request.
type place struct {
	Server  string `json:"server"`
	Env     string `json:"env"`
	Version string `json:"version"`
	Region  string `json:"region"`
	Address string `json:"address"`
	Lane    string `json:"lane,omitempty"` // that the traffic carried when it came here
}

// trip is an answer.
type trip struct {
	Places []place        `json:"places"`
	ID     string         `json:"id,omitempty"`     // of the decision, for dispatchctl explain call
	Counts map[string]int `json:"counts,omitempty"` // "ENV VERSION ADDRESS" of the last station, where many calls were made
	Errors map[string]int `json:"errors,omitempty"`
}

// answer says where this is and where its calls went, and writes one line about it.
func (h *hop) answer(w http.ResponseWriter, r *http.Request) {
	if !h.ready.Load() {
		http.Error(w, "starting: no tables are loaded yet; ask again in a second", http.StatusServiceUnavailable)
		return
	}
	start, status := time.Now(), http.StatusOK
	t, err := h.travel(r)
	if err != nil {
		status = http.StatusBadGateway
		http.Error(w, err.Error(), status)
	} else {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(t) // whoever is gone reads nothing
	}
	line := []slog.Attr{slog.String("hop", h.address), slog.String("path", r.FormValue("path")),
		slog.Int("status", status), slog.Duration("took", time.Since(start))}
	if t.ID != "" {
		line = append(line, slog.String("record", t.ID))
	}
	if err != nil {
		h.log.LogAttrs(r.Context(), slog.LevelError, "request failed", append(line, slog.String("err", err.Error()))...)
		return
	}
	h.log.LogAttrs(r.Context(), slog.LevelInfo, "request", line...)
}

// travel calls on.
func (h *hop) travel(r *http.Request) (t trip, err error) {
	lane := caller.LaneOf(r.Context())
	t = trip{Places: []place{{h.server, h.self.Env, h.self.Version, h.self.Region, h.address, lane.Env}}}
	next, rest, _ := strings.Cut(r.FormValue("path"), ",")
	ctx := r.Context()
	if r.FormValue("keep") == "true" {
		ctx = caller.Keep(ctx)
	}
	many, _ := strconv.Atoi(r.FormValue("n")) // none: 0
	switch {
	case next == "":
	case many == 0:
		onward, err := h.call(ctx, next, rest)
		t.Places, t.ID = append(t.Places, onward.Places...), onward.ID
		return t, err
	default:
		t.Counts, t.Errors = map[string]int{}, map[string]int{}
		for range min(many, 100_000) {
			onward, err := h.call(ctx, next, rest)
			if err != nil {
				t.Errors[err.Error()]++
				continue
			}
			last := onward.Places[len(onward.Places)-1]
			t.Counts[strings.Join([]string{last.Env, last.Version, last.Address}, " ")]++
		}
	}
	return t, nil
}

// call calls a service by its name. The ID is that of its record, also of a call that failed.
func (h *hop) call(ctx context.Context, service, rest string) (t trip, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+service+"/?path="+url.QueryEscape(rest), nil)
	if err != nil {
		return t, err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*httpcall.Error](err); ok {
			t.ID = failed.Pick.ID()
		}
		return t, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	pick, _ := httpcall.PickOf(resp)
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	default:
		err = json.Unmarshal(text, &t)
	}
	t.ID = pick.ID()
	return t, err
}

// controls is the port control.
func (h *hop) controls() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /direct", func(w http.ResponseWriter, r *http.Request) {
		h.calls.SetDirect(r.FormValue("on") == "true")
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}
