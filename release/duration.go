package release

import "time"

// Duration is written with a unit: 30m, 12h.
type Duration time.Duration
