// Package client is the app side of dispatch: it asks which domain a session uses and
// never comes back without one. It needs the standard library only.
//
// A [Client] holds one last good answer. [Client.Route] gives it back while its ttl lasts;
// else it asks, for 2 s in all, one bootstrap host and then another; then it falls back to
// the last good answer, then to the built-in domain. Nothing that a server, a network or a
// disk does turns into an error: [Route] says in Source and Reason what happened.
//
// An answer passes two gates. parse (answer.go, record.go) asks whether the answer is well
// formed and its record signed by a pinned key for this app; admit (ratchet.go) asks whether
// it is recent enough. Only what passed both moves the ratchets and reaches the [Store].
//
// Goroutines: Route starts at most one at a time, for one question; callers share it.
// [Client.Close] ends it and waits for it. New starts none.
//
// Clocks: ages are measured by the monotonic clock. The wall clock decides two things only:
// whether a record has expired, and how old a stored answer is after a restart.
package client

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say who asks, whom to ask and whom to believe. App, Deployment, Bootstrap, Keys,
// Suffixes and BuiltIn are required; they belong in the app's binary, not into anything
// that can be changed over the network.
type Options struct {
	App        string                       // the app's key
	Deployment string                       // the issuer of records, as in the server's --deployment
	Bootstrap  []string                     // at least two hosts, https://HOST; plain http only to loopback
	Keys       map[string]ed25519.PublicKey // by key id: the current and the next one; see ParseKeys
	Suffixes   []string                     // a domain outside of them is never used
	BuiltIn    string                       // the domain of last resort

	DeviceID   string // stable for the installation
	UserID     string // as SetUser
	AppVersion string
	Platform   string
	Channel    string
	Carrier    string
	Locale     string
	Attrs      map[string]string // for conditions on attr.NAME

	Store     Store             // default: memory, so a restart begins with nothing
	Transport http.RoundTripper // default: a copy of http.DefaultTransport; the place for certificate pinning
	Log       *slog.Logger      // default: discard. No id is ever logged

	// AllowUnsigned believes answers without a record when Keys is empty. It is for a
	// development server; a suffix list is then all that stands between a hijacked
	// server and the app.
	AllowUnsigned bool
}

// Source says where a Route comes from.
type Source string

// The sources, from best to worst.
const (
	Fresh    Source = "fresh"     // a server has just answered
	Cached   Source = "cached"    // the last good answer, its ttl not over
	LastGood Source = "last_good" // the last good answer, its ttl over, and no server answered
	BuiltIn  Source = "built_in"  // there is no last good answer, and no server answered
)

// Route is the domain a session uses.
type Route struct {
	Domain     string
	Region     string   // empty when no region serves, e.g. for the built-in domain
	Alternates []string // other domains to try, in this order, when Domain cannot be reached
	Fallback   string   // the app's domain of last resort; the built-in one if the answer names none
	Release    uint64   // the configuration that decided; 0 for the built-in domain
	Source     Source
	Reason     Reason // why the last question got no usable answer; empty when it did
}

// Domains lists every domain worth trying, best first, none twice.
func (r Route) Domains() []string {
	all := append([]string{r.Domain}, r.Alternates...)
	all = append(all, r.Fallback)
	var once []string
	for _, d := range all {
		if !slices.Contains(once, d) {
			once = append(once, d)
		}
	}
	return once
}

// Client asks for the routes of one app. It is safe for concurrent use.
type Client struct {
	trust   trust
	hosts   []*url.URL
	headers http.Header // those that never change
	http    *http.Client
	store   Store
	log     *slog.Logger
	wall    func() time.Time // time.Now; tests of clock jumps replace it

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	asking sync.WaitGroup
	saving sync.Mutex // orders writes to the store; taken before mu

	mu        sync.Mutex // guards the rest; never held over network or disk
	closed    bool
	user      string
	good      *held // the last good answer; nil when there never was one
	marks     marks
	fallbacks map[Reason]int // not yet reported
	call      *call          // the question under way
	first     int            // index of the host to ask first
	failures  int            // questions in a row without an answer
	why       Reason         // of the last of them
	resume    time.Time      // no question before
}

// held is an accepted answer.
type held struct {
	answer
	body      []byte    // as received, for the store
	received  time.Time // by the wall clock
	until     time.Time // its ttl ends, by the monotonic clock
	confirmed bool      // received by this process, not read from the store
}

