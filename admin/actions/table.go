package actions

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// MaxTable bounds an address table in bytes: twice the 1.4 million prefixes that
// the whole Internet announces.
const MaxTable = 96 << 20

// TableOutcome is an uploaded address table.
type TableOutcome struct {
	Digest   string   `json:"digest" doc:"write it into the document's table"`
	Prefixes int      `json:"prefixes"`
	Labels   []string `json:"labels"`
}

// UploadTable keeps an address table for documents to name. It changes no answer.
func (a *Actions) UploadTable(ctx context.Context, w Write, key string, body io.Reader) (TableOutcome, error) {
	if err := domain.CheckKey(key); err != nil {
		return TableOutcome{}, err
	}
	data, err := io.ReadAll(io.LimitReader(body, MaxTable+1))
	if err != nil {
		return TableOutcome{}, fault.New(fault.Invalid, "bad_body", "the table did not arrive whole").Because(err)
	}
	if len(data) > MaxTable {
		return TableOutcome{}, fault.New(fault.TooLarge, "table_too_large", "the table has more than %d bytes", MaxTable).
			WithHint("join neighbouring prefixes of one label, or leave out what no rule asks for")
	}
	prefixes, err := policy.ParsePrefixes(bytes.NewReader(data))
	if err != nil {
		return TableOutcome{}, err
	}
	digest := release.DigestOf(data)
	out := TableOutcome{Digest: digest.String(), Prefixes: prefixes.Len(), Labels: prefixes.Labels()}
	return remembered(ctx, a, w, asked{"upload_table", []any{key, digest}}, func(w Write) (TableOutcome, error) {
		if err := a.Ledger.PutBlobs(ctx, slices.Values([]whitelist.Blob{{Digest: digest, Bytes: data}})); err != nil {
			return TableOutcome{}, fmt.Errorf("keep table %s: %w", key, err)
		}
		if err := w.remember(out); err != nil {
			return TableOutcome{}, err
		}
		c := w.change("upload_table", key)
		c.Details = fmt.Appendf(nil, `{"digest":%q,"prefixes":%d}`, digest, prefixes.Len())
		if err := a.Ledger.Record(ctx, c); err != nil {
			return TableOutcome{}, fmt.Errorf("record upload of table %s: %w", key, err)
		}
		return out, nil
	})
}

// table is an uploaded table.
func (a *Actions) table(ctx context.Context, digest release.Digest) (*policy.Prefixes, error) {
	data, err := a.Ledger.Blob(ctx, digest)
	if err != nil {
		return nil, err
	}
	prefixes, err := policy.ParsePrefixes(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", digest, err)
	}
	return prefixes, nil
}
