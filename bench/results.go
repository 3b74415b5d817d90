package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// row is one figure. Limit is empty where the project promises nothing.
type row struct {
	Name  string    `json:"name"`
	Value float64   `json:"value"`
	Unit  string    `json:"unit"`
	Limit string    `json:"limit,omitempty"`
	Met   *bool     `json:"met,omitempty"`
	Raw   []float64 `json:"raw"` // every window or run behind Value, in order
}

// atMost states a limit and whether the row is within it.
func (r row) atMost(limit float64) row {
	met := r.Value <= limit
	r.Limit, r.Met = fmt.Sprintf("≤ %g %s", limit, r.Unit), &met
	return r
}

// part is one part of a run with what it ran on.
type part struct {
	Commit string    `json:"commit"`
	When   time.Time `json:"when"`
	CPU    string    `json:"cpu"`
	Cores  int       `json:"cores"`
	Go     string    `json:"go"`
	Rows   []row     `json:"rows"`
}

type results struct {
	Parts map[string]part `json:"parts"`
}

func readResults(dir string) (*results, error) {
	res := &results{Parts: map[string]part{}}
	data, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return res, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read earlier results: %w", err)
	}
	if err := json.Unmarshal(data, res); err != nil {
		return nil, fmt.Errorf("read earlier results: %w", err)
	}
	return res, nil
}

func (r *results) put(ctx context.Context, name string, rows []row) error {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return fmt.Errorf("name the commit: %w", err)
	}
	r.Parts[name] = part{Commit: strings.TrimSpace(string(commit)), When: time.Now().UTC().Truncate(time.Second),
		CPU: cpuModel(), Cores: runtime.NumCPU(), Go: runtime.Version(), Rows: rows}
	return nil
}

func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// write stores the raw numbers and the table, and prints the table.
func (r *results) write(dir string, echo io.Writer) error {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	var b strings.Builder
	b.WriteString("# Results\n\nWritten by `make bench`. Every window behind a figure is in results.json.\n")
	for _, name := range []string{"go", "inner", "prefixes", "serve"} {
		p, ok := r.Parts[name]
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\ncommit %s · %s · %d × %s · %s\n\n| figure | value | promised | |\n|---|---:|---:|---|\n",
			partTitle(name), p.Commit, p.When.Format(time.DateOnly), p.Cores, p.CPU, p.Go)
		for _, row := range p.Rows {
			fmt.Fprintf(&b, "| %s | %s %s | %s | %s |\n", row.Name, figure(row.Value), row.Unit, row.Limit, verdict(row.Met))
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	_, err = io.WriteString(echo, b.String())
	return err
}

func partTitle(name string) string {
	switch name {
	case "go":
		return "In the process"
	case "inner":
		return "The inner layer"
	case "prefixes":
		return "Real address tables"
	default:
		return "Whole processes on loopback"
	}
}

func figure(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func verdict(met *bool) string {
	switch {
	case met == nil:
		return ""
	case *met:
		return "met"
	default:
		return "**missed**"
	}
}
