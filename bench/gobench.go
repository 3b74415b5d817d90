package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// promise is a limit on one metric of one Go benchmark.
type promise struct {
	bench, unit string
	limit       float64
}

// proportion is a limit on the time of one benchmark over that of another.
type proportion struct {
	of, to string
	limit  float64
}

// goBenchmarks gives the figures of the outer layer's packages, with the median of
// each metric beside what is promised of it.
func goBenchmarks(ctx context.Context) ([]row, error) {
	figures, err := runBenchmarks(ctx, ".", "./domain", "./whitelist", "./policy", "./release", "./fleet", "./store", "./handler")
	if err != nil {
		return nil, err
	}
	quality, err := bucketQuality(ctx)
	return append(append(figures.rows(), figures.ratios()...), quality...), err
}

// runBenchmarks runs every benchmark of the packages three times, in the module of dir.
func runBenchmarks(ctx context.Context, dir string, packages ...string) (*figures, error) {
	args := append([]string{"test", "-run=^$", "-bench=.", "-benchmem", "-count=3", "-timeout=30m"}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start go test: %w", err)
	}
	figures := collectFigures(bufio.NewScanner(out))
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("go %s in %s: %w", strings.Join(args, " "), dir, err)
	}
	return figures, nil
}

// figures holds the runs of each metric in the order in which they first came.
type figures struct {
	order []string
	runs  map[string][]float64 // "Benchmark unit" → values
}

// procs is the -N that go test appends to a benchmark's name.
var procs = regexp.MustCompile(`-\d+$`)

// collectFigures reads lines such as
// "BenchmarkDecide-2   1000   812 ns/op   0 B/op   0 allocs/op".
func collectFigures(lines *bufio.Scanner) *figures {
	f := &figures{runs: map[string][]float64{}}
	for lines.Scan() {
		fmt.Fprintln(os.Stderr, lines.Text())
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := procs.ReplaceAllString(fields[0], "")
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				break
			}
			key := name + " " + fields[i+1]
			if f.runs[key] == nil {
				f.order = append(f.order, key)
			}
			f.runs[key] = append(f.runs[key], value)
		}
	}
	return f
}

// readable shows a time of many nanoseconds in milliseconds.
func (r row) readable() row {
	if r.Unit != "ns/op" || r.Value < 1e6 {
		return r
	}
	r.Value, r.Unit = r.Value/1e6, "ms/op"
	raw := make([]float64, len(r.Raw))
	for i, v := range r.Raw {
		raw[i] = v / 1e6
	}
	r.Raw = raw
	return r
}

// rows leaves out B/op and allocs/op where nothing is promised of them: they
// would bury the rest.
func (f *figures) rows() []row {
	var rows []row
	for _, key := range f.order {
		name, unit, _ := strings.Cut(key, " ")
		r := row{Name: strings.TrimPrefix(name, "Benchmark"), Value: median(f.runs[key]), Unit: unit, Raw: f.runs[key]}
		r = r.readable()
		limited := false
		for _, p := range promises {
			if p.bench == r.Name && p.unit == r.Unit {
				r, limited = r.atMost(p.limit), true
			}
		}
		if limited || (unit != "B/op" && unit != "allocs/op") {
			rows = append(rows, r)
		}
	}
	return rows
}

// ratios compares pairs of benchmarks that are promised to stay close.
func (f *figures) ratios() []row {
	var rows []row
	for _, p := range proportions {
		a, b := f.runs["Benchmark"+p.of+" ns/op"], f.runs["Benchmark"+p.to+" ns/op"]
		if len(a) == 0 || len(a) != len(b) {
			continue
		}
		rows = append(rows, ratio(p.of+" / "+p.to, a, b).atMost(p.limit))
	}
	return rows
}

// chiSquare is how the test of bucket quality logs its figure.
var chiSquare = regexp.MustCompile(`=== RUN   TestBucketsAreEven/(\S+)\n.*chi-square = (\d+)`)

// bucketQuality reads what the test measured: 9,999 is the mean of chi-square
// over 10,000 buckets, 566 four standard deviations.
func bucketQuality(ctx context.Context) ([]row, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run=^TestBucketsAreEven$", "./policy").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("measure bucket quality: %w\n%s", err, out)
	}
	var rows []row
	for _, m := range chiSquare.FindAllStringSubmatch(string(out), -1) {
		chi, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		away := math.Abs(chi - 9_999)
		rows = append(rows, row{Name: "chi-square of 1,000,000 " + strings.ReplaceAll(m[1], "_", " ") + ", away from 9,999",
			Value: away, Unit: "", Raw: []float64{chi}}.atMost(566))
	}
	if len(rows) == 0 {
		return nil, errors.New("measure bucket quality: the test logged no figure")
	}
	return rows, nil
}
