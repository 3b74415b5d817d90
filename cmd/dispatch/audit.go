package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"log/syslog"
	"os"
	"time"

	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

// auditEvery is how much of the audit trail a person with the database may
// rewrite before its head has left.
const auditEvery = time.Minute

// auditLine is what leaves each minute.
type auditLine struct {
	At         time.Time      `json:"at"`
	Deployment string         `json:"deployment"`
	Seq        uint64         `json:"seq"`
	Hash       release.Digest `json:"hash"`
}

// auditSink is where heads of the audit trail are kept out of the reach of the
// database's owner: the log of the machine, or a file that is only appended to,
// best on another machine's disk.
type auditSink struct {
	deployment string
	file       string // empty: syslog
	log        *slog.Logger
	now        func() time.Time
}

// newAuditSink finds out at the start whether the sink can be written.
func newAuditSink(p *process) (*auditSink, error) {
	s := &auditSink{deployment: p.cfg.Deployment, log: p.log, now: p.now}
	if p.cfg.AuditSink != "syslog" {
		s.file = p.cfg.AuditSink
	}
	out, err := s.open()
	if err != nil {
		return nil, err
	}
	return s, out.Close()
}

func (s *auditSink) open() (out io.WriteCloser, err error) {
	if s.file == "" {
		out, err = syslog.New(syslog.LOG_NOTICE|syslog.LOG_AUTH, "dispatch")
	} else {
		out, err = os.OpenFile(s.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("open --audit-sink: %w", err)
	}
	return out, nil
}

// run sends the head at once and then each minute, when it has moved. A failure
// is logged and tried again.
func (s *auditSink) run(ctx context.Context, st *store.Store) error {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	var sent ledger.AuditHead
	for {
		if err := s.send(ctx, st, &sent); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "the head of the audit trail did not leave", "err", err,
				"try", "make --audit-sink writable; it is tried again each minute")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *auditSink) send(ctx context.Context, st *store.Store, sent *ledger.AuditHead) error {
	head, err := st.AuditHead(ctx)
	if err != nil {
		return fmt.Errorf("read the head of the audit trail: %w", err)
	}
	if head == *sent {
		return nil
	}
	line, err := json.Marshal(auditLine{At: s.now().UTC(), Deployment: s.deployment, Seq: head.Seq, Hash: head.Hash})
	if err != nil {
		return fmt.Errorf("write the head of the audit trail: %w", err)
	}
	out, err := s.open() // anew each time: the file may have been moved away, syslog started again
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	if f, ok := out.(*os.File); ok && err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write the head of the audit trail: %w", err)
	}
	*sent = head
	return nil
}

// known are the heads that left for the file, in their order. Lines of other
// deployments and lines cut short by a crash are passed over.
func (s *auditSink) known() ([]ledger.AuditHead, error) {
	if s.file == "" {
		return nil, nil
	}
	f, err := os.Open(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read --audit-sink: %w", err)
	}
	defer f.Close()
	var heads []ledger.AuditHead
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var l auditLine
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.Deployment == s.deployment && l.Seq > 0 {
			heads = append(heads, ledger.AuditHead{Seq: l.Seq, Hash: l.Hash})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read --audit-sink %s: %w", s.file, err)
	}
	return heads, nil
}

// watchedLedger is the store, with the heads of the sink known to every
// verification of the audit trail.
type watchedLedger struct {
	*store.Store
	sink *auditSink
}

// VerifyAudit compares the trail with the heads of the sink too.
func (l watchedLedger) VerifyAudit(ctx context.Context, known ...ledger.AuditHead) (ledger.AuditCheck, error) {
	kept, err := l.sink.known()
	if err != nil {
		return ledger.AuditCheck{}, err
	}
	return l.Store.VerifyAudit(ctx, append(kept, known...)...)
}
