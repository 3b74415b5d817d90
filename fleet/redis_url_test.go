package fleet

import (
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

func TestParseRedisURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url    string
		addrs  []string
		master string
		want   string // network user password database tls cluster
	}{
		{"redis://10.1.0.7", []string{"10.1.0.7:6379"}, "", " - - 0 false false"},
		{"redis://app:s%40cret@cache.bank.example:7000/3", []string{"cache.bank.example:7000"}, "", " app s@cret 3 false false"},
		{"redis://[::1]:7000?db=2", []string{"[::1]:7000"}, "", " - - 2 false false"},
		{"rediss://cache.bank.example", []string{"cache.bank.example:6379"}, "", " - - 0 true false"},
		{"unix:///run/redis.sock?db=1", []string{"/run/redis.sock"}, "", "unix - - 1 false false"},
		{"unix://:pw@/run/redis.sock", []string{"/run/redis.sock"}, "", "unix - pw 0 false false"},
		{"redis+sentinel://a:1,b:2,[::1]:3/bank", []string{"a:1", "b:2", "[::1]:3"}, "bank", " - - 0 false false"},
		{"redis+sentinel://:pw@a:1,b:2/bank/4?sentinel_password=spw", []string{"a:1", "b:2"}, "bank", " - pw 4 false false"},
		{"rediss+sentinel://a:1/bank", []string{"a:1"}, "bank", " - - 0 true false"},
		{"redis+cluster://app:pw@a:1,b:2", []string{"a:1", "b:2"}, "", " app pw 0 false true"},
		{"rediss+cluster://a", []string{"a:6379"}, "", " - - 0 true true"},
	} {
		opt, err := parseRedisURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		dash := func(s string) string {
			if s == "" {
				return "-"
			}
			return s
		}
		got := strings.Join([]string{opt.network, dash(opt.Username), dash(opt.Password), string(rune('0' + opt.DB)),
			boolText(opt.TLSConfig != nil), boolText(opt.IsClusterMode)}, " ")
		if !slices.Equal(opt.Addrs, c.addrs) || opt.MasterName != c.master || got != c.want {
			t.Errorf("%s = %v %q %q, want %v %q %q", c.url, opt.Addrs, opt.MasterName, got, c.addrs, c.master, c.want)
		}
		if strings.Contains(c.url, "sentinel_password") && opt.SentinelPassword != "spw" {
			t.Errorf("%s: password of Sentinel = %q", c.url, opt.SentinelPassword)
		}
	}
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// What cannot be used says so without showing a password.
func TestParseRedisURLRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "redis", "10.1.0.7:6379", "http://:hunter2@a", "redis+ring://a", "unix+cluster:///run/redis.sock",
		"redis://:hunter2@a,b", "redis://:hunter2@a/x", "redis://:hunter2@a/1/2", "redis://:hunter2@a?colour=red",
		"redis://:hunter2@a:port", "redis://:hunter2%zz@a", "redis+sentinel://:hunter2@a:1", "redis+sentinel://:hunter2@a:1/",
		"redis+cluster://:hunter2@a:1,b:2/5",
	} {
		opt, err := parseRedisURL(url)
		if fault.CodeOf(err) != "bad_redis_url" {
			t.Errorf("%s = %+v, %v", url, opt, err)
			continue
		}
		if text := err.Error(); strings.Contains(text, "hunter2") || !strings.Contains(text, "try: write redis://") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func FuzzParseRedisURL(f *testing.F) {
	for _, url := range []string{"redis://u:p@h:1/2?db=3", "redis+sentinel://a:1,b:2/m/1", "redis+cluster://a,b", "unix:///x", "redis+sentinel:///?#"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		opt, err := parseRedisURL(url)
		if err == nil && (len(opt.Addrs) == 0 || opt.IsClusterMode && opt.DB != 0) {
			t.Errorf("%q = %+v", url, opt)
		}
		if err != nil && fault.CodeOf(err) != "bad_redis_url" {
			t.Errorf("%q: %v", url, err)
		}
	})
}

func TestNewRedisRefuses(t *testing.T) {
	t.Parallel()
	if _, err := NewRedis(RedisOptions{URL: "redis://127.0.0.1:1"}); fault.CodeOf(err) != "bad_redis" {
		t.Errorf("no deployment: %v", err)
	}
	if _, err := NewRedis(RedisOptions{URL: "redis://127.0.0.1:1", Deployment: "a{b"}); fault.CodeOf(err) != "bad_redis" {
		t.Errorf("braces: %v", err)
	}
	if _, err := NewRedis(RedisOptions{URL: "ftp://x", Deployment: "bank"}); fault.CodeOf(err) != "bad_redis_url" {
		t.Errorf("scheme: %v", err)
	}
}
