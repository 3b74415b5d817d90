package actions

import (
	"context"
	"slices"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// Hosts are all hosts that were ever proposed.
func (a *Actions) Hosts(ctx context.Context) ([]ledger.Host, error) { return a.Ledger.Hosts(ctx) }

// ProposeHost registers a host in its normal form. Releases may use it once
// somebody else has approved it.
func (a *Actions) ProposeHost(ctx context.Context, w Write, raw string) (ledger.Host, error) {
	host, err := domain.NormalHost(raw)
	if err != nil {
		return ledger.Host{}, err
	}
	if !a.Suffixes.Allows(host) {
		return ledger.Host{}, fault.New(fault.Invalid, "outside_suffixes", "%s lies outside the allowed suffixes", host).
			Hintf("allowed are %s; only --allowed-suffixes at start changes that", a.Suffixes)
	}
	return a.hostChange(ctx, w, asked{"host_propose", host}, a.Ledger.ProposeHost)
}

// ApproveHost approves a host that somebody else proposed.
func (a *Actions) ApproveHost(ctx context.Context, w Write, raw string) (ledger.Host, error) {
	host, err := domain.NormalHost(raw)
	if err != nil {
		return ledger.Host{}, err
	}
	return a.hostChange(ctx, w, asked{"host_approve", host}, a.Ledger.ApproveHost)
}

// hostChange does what is asked to the host that is its input, and answers the host.
func (a *Actions) hostChange(ctx context.Context, w Write, ask asked, do func(context.Context, string, ledger.Change) error) (ledger.Host, error) {
	host, err := remembered(ctx, a, w, ask, func(w Write) (string, error) {
		host, _ := ask.input.(string)
		if err := w.remember(host); err != nil {
			return "", err
		}
		return host, do(ctx, host, w.change(ask.action, host))
	})
	if err != nil {
		return ledger.Host{}, err
	}
	return a.host(ctx, host)
}

func (a *Actions) host(ctx context.Context, name string) (ledger.Host, error) {
	all, err := a.Ledger.Hosts(ctx)
	if err != nil {
		return ledger.Host{}, err
	}
	i := slices.IndexFunc(all, func(h ledger.Host) bool { return h.Host == name })
	if i < 0 {
		return ledger.Host{}, fault.New(fault.NotFound, "unknown_host", "nobody proposed %s", name)
	}
	return all[i], nil
}
