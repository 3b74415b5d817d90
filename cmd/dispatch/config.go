package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// serveCmd is the configuration of a process: flags, each also from the
// environment. docs/config.md is its help text, by test.
type serveCmd struct {
	Role        role   `enum:"all,control,edge" default:"all" help:"all answers apps and takes changes; control only takes changes; edge only answers, without a database and without a key that signs."`
	Demo        bool   `help:"Everything in one process with examples/mobile-bank.yaml, in a throw-away folder unless --data is given."`
	DemoTraffic string `enum:"on,off" default:"on" help:"on lets a demo have 20 made-up requests a second, and probes that find all its hosts on this machine."`
	Data        string `placeholder:"DIR" help:"Folder for the database, keys, releases and logs (default ./data)."`
	Bootstrap   string `placeholder:"FILE" help:"Publish this configuration if no release exists yet."`

	Listen      string `default:":8080" help:"Address of the public API."`
	AdminListen string `default:"127.0.0.1:8081" help:"Address of the admin API."`
	OpsListen   string `default:"127.0.0.1:8082" help:"Address of metrics, profiles and health."`

	AdminHosts []string `placeholder:"NAME" help:"Names and addresses that people reach the admin API by, without port; any other Host is refused (default: those of --admin-listen, and localhost)."`

	MaxConnections int `default:"10000" placeholder:"N" help:"Public connections at once; over it those that wait longest for a request are ended. At most what the system lets this process open, less 512."`

	DB       string `name:"db" env:"DISPATCH_DB" placeholder:"sqlite:FILE|mysql:DSN" help:"Where releases, lists, hosts and audit live (default sqlite:DATA/dispatch.db)."`
	FourEyes string `enum:"on,off" default:"on" help:"Two people for every host; off is for SQLite only, and shown."`

	Deployment      string   `default:"dispatch" help:"Name of this installation; issuer of every signature."`
	AllowedSuffixes []string `placeholder:"NAME" help:"Domains may only lie under these suffixes; never editable while running. Required, except with --demo."`
	TrustedProxies  []string `placeholder:"CIDR" help:"Peers whose X-Forwarded-For, X-User-Id and X-Origin-Region are believed."`
	CORSOrigins     []string `name:"cors-origins" env:"DISPATCH_CORS_ORIGINS" placeholder:"ORIGIN" help:"Origins whose pages may call the public API, without credentials."`

	Region       string `help:"Region this replica stands in; answers origins: replica."`
	Cluster      string `help:"Cluster this replica stands in."`
	Env          string `help:"Environment this replica belongs to."`
	VersionLabel string `help:"Version label of this replica."`

	GeoIPCity string `name:"geoip-city" env:"DISPATCH_GEOIP_CITY" placeholder:"FILE" help:"City database in the MaxMind format, for country and subdivision."`
	GeoIPASN  string `name:"geoip-asn" env:"DISPATCH_GEOIP_ASN" placeholder:"FILE" help:"ASN database in the MaxMind format, for asn."`

	PublisherKeyFile string `placeholder:"FILE" help:"Signs releases (default DATA/keys/publisher.jwks). Key files make themselves only with SQLite."`
	RecordKeyFile    string `placeholder:"FILE" help:"Signs domain records (default DATA/keys/record.jwks)."`
	SessionKeyFile   string `placeholder:"FILE" help:"Seals session tokens (default DATA/keys/session.jwks)."`
	ListKeyFile      string `placeholder:"FILE" help:"Hashes ids in lists (default DATA/keys/list.jwks)."`
	ListSealKeyFile  string `placeholder:"FILE" help:"Seals the ids of lists in the database (default DATA/keys/list-seal.jwks)."`

	Fleet  fleetFlags  `embed:""`
	Inner  innerFlags  `embed:""`
	Gray   grayFlags   `embed:""`
	SignIn signinFlags `embed:""`
	Probe  probeFlags  `embed:""`
	Trace  traceFlags  `embed:""`

	OverrideSocket string `placeholder:"PATH" help:"Unix socket of dispatch override, for this login and root (default DATA/override.sock)."`
	AuditSink      string `placeholder:"FILE|syslog" help:"Where the head of the audit trail goes each minute; GET /api/v1/audit/verify compares the trail with a file."`

	DecisionLog     string        `placeholder:"FILE|off" help:"JSON lines, one a decision, ids only as keyed hashes (default DATA/decisions.log)."`
	DecisionLogSize size          `default:"100MiB" placeholder:"SIZE" help:"At which the decision log rotates; seven are kept."`
	LogLevel        string        `enum:"debug,info,warn,error" default:"info" help:"Least level of the program's own log, JSON on standard error."`
	ShutdownTimeout time.Duration `default:"10s" help:"How long requests under way may take after a signal to stop."`

	proxies []netip.Prefix
	now     func() time.Time // nil: time.Now; tests turn it
}

// size is a number of bytes, written with a unit.
type size uint64

// UnmarshalText reads 100MiB; a bare number is refused, since nobody can tell what it counts.
func (s *size) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil || strings.Trim(string(text), "0123456789.") == "" || n < 1<<20 {
		return fmt.Errorf("%q is not a size of at least 1MiB, such as 100MiB", text)
	}
	*s = size(n)
	return nil
}

func (s size) mebibytes() int { return int(s >> 20) }

// settle fills the paths that follow from --data and makes that folder. The
// returned function removes what --demo made.
func (c *serveCmd) settle() (cleanup func(), err error) {
	cleanup = func() {}
	switch {
	case c.Data != "":
	case c.Demo:
		if c.Data, err = os.MkdirTemp("", "dispatch-demo-"); err != nil {
			return nil, fmt.Errorf("make demo folder: %w", err)
		}
		dir := c.Data
		cleanup = func() { _ = os.RemoveAll(dir) }
	default:
		c.Data = "data"
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		cleanup()
		return nil, fmt.Errorf("make data folder %s: %w", c.Data, err)
	}
	inData := func(value *string, name string) {
		if *value == "" {
			*value = filepath.Join(c.Data, name)
		}
	}
	if c.DB == "" && c.Role.controls() {
		c.DB = "sqlite:" + filepath.Join(c.Data, "dispatch.db")
	}
	if c.Role.controls() {
		inData(&c.PublisherKeyFile, "keys/publisher.jwks")
		inData(&c.RecordKeyFile, "keys/record.jwks")
		inData(&c.ListSealKeyFile, "keys/list-seal.jwks")
	}
	inData(&c.SessionKeyFile, "keys/session.jwks")
	inData(&c.ListKeyFile, "keys/list.jwks")
	if c.Fleet.FleetTLSCA == "" {
		inData(&c.Fleet.FleetTokenFile, "keys/fleet.token")
	}
	inData(&c.OverrideSocket, "override.sock")
	inData(&c.DecisionLog, "decisions.log")
	if c.Demo {
		c.FourEyes = "off"
		if len(c.AllowedSuffixes) == 0 {
			c.AllowedSuffixes = []string{"a.com.cn", "b.com.cn", "bank.example"}
		}
	}
	return cleanup, nil
}

// sqlite says whether this process owns its database file.
func (c *serveCmd) sqlite() bool { return strings.HasPrefix(c.DB, "sqlite:") }

// alone says whether this process is the only one with its keys and may make them.
func (c *serveCmd) alone() bool { return c.Role == roleAll && c.sqlite() }
