package grpccall_test

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/grpccall"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/httpcall"
)

// noAdvice is the degraded value of a service that has nothing to advise.
func noAdvice(*http.Request, error) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"offers": []}`))}, nil
}

// One guard stands around HTTP and gRPC calls. This is the code of the manual, What
// stands around a call.
func ExampleNewGuarded() {
	wire := func(calls *caller.Caller, log *slog.Logger, metrics prometheus.Registerer) (*http.Client, *grpc.ClientConn, error) {
		credentials := grpc.WithTransportCredentials(insecure.NewCredentials())
		guards, err := guard.New(calls, guard.Options{Log: log, Metrics: metrics,
			Default: guard.Settings{Deadline: 2 * time.Second},
			Services: map[string]guard.Settings{
				"report-core": {Deadline: time.Minute, Slow: 10 * time.Second, Retries: -1},
			}})
		if err != nil {
			return nil, nil, err
		}
		transport := httpcall.NewGuarded(guards, nil)
		transport.Degraded = map[string]httpcall.Degraded{"advice": noAdvice}
		client := &http.Client{Transport: transport}
		dialer := grpccall.NewGuarded(calls, guards)
		dialer.Idempotent = []string{"/order.Order/Get", "/stock.Stock/"}
		conn, err := grpc.NewClient("dispatch:///order-core", append(dialer.DialOptions(), credentials)...)
		return client, conn, err
	}
	_ = wire
}

// What the manual shows is code that compiles: each of its lines stands in the example.
func TestTheManualsCodeIsTheExample(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/inner-layer.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(manual), "\n## What stands around a call\n")
	code := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(section)
	if !found || code == nil {
		t.Fatal("docs/inner-layer.md has no code in What stands around a call")
	}
	for line := range strings.Lines(code[1]) {
		line, _, _ = strings.Cut(line, " //")
		if line = strings.TrimSpace(line); !strings.Contains(string(example), "\t"+line+"\n") {
			t.Errorf("the example lacks %s", line)
		}
	}
}
