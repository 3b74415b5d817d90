// Command bench measures what the project claims and writes bench/RESULTS.md
// with the raw numbers in bench/results.json.
//
// Four parts, each on its own: the Go benchmarks of the packages (gobench.go),
// those of the inner layer with its peers (inner.go, peers/), address tables with
// real prefixes (prefixes.go), and whole processes on loopback (serve.go): /route
// against a bare Echo handler, nginx and HAProxy, and a cold start with five
// million ids.
//
// Figures are CPU time a request of the server's own process, which does not
// depend on how fast the load generator is; ratios come from windows that
// alternate between the servers in one run. Nothing here fails a build: a
// budget that is missed is printed as missed.
//
//	go run ./bench            everything, about ten minutes on two cores
//	go run ./bench -only serve
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "bare-echo" { // a contender, see contenders.go
		fmt.Fprintln(os.Stderr, bareEcho(os.Args[2]))
		os.Exit(1)
	}
	only := flag.String("only", "go,inner,prefixes,serve", "parts to run")
	out := flag.String("out", "bench", "folder that takes RESULTS.md and results.json")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure runs the parts in order and keeps what a part left out of an earlier run had.
func measure(ctx context.Context, only, out string) error {
	res, err := readResults(out)
	if err != nil {
		return err
	}
	parts := []struct {
		name string
		run  func(context.Context) ([]row, error)
	}{
		{"go", goBenchmarks},
		{"inner", innerLayer},
		{"prefixes", realPrefixes},
		{"serve", wholeProcesses},
	}
	for _, part := range parts {
		if !strings.Contains(","+only+",", ","+part.name+",") {
			continue
		}
		rows, err := part.run(ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
		if err := res.put(ctx, part.name, rows); err != nil {
			return err
		}
	}
	return res.write(out, os.Stdout)
}
