package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tick is the unit of times in /proc/PID/stat: Linux reports hundredths of a
// second to every program, whatever the kernel counts in.
const tick = 10 * time.Millisecond

// cpuOf is the processor time that the process has spent.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	var ticks int64
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(field, 10, 64)
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// memoryOf is a line of /proc/PID/status in bytes: VmRSS is now, VmHWM the peak.
func memoryOf(t *testing.T, pid int, line string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, found := strings.Cut(string(status), "\n"+line+":")
	fields := strings.Fields(rest)
	if !found || len(fields) < 2 || fields[1] != "kB" {
		t.Fatalf("/proc/%d/status has no %s", pid, line)
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	must(t, err)
	return n << 10
}
