package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is how long the threads of a process have been on a processor, from
// the scheduler's own nanosecond counters (Linux, /proc/PID/task/TID/schedstat).
// A thread that has ended is not counted, so compare within one steady window.
func cpuTime(pids []int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(tasks) == 0 {
			return 0, fmt.Errorf("read cpu time of process %d: no threads", pid)
		}
		for _, task := range tasks {
			data, err := os.ReadFile(task)
			if err != nil {
				continue // the thread ended between the listing and here
			}
			first, _, _ := strings.Cut(string(data), " ")
			ns, err := strconv.ParseInt(first, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read cpu time of process %d: %w", pid, err)
			}
			total += time.Duration(ns)
		}
	}
	return total, nil
}

// childrenOf is the processes whose parent is pid: nginx and HAProxy answer from workers.
func childrenOf(pid int) []int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var out []int
	for _, field := range strings.Fields(string(data)) {
		if child, err := strconv.Atoi(field); err == nil {
			out = append(out, child)
		}
	}
	return out
}

// median of a copy of v; v is not empty.
func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// pinSelf moves the load to the second processor, away from the server under measurement.
func pinSelf() error {
	var second unix.CPUSet
	second.Set(1)
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &second); err != nil {
			return fmt.Errorf("pin the load to the second processor: %w", err)
		}
	}
	return nil
}