func (h *held) hasTTL() bool { return h != nil && time.Until(h.until) > 0 }

// New checks the options, reads the store and returns a Client. Every mistake in the
// options is in the error. A store that cannot be read is logged and counts as empty.
func New(opt Options) (*Client, error) {
	hosts, err := opt.check()
	if err != nil {
		return nil, err
	}
	c := &Client{
		trust: trust{
			deployment: opt.Deployment, app: opt.App, keys: maps.Clone(opt.Keys),
			suffixes: slices.Clone(opt.Suffixes), builtIn: opt.BuiltIn,
		},
		hosts: hosts, headers: opt.headers(), store: opt.Store, log: opt.Log, wall: time.Now,
		user: opt.UserID, marks: marks{}, fallbacks: map[Reason]int{},
	}
	if c.store == nil {
		c.store = &memory{}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	transport := opt.Transport
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	c.http = &http.Client{
		Transport: transport,
		// Redirects come from captive portals and hijackers; the answer is never elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.load()
	return c, nil
}

// Route returns the session's domain, within 2 s whatever happens, and at once while the
// last good answer has ttl left. An answer that was read from the store is also refreshed
// behind. When ctx ends first, Route falls back and the question goes on without the caller.
func (c *Client) Route(ctx context.Context) Route { return c.route(ctx, false) }

// Refresh is Route without regard to the ttl and to the pause after a failure. Call it when
// the device wakes up (Go's monotonic clock stands still while some systems sleep), when the
// network changed, and when no domain of the route can be reached; never on a timer.
func (c *Client) Refresh(ctx context.Context) Route { return c.route(ctx, true) }

// SetUser sets the customer id that later questions carry; empty means signed out. The
// session and its domain stay, so that a login moves nobody.
func (c *Client) SetUser(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.user = id
}

// Close ends a question under way, waits for it and for its write to the store, and drops
// idle connections. Route still answers afterwards, from what the Client has.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.asking.Wait()
	c.http.CloseIdleConnections()
	return nil
}

func (c *Client) route(ctx context.Context, force bool) Route {
	c.mu.Lock()
	atOnce := c.good.hasTTL() && !force
	if atOnce && c.good.confirmed {
		defer c.mu.Unlock()
		return c.best("")
	}
	asked, why := c.ask(force)
	if atOnce || asked == nil {
		defer c.mu.Unlock()
		return c.best(why)
	}
	c.mu.Unlock()
	return c.wait(ctx, asked)
}

// wait has a limit of its own, because a Transport may ignore its context.
func (c *Client) wait(ctx context.Context, asked *call) Route {
	limit := time.NewTimer(budget)
	defer limit.Stop()
	why := Timeout
	select {
	case <-asked.done:
		if asked.why == "" {
			return asked.route
		}
		why = asked.why
	case <-limit.C:
	case <-ctx.Done():
		why = Canceled
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.best(why)
}

// best is what there is without asking. The caller holds mu.
func (c *Client) best(why Reason) Route {
	if c.good == nil {
		return Route{Domain: c.trust.builtIn, Fallback: c.trust.builtIn, Source: BuiltIn, Reason: why}
	}
	source := LastGood
	if c.good.hasTTL() {
		source = Cached
	}
	return c.good.route(c.trust.builtIn, source, why)
}

func (a *answer) route(builtIn string, source Source, why Reason) Route {
	r := Route{Domain: a.Domain, Region: a.Region, Alternates: slices.Clone(a.Alternates),
		Fallback: a.Fallback, Release: a.Release, Source: source, Reason: why}
	if r.Fallback == "" {
		r.Fallback = builtIn
	}
	return r
}

// headers are those that stay the same for the Client's life.
func (o Options) headers() http.Header {
	h := http.Header{"Accept": {"application/json"}, "User-Agent": {"dispatch-client-go"}}
	for name, value := range map[string]string{
		"X-App": o.App, "X-Device-Id": o.DeviceID, "X-App-Version": o.AppVersion, "X-Platform": o.Platform,
		"X-Channel": o.Channel, "X-Carrier": o.Carrier, "X-Locale": o.Locale,
	} {
		put(h, name, value)
	}
	if len(o.Keys) > 0 {
		h.Set("X-Record-Keys", strings.Join(slices.Sorted(maps.Keys(o.Keys)), ","))
	}
	return h
}
