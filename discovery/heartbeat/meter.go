package heartbeat

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/process"

	"dispatch.example/dispatch/discovery"
)

// meter measures this process. One goroutine uses it.
type meter struct {
	process *process.Process
	root    fs.FS
	inWork  func() int64
	used    time.Duration // processor time until at
	at      time.Time     // zero: not measured yet
}

func newMeter(inWork func() int64) (*meter, error) {
	p, err := process.NewProcess(int32(os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("measure this process: %w", err)
	}
	return &meter{process: p, root: os.DirFS("/"), inWork: inWork}, nil
}

// load is how busy the process is now, and has been since the last time. What
// cannot be measured is nil; so is CPU the first time.
func (m *meter) load(ctx context.Context) discovery.Load {
	limits := readLimits(m.root)
	var l discovery.Load
	if times, err := m.process.TimesWithContext(ctx); err == nil {
		now, used := time.Now(), time.Duration((times.User+times.System)*float64(time.Second))
		if since := now.Sub(m.at); !m.at.IsZero() && since > 0 {
			l.CPU = new(percent((used - m.used).Seconds(), since.Seconds()*processors(limits)))
		}
		m.at, m.used = now, used
	}
	if info, err := m.process.MemoryInfoWithContext(ctx); err == nil {
		if all := memory(ctx, limits); all > 0 {
			l.Memory = new(percent(float64(info.RSS), all))
		}
	}
	if m.inWork != nil {
		l.Connections = new(max(m.inWork(), 0))
	}
	return l
}

// processors are those that the process may use. GOMAXPROCS knows the quota too, but
// is never below 2 for it: half a processor that is busy would look like a quarter.
func processors(l limits) float64 {
	n := float64(runtime.GOMAXPROCS(0))
	if l.processors > 0 {
		n = min(n, l.processors)
	}
	return n
}

// memory is what the process may use, in bytes; 0 is unknown.
func memory(ctx context.Context, l limits) float64 {
	host, err := mem.VirtualMemoryWithContext(ctx)
	switch {
	case err != nil || host.Total == 0:
		return l.memory
	case l.memory > 0:
		return min(l.memory, float64(host.Total))
	}
	return float64(host.Total)
}

// percent of all; a measurement beside the clock may come out a little over.
func percent(part, all float64) float64 { return min(max(100*part/all, 0), 100) }
