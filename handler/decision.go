package handler

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gopkg.in/natefinch/lumberjack.v2"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

const (
	maxPending = 4 << 20     // bytes of records that wait for the disk, about 8,000 of them
	writeSize  = 64 << 10    // bytes written at once; the writer is woken when that many wait
	flushEvery = time.Second // the longest time that a record waits for more
)

// decision is one answer and all that it depended on. It holds raw ids; its
// rendered line holds their keyed hashes.
type decision struct {
	id   [2]uint64 // random; names the record
	at   traced
	snap *release.Snapshot
	app  *release.Served
	req  policy.Request
	out  policy.Decision
}

// decisionLog carries rendered records from requests to a writer that may be
// slow. Requests add and never wait for it; run alone writes.
//
// Records are rendered by the request, while all that they name is in the
// processor's cache. A ring of unrendered ones was measured slower: it keeps the
// requests' memory alive, and the collector scans it.
type decisionLog struct {
	out     io.WriteCloser
	render  renderer
	dropped prometheus.Counter
	log     *slog.Logger
	wake    chan struct{} // holds one: writeSize bytes wait

	mu      sync.Mutex // guards pending; held for the copy of one record, or an exchange of buffers
	pending []byte     // whole lines, at most maxPending bytes

	writing []byte // of run: the other buffer
	failing bool   // of run: the last write failed, which was said once
}

// add keeps a record unless maxPending bytes wait already; then it is dropped and counted.
func (l *decisionLog) add(line []byte) {
	l.mu.Lock()
	before := len(l.pending)
	fits := before+len(line) <= maxPending
	if fits {
		l.pending = append(l.pending, line...)
	}
	l.mu.Unlock()
	if !fits {
		l.dropped.Inc()
		return
	}
	if before < writeSize && before+len(line) >= writeSize {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// run writes what requests add until ctx ends, then the rest, and closes the log.
func (l *decisionLog) run(ctx context.Context) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.flush()
			return l.out.Close()
		case <-tick.C:
		case <-l.wake:
		}
		l.flush()
	}
}

// flush writes what waits now, whole lines at a time.
func (l *decisionLog) flush() {
	l.mu.Lock()
	l.pending, l.writing = l.writing[:0], l.pending
	l.mu.Unlock()
	for rest := l.writing; len(rest) > 0; {
		n := len(rest)
		if n > writeSize {
			n = bytes.LastIndexByte(rest[:writeSize], '\n') + 1 // a record is far shorter than writeSize
		}
		l.write(rest[:n])
		rest = rest[n:]
	}
}

// write counts lines that could not be written, and says so when that begins and ends.
func (l *decisionLog) write(lines []byte) {
	_, err := l.out.Write(lines)
	if err != nil {
		l.dropped.Add(float64(bytes.Count(lines, []byte{'\n'})))
	}
	switch failed := err != nil; {
	case failed && !l.failing:
		l.log.Error("decision log cannot be written, records are dropped",
			"err", err, "hint", "free space on its disk or point --decision-log elsewhere")
	case !failed && l.failing:
		l.log.Info("decision log is written again")
	}
	l.failing = err != nil
}

// RotatedFile is a decision log on disk: name, and keep older ones of megabytes each.
func RotatedFile(name string, megabytes, keep int) io.WriteCloser {
	return &lumberjack.Logger{Filename: name, MaxSize: megabytes, MaxBackups: keep}
}
