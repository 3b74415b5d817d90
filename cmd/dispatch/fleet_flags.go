package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"dispatch.example/dispatch/internal/signed"
)

// fleetFlags connect the nodes of one deployment.
type fleetFlags struct {
	ReplicaID      string   `name:"replica-id" env:"DISPATCH_REPLICA_ID" placeholder:"NAME" help:"Name of this replica, the same after a restart (default: made once and kept in DATA/replica-id)."`
	FleetListen    string   `default:"127.0.0.1:8083" help:"Address at which a control node hands out releases and hears from replicas. Beyond loopback it needs TLS."`
	FleetTokenFile string   `placeholder:"FILE" help:"Token that nodes show each other, made by dispatch keys new (default DATA/keys/fleet.token, which makes itself only with SQLite; not needed with --fleet-tls-ca)."`
	FleetTLSCert   string   `name:"fleet-tls-cert" env:"DISPATCH_FLEET_TLS_CERT" placeholder:"FILE" help:"Certificate of this node, for its fleet listener and for its calls to others."`
	FleetTLSKey    string   `name:"fleet-tls-key" env:"DISPATCH_FLEET_TLS_KEY" placeholder:"FILE" help:"Its private key."`
	FleetTLSCA     string   `name:"fleet-tls-ca" env:"DISPATCH_FLEET_TLS_CA" placeholder:"FILE" help:"Who must have signed the certificates of other nodes, in both directions."`
	Control        []string `placeholder:"URL" help:"Fleet listeners of the control nodes."`
	Discovery      string   `placeholder:"static:FILE|consul://HOST:PORT" help:"Where control nodes are found, and this replica is registered."`
	Redis          string   `placeholder:"URL" help:"Where control nodes put releases and replicas find them, also when every control node is down: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://. Its password may stand in DISPATCH_REDIS_PASSWORD."`
	TrustKeys      string   `placeholder:"FILE" help:"Public keys that an edge believes, from dispatch keys export. Required with --role edge."`

	CanaryTime time.Duration `default:"10s" help:"How long one replica serves a change alone before all others do; 0 leaves the canary out."`
	SessionMap string        `enum:"off,redis" default:"off" help:"redis keeps where a session_id went, for apps that cannot send a session token back."`
}

// scheme is how the fleet listener is reached.
func (f *fleetFlags) scheme() string {
	if f.FleetTLSCert != "" {
		return "https"
	}
	return "http"
}

// fleetTokens are the tokens that nodes show each other, current first. A process
// that is alone makes one; several with tokens of their own would refuse each other.
func (c *serveCmd) fleetTokens() ([]string, error) {
	path := c.Fleet.FleetTokenFile
	if path == "" { // certificates stand for it
		return nil, nil
	}
	tokens, err := signed.ReadTokens(path)
	if errors.Is(err, fs.ErrNotExist) && c.alone() {
		tokens = []string{signed.NewToken()}
		err = signed.WriteTokens(path, tokens...)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--fleet-token-file: %w\ntry: bring the file that the other nodes use, or make a first one: dispatch keys new --fleet-token-file %s", err, path)
	}
	if err != nil {
		return nil, fmt.Errorf("--fleet-token-file: %w", err)
	}
	return tokens, nil
}

// sources says whether releases may come from elsewhere.
func (f *fleetFlags) sources() bool { return len(f.Control) > 0 || f.Discovery != "" || f.Redis != "" }
