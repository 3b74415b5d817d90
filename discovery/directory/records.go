package directory

import (
	"context"
	"net/http"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

const (
	maxBatch   = 8 << 20 // bytes
	maxRecords = 10_000  // a record has about 400 bytes
	maxViews   = 2_000
)

// The outcomes of a record, for metrics.
const (
	recordSaved   = "saved"
	recordDropped = "dropped" // there is no Memory
	recordFailed  = "failed"  // Memory is away; the caller sends it again
	recordLost    = "lost"    // the caller had no room for it
)

// records takes picks, and adds the lists that they were made from.
func (s *Server) records(w http.ResponseWriter, r *http.Request) error {
	var batch wire.Batch
	if err := read(w, r, maxBatch, &batch); err != nil {
		return err
	}
	if len(batch.Records) > maxRecords || len(batch.Views) > maxViews {
		return fault.New(fault.TooLarge, "batch_too_large", "there are %d records and %d views, at most %d and %d are taken at a time",
			len(batch.Records), len(batch.Views), maxRecords, maxViews)
	}
	if !isPlain(batch.Caller) {
		return fault.New(fault.Invalid, "bad_batch", "the batch names no caller")
	}
	count := func(outcome string, n float64) { s.d.metrics.records.WithLabelValues(outcome).Add(n) }
	records, lost := float64(len(batch.Records)), float64(batch.Dropped)
	if s.d.opt.Memory == nil {
		count(recordLost, lost)
		count(recordDropped, records)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), memoryTimeout)
	defer cancel()
	if err := s.d.opt.Memory.SaveRecords(ctx, batch, s.lists(batch)); err != nil {
		count(recordFailed, records)
		if !s.failing.Swap(true) {
			s.d.log.WarnContext(ctx, "records of picks cannot be saved", "err", err)
		}
		return fault.New(fault.Unavailable, "records_not_saved", "the records cannot be saved now; send them again").Because(err)
	}
	if s.failing.Swap(false) {
		s.d.log.InfoContext(ctx, "records of picks are saved again")
	}
	count(recordLost, lost)
	count(recordSaved, records)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// lists are those that the batch's views name, as far as they are remembered.
func (s *Server) lists(b wire.Batch) map[string][]discovery.Instance {
	digests := make([]string, len(b.Views))
	for i, v := range b.Views {
		digests[i] = v.Digest
	}
	return s.d.tables.named(digests)
}
