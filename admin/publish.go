package admin

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// Streamed is a body that is read as it comes, never held by the framework.
type Streamed struct {
	body     io.Reader
	encoding string // of the content; what is packed is not unpacked here
}

// Resolve keeps the reader. huma calls it before the operation.
func (s *Streamed) Resolve(ctx huma.Context) []error {
	s.body, s.encoding = ctx.BodyReader(), ctx.Header("Content-Encoding")
	return nil
}

// ReasonQuery is what every change says about itself. A change whose body is a
// document or a list says it in the query.
type ReasonQuery struct {
	Reason string `query:"reason" required:"true" minLength:"3" maxLength:"500" pattern:"\\S" patternDescription:"more than white space" example:"raise gray" doc:"why; people read it in the audit trail"`
	Key    string `header:"Idempotency-Key" maxLength:"128" doc:"the same key and request within a day give the same answer and change nothing again"`
}

func (w ReasonQuery) by(ctx context.Context) actions.Write {
	return actions.Write{Actor: actorOf(ctx), Reason: w.Reason, Key: w.Key}
}

// outcome is the answer of every change.
type outcome struct {
	ETag string `header:"ETag" doc:"number of the current release, for If-Match"`
	Body actions.Outcome
}

func outcomeOf(o actions.Outcome) *outcome {
	return &outcome{ETag: etag(o.Release), Body: o}
}

// etag is a release number as an entity tag; none for a dry run.
func etag(n uint64) string {
	if n == 0 {
		return ""
	}
	return `"` + strconv.FormatUint(n, 10) + `"`
}

type publishInput struct {
	ReasonQuery
	Streamed
	IfMatch       string `header:"If-Match" example:"412" doc:"number of the release that the document was made from; 0 for the first"`
	File          string `query:"file" maxLength:"200" example:"bank.yaml" doc:"name of the document, for messages"`
	Tables        string `query:"tables" maxLength:"10000" example:"cn-prefixes=5f0c…" doc:"digests of tables that were uploaded for the document, where it states none: KEY=DIGEST, with commas between them"`
	DryRun        bool   `query:"dry_run" doc:"answer the difference, the problems and who would move; change nothing"`
	ReleaseHolds  bool   `query:"release_holds" doc:"let the document undo operational state, such as last night's swap"`
	BigMove       bool   `query:"approve_big_move" doc:"let more than a tenth of an app's users move"`
	RegionRemoved bool   `query:"approve_region_removed" doc:"let a region go"`
	AllowEmpty    bool   `query:"allow_empty" doc:"let an app lose all its policies, or a list all its ids"`
}

func (a *API) publish(ctx context.Context, in *publishInput) (*outcome, error) {
	base, err := ifMatch(in.IfMatch)
	if err != nil {
		return nil, err
	}
	tables, err := tablesOf(in.Tables)
	if err != nil {
		return nil, err
	}
	document, err := io.ReadAll(io.LimitReader(in.body, release.MaxDocument+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_body", "the document did not arrive whole").Because(err)
	}
	out, err := a.do.Publish(ctx, in.by(ctx), actions.Publication{
		File: in.File, Document: document, Base: base, Tables: tables, DryRun: in.DryRun, ReleaseHolds: in.ReleaseHolds,
		BigMove: in.BigMove, RegionRemoved: in.RegionRemoved, AllowEmpty: in.AllowEmpty,
	})
	if err != nil {
		return nil, err
	}
	return outcomeOf(out), nil
}

// tablesOf reads KEY=DIGEST,KEY=DIGEST.
func tablesOf(text string) (map[string]string, error) {
	tables := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, digest, ok := strings.Cut(pair, "=")
		if pair != "" && (!ok || key == "" || digest == "") {
			return nil, fault.New(fault.Invalid, "bad_tables", "%q is not KEY=DIGEST", pair).WithHint("POST /api/v1/tables/KEY answers the digest")
		}
		if pair != "" {
			tables[key] = digest
		}
	}
	return tables, nil
}

// ifMatch reads the number of the release that a change was made from.
func ifMatch(header string) (uint64, error) {
	if header == "" {
		return 0, fault.New(fault.Precondition, "if_match", "If-Match is required").
			WithHint("send the number of the release you started from; GET /api/v1/releases shows the current one, 0 is none yet")
	}
	n, err := strconv.ParseUint(strings.Trim(strings.TrimPrefix(header, "W/"), `"`), 10, 64)
	if err != nil {
		return 0, fault.New(fault.Invalid, "if_match", "If-Match %q is not the number of a release", header)
	}
	return n, nil
}

type releaseListInput struct {
	Before uint64 `query:"before" doc:"only releases below this number"`
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"500"`
}

type releaseListOutput struct {
	ETag string `header:"ETag" doc:"number of the current release"`
	Body struct {
		Current  uint64           `json:"current"`
		Releases []ledger.Summary `json:"releases"`
	}
}

func (a *API) releaseList(ctx context.Context, in *releaseListInput) (*releaseListOutput, error) {
	current, list, err := a.do.Releases(ctx, in.Before, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &releaseListOutput{ETag: etag(current)}
	out.Body.Current, out.Body.Releases = current, list
	return out, nil
}

type releaseInput struct {
	N uint64 `path:"n" doc:"number of a release"`
}

type releaseOutput struct {
	Body struct {
		Manifest  json.RawMessage `json:"manifest" doc:"the exact bytes that are signed"`
		Signature string          `json:"signature"`
	}
}

func (a *API) release(ctx context.Context, in *releaseInput) (*releaseOutput, error) {
	s, err := a.do.Release(ctx, in.N)
	if err != nil {
		return nil, err
	}
	out := &releaseOutput{}
	out.Body.Manifest, out.Body.Signature = s.Manifest, s.Signature
	return out, nil
}

type diffInput struct {
	A uint64 `path:"a"`
	B uint64 `path:"b"`
}

type diffOutput struct {
	Body struct {
		Changes []release.Difference `json:"changes"`
	}
}

func (a *API) diff(ctx context.Context, in *diffInput) (*diffOutput, error) {
	changes, err := a.do.Diff(ctx, in.A, in.B)
	if err != nil {
		return nil, err
	}
	out := &diffOutput{}
	out.Body.Changes = changes
	return out, nil
}
