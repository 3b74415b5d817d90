// Command gateway stands in front of the replicas of dispatch in one cluster and
// reaches them by name: it has no list of addresses, and a replica that comes or
// goes needs no change here.
//
//	go run ./examples/gateway -registry consul://127.0.0.1:8500 -cluster k1 -region sh -env prod
//
// Apps ask it as they would ask a replica: GET /route, /healthz. What the rules of
// the inner layer say of a lane is stripped at this door: a lane from outside would
// let anybody choose an environment. A trace begins here, unless the app began one;
// that it wants it recorded counts for few requests a second.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/httpcall"
	"dispatch.example/dispatch/discovery/trace"
)

// replicas is the service that replicas of dispatch register as.
const replicas = "dispatch.public"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8090", "where apps reach this gateway")
	registry := flags.String("registry", "", "static:FILE or consul://HOST:PORT, where replicas are registered")
	home := discovery.Coordinates{Version: "gateway"}
	flags.StringVar(&home.Cluster, "cluster", "", "cluster of the replicas that are reached")
	flags.StringVar(&home.Region, "region", "", "their region")
	flags.StringVar(&home.Env, "env", "", "their environment")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(trace.Handler(slog.NewJSONHandler(os.Stderr, nil))).With("service", "gateway")
	source, err := discovery.Open(*registry, discovery.Options{Log: log})
	if err != nil {
		return fmt.Errorf("-registry: %w", err)
	}
	defer source.Close()
	calls, err := caller.New(caller.Options{Service: "gateway", Self: home, Registry: source, Services: []string{replicas}, Log: log})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: httpcall.StripBaggage(httpcall.Middleware(proxy(calls, log))), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return calls.Run(ctx) })
	group.Go(func() error {
		if err := calls.Ready(ctx); err != nil { // before that every app would get an error
			return err
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
		if err != nil {
			return fmt.Errorf("-listen: %w", err)
		}
		fmt.Println("listening on", listener.Addr())
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return server.Shutdown(ending)
	})
	return group.Wait()
}

// proxy sends every request to a replica that the caller picks.
func proxy(calls *caller.Caller, log *slog.Logger) http.Handler {
	target := &url.URL{Scheme: "http", Host: replicas}
	return &httputil.ReverseProxy{
		Transport: httpcall.New(calls, nil),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			log.WarnContext(r.Context(), "no replica answered", "path", r.URL.Path, "err", err)
			http.Error(w, "no replica can be reached; try again", http.StatusBadGateway)
		},
	}
}
