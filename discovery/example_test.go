package discovery_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/heartbeat"
	"dispatch.example/dispatch/discovery/httpcall"
)

// A08: what a service adds to its main is from FromEnv to Register, and RunThen
// where it would stop the server; the release platform has injected the rest. The
// heartbeat is for services behind control nodes.
func ExampleRegister() {
	main := func(ctx context.Context, listener net.Listener, source discovery.Source, mux http.Handler) error {
		self, err := discovery.FromEnv(os.Getenv)
		if err != nil {
			return err
		}
		port := uint16(listener.Addr().(*net.TCPAddr).Port)
		reg, err := discovery.Register(ctx, source, discovery.RegisterOptions{}, self.Instance("order-core", port))
		if err != nil {
			return err
		}
		var inWork atomic.Int64
		beat, err := heartbeat.New(heartbeat.Options{Control: []string{"https://control:8083"}, Instances: reg.Instances(), InWork: inWork.Load})
		if err != nil {
			return err
		}
		server := &http.Server{Handler: httpcall.Count(&inWork, httpcall.Middleware(mux))}
		group, ctx := errgroup.WithContext(ctx) // of SIGTERM
		group.Go(func() error { return reg.RunThen(ctx, server.Shutdown) })
		group.Go(func() error { return beat.Run(ctx) })
		group.Go(func() error {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		return group.Wait()
	}
	_ = main
}
