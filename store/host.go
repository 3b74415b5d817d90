package store

import (
	"context"
	"slices"
	"strings"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

type hostRow struct {
	Host        string  `gorm:"column:host;primaryKey"`
	Proposer    string  `gorm:"column:proposer"`
	Proposed    int64   `gorm:"column:proposed"`
	Reason      string  `gorm:"column:reason"`
	Approver    *string `gorm:"column:approver"`
	Approved    *int64  `gorm:"column:approved"`
	FourEyesOff bool    `gorm:"column:four_eyes_off"`
	AdoptStream *string `gorm:"column:adopted_stream"`
	AdoptNumber *int64  `gorm:"column:adopted_number"`
}

// TableName is the table's name.
func (hostRow) TableName() string { return "hosts" }

// ProposeHost adds a host in normal form (see package domain), not yet approved.
func (s *Store) ProposeHost(ctx context.Context, host string, c ledger.Change) error {
	var p fault.Problems
	if checkText(&p, "host", host, maxHost); host != strings.ToLower(host) {
		p.Addf("host", "not in lower case")
	}
	if err := p.Err("bad_host", "the host cannot be stored"); err != nil {
		return err
	}
	c.Action, c.Target = "host_propose", host
	return s.change(ctx, &entry{Change: c}, func(tx *gorm.DB) error {
		_, err := takeHost(tx, host)
		if err == nil {
			return fault.New(fault.Conflict, "duplicate", "host %s is proposed already", host).
				WithHint("GET /api/v1/hosts says by whom and whether it is approved")
		}
		if fault.KindOf(err) != fault.NotFound {
			return err
		}
		return tx.Create(&hostRow{Host: host, Proposer: c.By, Proposed: micros(s.now()), Reason: c.Reason}).Error
	})
}

// ApproveHost approves a proposed host. The approver must not be the proposer,
// whatever the case of their names, unless Options.FourEyesOff.
func (s *Store) ApproveHost(ctx context.Context, host string, c ledger.Change) error {
	c.Action, c.Target = "host_approve", host
	return s.change(ctx, &entry{Change: c}, func(tx *gorm.DB) error {
		row, err := takeHost(tx, host)
		if err != nil {
			return err
		}
		if row.Approver != nil {
			return fault.New(fault.Conflict, "already_approved", "host %s was approved by %s", host, *row.Approver)
		}
		same := strings.EqualFold(row.Proposer, c.By)
		if same && !s.fourEyesOff {
			return fault.New(fault.Denied, "self_approval", "%s proposed host %s; another person must approve it", c.By, host).
				Hintf("they call POST /api/v1/approvals/%s with their own token", host)
		}
		return tx.Model(&hostRow{}).Where("host = ?", host).
			Updates(map[string]any{"approver": c.By, "approved": micros(s.now()), "four_eyes_off": same}).Error
	})
}

// RevokeHost removes a host. Releases that use it stay live; no new one can.
func (s *Store) RevokeHost(ctx context.Context, host string, c ledger.Change) error {
	c.Action, c.Target = "host_revoke", host
	return s.change(ctx, &entry{Change: c}, func(tx *gorm.DB) error {
		if _, err := takeHost(tx, host); err != nil {
			return err
		}
		return tx.Where("host = ?", host).Delete(&hostRow{}).Error
	})
}

// Hosts returns all hosts by name.
func (s *Store) Hosts(ctx context.Context) ([]ledger.Host, error) {
	var rows []hostRow
	err := s.view(ctx, func(tx *gorm.DB) error { return tx.Order("host").Find(&rows).Error })
	list := make([]ledger.Host, len(rows))
	for i, r := range rows {
		list[i] = ledger.Host{Host: r.Host, Proposer: r.Proposer, Proposed: fromMicros(&r.Proposed), Reason: r.Reason,
			Approved: fromMicros(r.Approved), FourEyesOff: r.FourEyesOff}
		if r.Approver != nil {
			list[i].Approver = *r.Approver
		}
		if r.AdoptStream != nil && r.AdoptNumber != nil {
			list[i].Adopted = releaseName(*r.AdoptStream, uint64(*r.AdoptNumber))
		}
	}
	return list, err
}

// ApprovedHosts returns the set of hosts that a new release may use.
func (s *Store) ApprovedHosts(ctx context.Context) (map[string]bool, error) {
	var approved map[string]bool
	err := s.view(ctx, func(tx *gorm.DB) (err error) {
		approved, err = approvedHosts(tx)
		return err
	})
	return approved, err
}

func takeHost(tx *gorm.DB, host string) (hostRow, error) {
	var rows []hostRow
	if err := tx.Where("host = ?", host).Find(&rows).Error; err != nil {
		return hostRow{}, err
	}
	if len(rows) == 0 {
		return hostRow{}, fault.New(fault.NotFound, "unknown_host", "host %s was never proposed", host).
			WithHint("propose it first: POST /api/v1/hosts")
	}
	return rows[0], nil
}

func approvedHosts(tx *gorm.DB) (map[string]bool, error) {
	var names []string
	if err := tx.Model(&hostRow{}).Where("approver IS NOT NULL").Pluck("host", &names).Error; err != nil {
		return nil, err
	}
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set, nil
}

// checkApproved names every host that is not approved.
func checkApproved(tx *gorm.DB, hosts []string) error {
	approved, err := approvedHosts(tx)
	if err != nil {
		return err
	}
	var p fault.Problems
	for _, h := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
		if !approved[h] {
			p = append(p, fault.Problem{Path: h, Detail: "is not approved", Hint: "propose it, then let another person approve it"})
		}
	}
	if len(p) == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Denied, Code: "unapproved_host", Detail: "the release uses hosts that are not approved", Problems: p}
}
