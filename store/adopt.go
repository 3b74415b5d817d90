package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// Adopt appends a release that the fleet serves and this database lacks, because
// it was restored from a backup. The caller has verified its signature. It is
// everywhere already, and its number may jump.
//
// Two people approved its hosts before it was signed; the rows that say so are
// lost. So those that are not approved here are registered anew: the release is
// named as their proposer and in Host.Adopted, and who adopts it as the approver.
// A proposal of such a host is replaced. Adopt sets Action and Details, which list
// these hosts.
func (s *Store) Adopt(ctx context.Context, w ledger.Write) error {
	if w.Canary != "" {
		return fault.New(fault.Invalid, "bad_release", "an adopted release is everywhere: it has no canary")
	}
	w.Change.Action = "adopt"
	return s.add(ctx, w, func(tx *gorm.DB, e *entry) error {
		hosts, err := s.adoptHosts(tx, w)
		if err != nil {
			return fmt.Errorf("adopt hosts: %w", err)
		}
		e.Details, err = json.Marshal(struct {
			Hosts []string `json:"adopted_hosts"`
		}{hosts})
		return err
	})
}

// adoptHosts approves those of the hosts that are not, and returns them.
func (s *Store) adoptHosts(tx *gorm.DB, w ledger.Write) ([]string, error) {
	approved, err := approvedHosts(tx)
	if err != nil {
		return nil, err
	}
	adopted := []string{}
	number := int64(w.Signed.Number)
	name := releaseName(w.Signed.Stream, w.Signed.Number)
	for _, host := range slices.Compact(slices.Sorted(slices.Values(w.Hosts))) {
		if approved[host] {
			continue
		}
		if err := tx.Where("host = ?", host).Delete(&hostRow{}).Error; err != nil {
			return nil, err
		}
		now := micros(s.now())
		row := hostRow{Host: host, Proposer: "release " + name, Proposed: now, Reason: w.Change.Reason,
			AdoptStream: &w.Signed.Stream, AdoptNumber: &number}
		if err := tx.Create(&row).Error; err != nil {
			return nil, err
		}
		err := tx.Model(&hostRow{}).Where("host = ?", host).Updates(map[string]any{"approver": w.Change.By, "approved": now}).Error
		if err != nil {
			return nil, err
		}
		adopted = append(adopted, host)
	}
	return adopted, nil
}
