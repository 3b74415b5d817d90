package inner

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guide are the commands of the manual's ten minutes, with ports that are free.
func guide(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/inner-layer.md")
	must(t, err)
	_, rest, found := strings.Cut(string(page), "\n## In ten minutes\n")
	part, _, ended := strings.Cut(rest, "\n## ")
	if !found || !ended {
		t.Fatal("docs/inner-layer.md has no section In ten minutes")
	}
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(part, -1) {
		script.WriteString(block[1])
	}
	ports := map[string]string{}
	return regexp.MustCompile(`127\.0\.0\.1:9\d\d\d`).ReplaceAllStringFunc(script.String(), func(addr string) string {
		if ports[addr] == "" {
			ports[addr] = freeAddr(t)
		}
		return ports[addr]
	})
}

// shell runs a script in a folder and ends what it left in the background.
func shell(t *testing.T, dir, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-c", "trap 'kill $(jobs -p); wait' EXIT\n"+script)
	cmd.Dir = dir
	log, err := os.Create(filepath.Join(dir, "stderr"))
	must(t, err)
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.Output()
	if err != nil {
		text, _ := os.ReadFile(log.Name()) // a help for the reader only
		t.Logf("the script printed\n%s", text)
	}
	return string(out), err
}

// answers are the counts by version in the answers that a script printed.
func answers(t *testing.T, out string) (all []map[string]int) {
	t.Helper()
	for _, text := range regexp.MustCompile(`\{"places".*?\}\}`).FindAllString(out, -1) {
		var got trip
		must(t, json.Unmarshal([]byte(text), &got))
		if len(got.Errors) > 0 {
			t.Errorf("calls of the guide failed: %v", got.Errors)
		}
		counts := map[string]int{}
		for where, n := range got.Counts {
			counts[strings.Fields(where)[1]] += n
		}
		all = append(all, counts)
	}
	return all
}

// A58: a service outside of this tree uses the package by its name.
func TestAServiceOutsideTheTreeBuilds(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	must(t, err)
	dir := t.TempDir()
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	must(t, err)
	for name, text := range map[string]string{
		"go.sum": string(sums),
		"go.mod": "module service.example/orders\n\ngo 1.26\n\nrequire dispatch.example/dispatch v0.0.0\n\nreplace dispatch.example/dispatch => " + root + "\n",
		"main.go": `package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"google.golang.org/grpc"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/grpccall"
	"dispatch.example/dispatch/discovery/httpcall"
)

func main() {
	ctx := context.Background()
	self, err := discovery.FromEnv(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	registry, err := discovery.Open("consul://127.0.0.1:8500", discovery.Options{})
	if err != nil {
		log.Fatal(err)
	}
	reg, err := discovery.Register(ctx, registry, discovery.RegisterOptions{}, self.Instance("orders", 8080))
	if err != nil {
		log.Fatal(err)
	}
	go reg.Run(ctx)
	calls, err := caller.New(caller.Options{Self: self.Coordinates, Registry: registry, Services: []string{"stock"}})
	if err != nil {
		log.Fatal(err)
	}
	go calls.Run(ctx)
	client := &http.Client{Transport: httpcall.New(calls, nil)}
	_, _ = client.Get("http://stock/")
	_, _ = grpc.NewClient("dispatch:///stock", grpccall.DialOptions(calls)...)
}
`} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", os.DevNull, ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
