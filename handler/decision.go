package handler

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gopkg.in/natefinch/lumberjack.v2"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

const (
	ringSize   = 8192                   // records; at 300 bytes each 2.5 MB, and 80,000 requests a second between two drains
	drainEvery = 100 * time.Millisecond // also when the ring is half full
	writeSize  = 64 << 10               // bytes written at once
)

// decision is one answer and all that it depended on. It holds raw ids, in
// memory only: what is written holds their keyed hashes.
type decision struct {
	id   [2]uint64 // random; names the record
	snap *release.Snapshot
	app  *release.Served
	req  policy.Request
	out  policy.Decision
}

// decisionLog carries decisions from requests to a writer that may be slow.
// Requests add and never wait; run alone reads, renders and writes.
type decisionLog struct {
	ring    chan decision
	wake    chan struct{} // holds one: the ring is half full
	out     io.WriteCloser
	render  renderer
	dropped prometheus.Counter
	log     *slog.Logger

	failing bool // of run: the last write failed, which was said once
}

// add keeps d unless the ring is full; then it is dropped and counted. The
// reader is not woken for every record: that would cost a request more than the
// record does.
func (l *decisionLog) add(d *decision) {
	if l == nil {
		return
	}
	kept := *d
	if len(kept.req.Attrs) > 0 {
		kept.req.Attrs = slices.Clone(kept.req.Attrs) // the request's own memory is used again
	}
	select {
	case l.ring <- kept:
	default:
		l.dropped.Inc()
	}
	if len(l.ring) >= ringSize/2 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// run writes what requests add until ctx ends, then the rest, and closes the log.
func (l *decisionLog) run(ctx context.Context) error {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	buf := make([]byte, 0, writeSize+4096)
	for {
		select {
		case <-ctx.Done():
			l.drain(buf)
			return l.out.Close()
		case <-tick.C:
		case <-l.wake:
		}
		l.drain(buf)
	}
}

// drain writes the records that are in the ring now.
func (l *decisionLog) drain(buf []byte) {
	lines := 0
	for n := len(l.ring); n > 0; n-- {
		d := <-l.ring
		buf = l.render.append(buf, &d)
		lines++
		if len(buf) >= writeSize {
			l.write(buf, lines)
			buf, lines = buf[:0], 0
		}
	}
	if lines > 0 {
		l.write(buf, lines)
	}
}

// write counts lines that could not be written, and says so when that begins and ends.
func (l *decisionLog) write(buf []byte, lines int) {
	_, err := l.out.Write(buf)
	if err != nil {
		l.dropped.Add(float64(lines))
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
