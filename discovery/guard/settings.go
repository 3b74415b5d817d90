package guard

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/internal/fault"
)

// The defaults of Settings.
const (
	DefaultDeadline = 3 * time.Second
	DefaultRetries  = 1
	DefaultSlow     = 800 * time.Millisecond
	// MaxRetries of one call. More would only find the same fault.
	MaxRetries = 3
)

// Settings are how calls to one service are guarded. New fills in what is zero.
type Settings struct {
	Deadline time.Duration // of a call that has none; default 3 s
	Retries  int           // after the first attempt, at other instances; default 1, negative: none
	Slow     time.Duration // from here a call counts as slow; default 800 ms
	// Off leaves out breaker and retries; deadlines stay, and outcomes are told.
	Off bool
}

// Options of a Guard.
type Options struct {
	Default  Settings            // of services that Services does not name
	Services map[string]Settings // by name; what is zero is taken from Default
	Log      *slog.Logger        // each change of a breaker; nil: none
	Metrics  prometheus.Registerer
}

// check lists everything that is wrong.
func (o *Options) check() error {
	var p fault.Problems
	check := func(path string, s Settings) {
		if s.Deadline < 0 {
			p.Addf(path+".Deadline", "must not be negative, got %s: no call is without one", s.Deadline)
		}
		if s.Slow < 0 {
			p.Addf(path+".Slow", "must not be negative, got %s", s.Slow)
		}
		if s.Retries > MaxRetries {
			p.Addf(path+".Retries", "must be at most %d, got %d", MaxRetries, s.Retries)
		}
	}
	check("Default", o.Default)
	for name, s := range o.Services {
		if name == "" {
			p.Addf("Services", "a name is empty")
		}
		check("Services["+name+"]", s)
	}
	return p.Err("invalid_guard", "calls cannot be guarded with these options")
}

// settings are those of one service, complete.
func (o *Options) settings(service string) Settings {
	s := o.Services[service]
	s.Deadline = cmp.Or(s.Deadline, o.Default.Deadline, DefaultDeadline)
	s.Slow = cmp.Or(s.Slow, o.Default.Slow, DefaultSlow)
	s.Retries = max(cmp.Or(s.Retries, o.Default.Retries, DefaultRetries), 0)
	s.Off = s.Off || o.Default.Off
	return s
}
