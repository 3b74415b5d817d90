// Command dispatchctl is the operator's command line. It speaks to the admin API
// of a control node over HTTP and knows nothing else of the server: no database,
// no key, no file of its own. trace alone asks nobody: it reads log files.
//
//	commands  the table of nouns; one file each: fleet.go, releases.go, …
//	api       one request: token, deadline, Idempotency-Key, problem+json
//	change    what every write shares: reason, confirmation, idempotency key
//	program   what a command gets beside its flags: the api and the streams
//
// A noun is a struct of flags with a Run method. It asks the api, and prints what
// came back: as it is with -o json, else as a table or a sentence.
//
// It owns no goroutine. What a failure does:
//
//   - The server refuses: its detail, problems and hint are printed, exit 1.
//   - No answer comes to a write: it may have been done. The error names the key
//     with which the same command asks again and changes nothing twice.
//   - The change is made and somebody does not serve it yet: who and why, exit 3.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"
)

// commands is the whole command line.
type commands struct {
	Swap    swapCmd    `cmd:"" group:"Emergency" help:"Let another endpoint serve a region, everywhere at once."`
	Region  regionCmd  `cmd:"" group:"Emergency" help:"Make a region active, draining or off, everywhere at once."`
	Cluster clusterCmd `cmd:"" group:"Emergency" help:"Take all endpoints of a cluster out, or give them back, everywhere at once."`
	Freeze  freezeCmd  `cmd:"" group:"Emergency" help:"Stop normal changes and automation; emergencies go on."`
	Relive  reliveCmd  `cmd:"" group:"Emergency" help:"Make the document of an earlier release live again, everywhere at once."`
	Drill   drillCmd   `cmd:"" group:"Emergency" help:"Swap a region to its standby and back, to know that it works."`

	Plan     planCmd     `cmd:"" group:"Changes" help:"What a document would change; ends with 2 if it would."`
	Apply    applyCmd    `cmd:"" group:"Changes" help:"Publish a document, or make a draft of it for a second person."`
	Diff     diffCmd     `cmd:"" group:"Changes" help:"What release B has changed since release A."`
	Draft    draftCmd    `cmd:"" group:"Changes" help:"Changes that nobody serves yet: approve, schedule, publish."`
	Gray     grayCmd     `cmd:"" group:"Changes" help:"Shares and versions that grow by steps."`
	List     listCmd     `cmd:"" group:"Changes" help:"Lists of users and devices."`
	Host     hostCmd     `cmd:"" group:"Changes" help:"Hosts that people may be sent to."`
	Releases releasesCmd `cmd:"" group:"Changes" help:"List releases, show one, sign an emergency, adopt what is served after a restore."`
	Override overrideCmd `cmd:"" group:"Changes" help:"What was done on a replica with dispatch override."`
	Rules    rulesCmd    `cmd:"" group:"Changes" help:"Rules of internal calls: lint, diff, apply, approve, show, export, switch."`
	Export   exportCmd   `cmd:"" group:"Changes" help:"Write an app's rules for HAProxy or nginx, or its ranges of buckets."`

	Apps     appsCmd     `cmd:"" group:"Looking" help:"Apps, their regions and endpoints, as they serve."`
	Explain  explainCmd  `cmd:"" group:"Looking" help:"Why a request would get its answer, or why an internal call went where it went."`
	Fleet    fleetCmd    `cmd:"" group:"Looking" help:"Every replica and what it serves, and how far the newest release has come."`
	Probes   probesCmd   `cmd:"" group:"Looking" help:"Which hosts are up, since when, and why not."`
	Traffic  trafficCmd  `cmd:"" group:"Looking" help:"Answers by the minute."`
	Services servicesCmd `cmd:"" group:"Looking" help:"Services and instances of the region: list, show, queue, and what people decide about them."`
	Map      mapCmd      `cmd:"" group:"Looking" help:"Who may call whom: rules, versions and their parts of the calls."`
	Trace    traceCmd    `cmd:"" group:"Looking" help:"Which hop of a request failed, from the logs of all services; asks no server."`
	Pending  pendingCmd  `cmd:"" group:"Looking" help:"What waits for a second person."`
	Audit    auditCmd    `cmd:"" group:"Looking" help:"The audit trail: list, export, verify."`

	Token      tokenCmd      `cmd:"" group:"Access" help:"Tokens of pipelines and people."`
	Completion completionCmd `cmd:"" group:"Access" help:"Print what makes a shell complete these commands."`

	serverFlags
	Output string `short:"o" enum:"table,json" default:"table" help:"table for people, json as the API answers."`
}

