package release

import (
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// Duration is written with a unit: 30m, 12h.
type Duration time.Duration

// String is the shortest form: 30m, not 30m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-len("0s")]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-len("0m")]
	}
	return s
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration in whole seconds, more than 0.
func (d *Duration) UnmarshalText(text []byte) error {
	read, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		return badDuration("%s is not a duration with a unit", quote(string(text)))
	case read <= 0:
		return badDuration("%s is not more than 0", quote(string(text)))
	case read%time.Second != 0:
		return badDuration("%s is not in whole seconds", quote(string(text)))
	}
	*d = Duration(read)
	return nil
}

func badDuration(format string, args ...any) error {
	return fault.New(fault.Invalid, "bad_duration", format, args...).WithHint("write 90s, 30m or 12h")
}
