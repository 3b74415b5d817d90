package fleet

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"dispatch.example/dispatch/internal/fault"
)

// tuning is how a client of Redis waits. No call waits for longer than its
// context's deadline, whatever stands here.
type tuning struct {
	timeout time.Duration // of one command, where its context has no shorter one
	pool    int           // connections to one server; 0: ten a core
	idle    int           // of those, kept open without use
	retries int           // of a command on another connection; -1: none
}

// dialTimeout bounds one attempt to connect.
const dialTimeout = 2 * time.Second

// openRedis makes the client that an address asks for:
//
//	redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]     rediss:// with TLS
//	unix://[USER:PASSWORD@]/PATH[?db=DATABASE]
//	redis+sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT/MASTER[/DATABASE]
//	redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT
//
// Sentinel and Cluster also with rediss+. The options of redis.ParseURL follow
// after a question mark, of Sentinel sentinel_username and sentinel_password as
// well. password is used where the address has none. Nothing is dialled yet.
func openRedis(address, password string, t tuning) (redis.UniversalClient, error) {
	opt, err := parseRedisURL(address)
	if err != nil {
		return nil, err
	}
	if opt.Password == "" {
		opt.Password = password
	}
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout, opt.DialerRetries = dialTimeout, 1 // whoever asks asks again
	opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = t.timeout, t.timeout, t.timeout
	opt.PoolSize, opt.MinIdleConns, opt.MaxRetries = t.pool, t.idle, t.retries
	opt.PipelinePoolSize = -1 // pipelines share the pool
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	// go-redis writes plain text to standard error. All that it says there it
	// also returns, and our log has one line a fact.
	logging.Disable()
	if opt.network == "unix" {
		simple := opt.Simple()
		simple.Network = opt.network
		return redis.NewClient(simple), nil
	}
	return redis.NewUniversalClient(&opt.UniversalOptions), nil
}

// redisOptions are go-redis's own and the one that they lack.
type redisOptions struct {
	redis.UniversalOptions
	network string // unix, or empty
}

func parseRedisURL(address string) (*redisOptions, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	if !ok || base != "redis" && base != "rediss" && (scheme != "unix") ||
		kind != "" && kind != "sentinel" && kind != "cluster" {
		return nil, badRedisURL(errors.New("unknown scheme " + scheme))
	}
	// net/url reads one host; a list of them is taken out first.
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user, list := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, list = authority[:i+1], authority[i+1:]
	}
	hosts := strings.Split(list, ",")
	if kind == "" && len(hosts) > 1 {
		return nil, badRedisURL(errors.New("several hosts need redis+sentinel or redis+cluster"))
	}
	opt := &redisOptions{}
	path, err := opt.readSentinel(kind, path)
	if err != nil {
		return nil, badRedisURL(err)
	}
	for i, host := range hosts {
		one, err := redis.ParseURL(base + "://" + user + host + path)
		if err != nil {
			return nil, badRedisURL(withoutURL(err))
		}
		opt.Addrs = append(opt.Addrs, one.Addr)
		if i == 0 {
			opt.network = strings.TrimPrefix(one.Network, "tcp")
			opt.Username, opt.Password, opt.DB, opt.ClientName = one.Username, one.Password, one.DB, one.ClientName
			opt.TLSConfig, opt.Protocol = one.TLSConfig, one.Protocol
		}
	}
	opt.IsClusterMode = kind == "cluster"
	if opt.IsClusterMode && opt.DB != 0 {
		return nil, badRedisURL(errors.New("a cluster has database 0 only"))
	}
	return opt, nil
}

// readSentinel takes what only Sentinel has out of path and returns the rest.
func (o *redisOptions) readSentinel(kind, path string) (string, error) {
	if kind != "sentinel" {
		return path, nil
	}
	u, err := url.Parse(path)
	if err != nil {
		return "", withoutURL(err)
	}
	master, database, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if master == "" {
		return "", errors.New("the name of the master is missing")
	}
	q := u.Query()
	o.MasterName, o.SentinelUsername, o.SentinelPassword = master, q.Get("sentinel_username"), q.Get("sentinel_password")
	q.Del("sentinel_username")
	q.Del("sentinel_password")
	return "/" + database + "?" + q.Encode(), nil
}

// withoutURL is err without the address, which may hold a password.
func withoutURL(err error) error {
	if bad, ok := errors.AsType[*url.Error](err); ok {
		return bad.Err
	}
	return err
}

func badRedisURL(err error) error {
	return fault.New(fault.Invalid, "bad_redis_url", "the address of Redis cannot be used").Because(err).
		WithHint("write redis://HOST:PORT, rediss://…, unix:///PATH, redis+sentinel://HOST:PORT,HOST:PORT/MASTER or redis+cluster://HOST:PORT,HOST:PORT")
}
