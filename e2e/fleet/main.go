// Command fleet starts the topology of docker-compose.yml on this machine
// without containers, prints every address and how to try it, and ends all of it
// on Ctrl-C.
//
//	go run ./e2e/fleet             one control node, two edges a city
//	go run ./e2e/fleet -edges 3 -controls 2
//
// One goroutine waits for the signal; a process that ends by itself is reported
// and ends nothing else, because that is what there is to try.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/template"
	"time"

	"dispatch.example/dispatch/e2e/topology"
)

func main() {
	var opt topology.Options
	flag.IntVar(&opt.Controls, "controls", 1, "control nodes")
	flag.IntVar(&opt.Edges, "edges", 2, "edges in each city")
	flag.DurationVar(&opt.Canary, "canary-time", 10*time.Second, "how long one edge serves a change alone; 0: no canary")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, opt, os.Stdout); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opt topology.Options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "dispatch-build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if opt.Program, err = topology.Build(ctx, dir); err != nil {
		return err
	}
	opt.Log = func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	t, err := topology.Start(ctx, opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Stop()) }()
	page, err := template.New("manual").Funcs(template.FuncMap{"pad": pad}).Parse(manual)
	if err != nil {
		return err
	}
	if err := page.Execute(out, t); err != nil {
		return err
	}
	<-ctx.Done()
	fmt.Fprintln(out, "\nstopping")
	return nil
}

// manual is what the reader types next.
const manual = `
{{range .Controls}}{{pad .Name}} admin http://{{.Admin}}/api/v1/openapi.json  fleet https://{{.Fleet}}  ops http://{{.Ops}}/metrics  pid {{.PID}}
{{end}}{{range .Edges}}{{pad .Name}} http://{{.Public}}/route  ops http://{{.Ops}}/readyz  pid {{.PID}}
{{end}}{{range $city, $addr := .Entries}}{{pad (print "entry " $city)}} http://{{$addr}}/route
{{end}}{{pad "mariadb"}} {{.DSN}}  pid {{.MariaDB.PID}}
{{pad "redis"}} {{index .Redis.Args 2}}  pid {{.Redis.PID}}
{{pad "consul"}} {{.ConsulURL}}/ui  pid {{.Consul.PID}}
logs           {{.Dir}}/*/log

  curl 'http://{{(index .Edges 0).Public}}/route?app=mobile' -H 'X-Device-Id: d-1001'

  API=http://{{(index .Controls 0).Admin}}/api/v1; auth='Authorization: Bearer {{.Token}}'
  curl -s -H "$auth" $API/fleet
  curl -s -H "$auth" -H 'Content-Type: application/json' $API/emergency -d '{"action":"swap","reason":"try it",
    "targets":[{"app":"mobile","region":"sh","expect":"{{.Domain.Serving}}","from":"{{.Domain.Serving}}","to":"{{.Domain.Standby}}"}]}'

  kill -STOP {{.Redis.PID}}   # and swap back: edges hear from the control node
  kill -9 {{(index .Controls 0).PID}}     # and ask again: edges go on

Ctrl-C ends everything.
`

func pad(name string) string { return name + strings.Repeat(" ", max(0, 14-len(name))) }
