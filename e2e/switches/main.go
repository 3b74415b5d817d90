// Command switches shows that every test of a promise turns red when what it
// guards is broken.
//
//	go run ./e2e/switches                    all rows
//	go run ./e2e/switches TestP17 TestSEC05  rows whose test begins like that
//	go run ./e2e/switches -sample 8          so many, others for each commit
//
// A row of the table (switches.go) is one change of the product's source. The
// change is never written into the tree: Go compiles it from an overlay, which
// also reaches the program that a test builds. A row passes if exactly its test
// fails then. A change that does not compile, a test that is not found and a
// crash before the test's verdict are no red.
//
// One goroutine, one row after the other: the tests start servers of their own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() {
	sample := flag.Int("sample", 0, "run so many rows only; the commit decides which")
	timeout := flag.Duration("timeout", 10*time.Minute, "how long one test may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Args(), *sample, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "switches:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string, sample int, timeout time.Duration) error {
	rows, err := choose(Table(), names)
	if err != nil {
		return err
	}
	if sample > 0 && sample < len(rows) {
		rows = spread(rows, sample, commit(ctx))
	}
	dir, err := os.MkdirTemp("", "dispatch-switches-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	green := 0
	for i, row := range rows {
		start := time.Now()
		red, err := runner{dir: dir, timeout: timeout}.turnsRed(ctx, row)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			green++
			fmt.Printf("%d/%d error  %s: %v\n", i+1, len(rows), row.Test, err)
		case !red:
			green++
			fmt.Printf("%d/%d GREEN  %s passes although %s is broken:\n  - %s\n  + %s\n", i+1, len(rows), row.Test, row.File, row.Old, row.New)
		default:
			fmt.Printf("%d/%d red    %-60s %.1f s\n", i+1, len(rows), row.Test, time.Since(start).Seconds())
		}
	}
	if green > 0 {
		return fmt.Errorf("%d of %d switches do not turn their test red", green, len(rows))
	}
	return nil
}

// choose returns the rows whose test begins with one of the names; no name means all.
func choose(all []Switch, names []string) ([]Switch, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []Switch
	for _, name := range names {
		before := len(chosen)
		for _, row := range all {
			if strings.HasPrefix(row.Test, name) {
				chosen = append(chosen, row)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("no row's test begins with %q", name)
		}
	}
	return chosen, nil
}

// spread takes n rows at equal distances, beginning where the seed says, so that
// each row has its turn after some commits.
func spread(rows []Switch, n int, seed uint64) []Switch {
	first := int(seed % uint64(len(rows)))
	chosen := make([]Switch, 0, n)
	for i := range n {
		chosen = append(chosen, rows[(first+i*len(rows)/n)%len(rows)])
	}
	return chosen
}

// commit is a number that stands for the commit, 0 without git.
func commit(ctx context.Context) uint64 {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(out)), 16, 64) // 12 hexadecimal digits
	return n
}
