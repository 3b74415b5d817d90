package heartbeat

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// limits are what control groups allow the process; 0 is no limit.
type limits struct {
	processors float64
	memory     float64 // bytes
}

// readLimits looks at the process's control groups of both versions, and at those
// above them: the narrowest counts. Elsewhere than on Linux there are none.
func readLimits(root fs.FS) (l limits) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return l
	}
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			switch {
			case controllers == "":
				l.narrow(readV2(root, path.Join("sys/fs/cgroup", dir)))
			case strings.Contains(","+controllers+",", ",cpu,"):
				l.narrow(limits{processors: quotaV1(root, path.Join("sys/fs/cgroup/cpu", dir))})
			case controllers == "memory":
				l.narrow(limits{memory: number(root, path.Join("sys/fs/cgroup/memory", dir, "memory.limit_in_bytes"))})
			}
			if dir == "/" {
				break
			}
		}
	}
	return l
}

func (l *limits) narrow(other limits) {
	for _, pair := range []struct{ mine, other *float64 }{{&l.processors, &other.processors}, {&l.memory, &other.memory}} {
		if *pair.other > 0 && (*pair.mine == 0 || *pair.other < *pair.mine) {
			*pair.mine = *pair.other
		}
	}
}

// readV2 reads cpu.max, QUOTA PERIOD in microseconds, and memory.max; both may be max.
func readV2(root fs.FS, dir string) limits {
	l := limits{memory: number(root, path.Join(dir, "memory.max"))}
	text, err := fs.ReadFile(root, path.Join(dir, "cpu.max"))
	if err != nil {
		return l
	}
	quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	l.processors = ratio(parse(quota), parse(period))
	return l
}

func quotaV1(root fs.FS, dir string) float64 {
	return ratio(number(root, path.Join(dir, "cpu.cfs_quota_us")), number(root, path.Join(dir, "cpu.cfs_period_us")))
}

func ratio(quota, period float64) float64 {
	if period <= 0 {
		return 0
	}
	return quota / period
}

// number is what a file holds; 0 if it says that there is no limit, or nothing.
func number(root fs.FS, name string) float64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	return parse(strings.TrimSpace(string(text)))
}

func parse(text string) float64 {
	n, err := strconv.ParseUint(text, 10, 64) // not max, and not -1
	if err != nil {
		return 0
	}
	return float64(n)
}
