// Command dispatch answers an app's first request with the domain of its
// session, and lets people change that answer in seconds.
//
// One file per subcommand. serve.go wires the two planes: it is the only place
// that knows all packages. main only parses, runs and prints the one error that
// comes back; nothing else ends the process.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"dispatch.example/dispatch/internal/fault"
)

// commands is the whole command line.
type commands struct {
	Serve    serveCmd    `cmd:"" help:"Answer requests and take changes."`
	Check    checkCmd    `cmd:"" help:"Validate configuration files without starting; names every error."`
	Migrate  migrateCmd  `cmd:"" help:"Bring the database to this program's schema."`
	Keys     keysCmd     `cmd:"" help:"Make, rotate and export keys."`
	Admin    adminCmd    `cmd:"" help:"First administrator."`
	Renew    renewCmd    `cmd:"" help:"Sign domain records again, with the record key alone."`
	Override overrideCmd `cmd:"" help:"Break glass on a replica, when nothing behind it answers."`
	Version  versionCmd  `cmd:"" help:"What this program was built from."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: exit status 0 done, 1 failed, 2 not understood.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return new(commands).run(ctx, args, stdout, stderr)
}

func (c *commands) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	exit := -1
	parser, err := newParser(c, stdout, stderr, func(code int) { exit = code })
	if err != nil {
		fmt.Fprintln(stderr, "dispatch:", err)
		return 2
	}
	if err := knownEnvironment(parser, os.Environ()); err != nil {
		fmt.Fprintln(stderr, "dispatch:", err)
		return 2
	}
	cli, err := parser.Parse(args)
	if exit >= 0 { // -h has answered
		return exit
	}
	if err != nil {
		fmt.Fprintf(stderr, "dispatch: %v\ntry: %s\n", err, helpFor(args))
		return 2
	}
	cli.BindTo(ctx, (*context.Context)(nil))
	cli.Bind(streams{stdout, stderr})
	if err := cli.Run(); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(stderr, "dispatch:", err)
		return 1
	}
	return 0
}

const (
	// envPrefix begins the environment name of every flag.
	envPrefix = "DISPATCH"
	// redisPassword is the one variable without a flag: command lines can be read by others.
	redisPassword = "DISPATCH_REDIS_PASSWORD"
)

// helpFor is the command that shows the flags of the command that was typed.
func helpFor(args []string) string {
	words := []string{"dispatch"}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			break
		}
		words = append(words, arg)
	}
	return strings.Join(append(words, "--help"), " ")
}

// knownEnvironment refuses a DISPATCH_ variable that no flag reads: it is a
// setting that somebody believes to be in force.
func knownEnvironment(parser *kong.Kong, environment []string) error {
	known := map[string]bool{redisPassword: true}
	for _, name := range []string{"SERVER", "TOKEN", "TOKEN_FILE"} { // dispatchctl's, of which the same shell is full on a bad night
		known[envPrefix+"_"+name] = true
	}
	var collect func(n *kong.Node)
	collect = func(n *kong.Node) {
		for _, flag := range n.Flags {
			for _, env := range flag.Envs {
				known[env] = true
			}
		}
		for _, child := range n.Children {
			collect(child)
		}
	}
	collect(parser.Model.Node)
	var p fault.Problems
	for _, setting := range environment {
		name, _, _ := strings.Cut(setting, "=")
		if strings.HasPrefix(name, envPrefix+"_") && !known[name] {
			p.Addf("$"+name, "no flag reads it")
		}
	}
	return p.Err("bad_environment", "the environment is wrong:")
}

// streams are where a command prints: out is its answer, log is for people.
type streams struct{ out, log io.Writer }

// newParser is kong with our conventions: a flag --like-this is also DISPATCH_LIKE_THIS.
func newParser(into *commands, stdout, stderr io.Writer, exit func(int)) (*kong.Kong, error) {
	parser, err := kong.New(into,
		kong.Name("dispatch"),
		kong.Description("dispatch answers an app's first request with the regional domain that its whole session will use."),
		kong.DefaultEnvars(envPrefix),
		kong.UsageOnError(),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100, FlagsLast: true}),
	)
	if err != nil {
		return nil, fmt.Errorf("build command line: %w", err)
	}
	return parser, nil
}