const description = `dispatchctl asks and changes a running dispatch over its admin API.

The token is in $DISPATCH_TOKEN or in --token-file; no flag takes it, because others can read command lines.

A change is confirmed by typing the name of what it changes: at the terminal, or in a script with --confirm NAME. The server compares it, too.

Exit status: 0 done; 1 refused or failed; 2 from plan and rules diff: there is a difference; 3 done, but a replica does not serve it yet; 64 not understood, nothing was asked.`

// The exit statuses that description promises.
const (
	exitFailed    = 1
	exitDifferent = 2
	exitLagging   = 3
	exitUsage     = 64 // as sysexits.h has it
)

// errLagging is a change that is done and that some replica does not serve yet.
// What was printed says who.
var errLagging = errors.New("a replica does not serve the release yet")

// errDifferent is a plan that would change something. What was printed says what.
var errDifferent = errors.New("there is a difference")

// usageError is a command line that asks for nothing that can be done.
type usageError struct{ error }

// streams are where a command reads and writes: out is its answer, log is for people.
type streams struct {
	in       io.Reader
	out, log io.Writer
	asks     bool // in is a terminal: somebody can be asked
	color    bool // out is a terminal that shows colors
}

// program is what a command gets beside its flags.
type program struct {
	streams
	*api
	json bool
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], streams{in: os.Stdin, out: os.Stdout, log: os.Stderr,
		asks: isTerminal(os.Stdin), color: isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == ""}))
}

// isTerminal takes any character device for one. /dev/null is the other such
// device, and who is asked there answers nothing.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run is main without the process.
func run(ctx context.Context, args []string, s streams) int {
	exit := -1
	cli := new(commands)
	parser, err := kong.New(cli, kong.Name("dispatchctl"), kong.Description(description),
		kong.Writers(s.out, s.log), kong.Exit(func(code int) { exit = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100, FlagsLast: true}))
	if err != nil {
		fmt.Fprintln(s.log, "dispatchctl:", err)
		return exitUsage
	}
	kongplete.Complete(parser) // ends the process if the shell asks what comes next
	parsed, err := parser.Parse(args)
	if exit >= 0 { // --help has answered
		return exit
	}
	if err != nil {
		fmt.Fprintf(s.log, "dispatchctl: %v\ntry: %s --help\n", err, helpFor(err))
		return exitUsage
	}
	switch parsed.Command() { // these ask nobody
	case "completion <shell>":
		return status(cli.Completion.Run(&program{streams: s}), s.log)
	case "trace <id>":
		return status(cli.Trace.Run(&program{streams: s, json: cli.Output == "json"}), s.log)
	}
	server, err := cli.open(s.log)
	if err == nil {
		parsed.BindTo(ctx, (*context.Context)(nil))
		err = parsed.Run(&program{streams: s, api: server, json: cli.Output == "json"})
	}
	return status(err, s.log)
}

// status is the exit status of err, which it prints.
func status(err error, log io.Writer) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errLagging):
		return exitLagging
	case errors.Is(err, errDifferent):
		return exitDifferent
	}
	fmt.Fprintln(log, "dispatchctl:", printable(err.Error()))
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// helpFor is the command that was meant, as far as it was understood.
func helpFor(err error) string {
	p, ok := errors.AsType[*kong.ParseError](err)
	if !ok || p.Context == nil {
		return "dispatchctl"
	}
	words := []string{"dispatchctl"}
	for _, part := range p.Context.Path {
		if part.Command != nil {
			words = append(words, part.Command.Name)
		}
	}
	return strings.Join(words, " ")
}
