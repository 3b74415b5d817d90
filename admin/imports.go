package admin

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/whitelist"
)

// plain is the body, which must not be packed: what unpacks to a thousand times its
// size is refused before anything is unpacked.
func (s *Streamed) plain() (io.Reader, error) {
	if s.encoding != "" && !strings.EqualFold(s.encoding, "identity") {
		return nil, fault.New(fault.Invalid, "bad_encoding", "the body comes with Content-Encoding %s", s.encoding).WithHint("send it unpacked")
	}
	return s.body, nil
}

type importsOutput struct {
	Body struct {
		Imports []actions.ListImport `json:"imports"`
	}
}

func (a *API) imports(ctx context.Context, in *listInput) (*importsOutput, error) {
	waiting, err := a.do.ListImports(ctx, in.List)
	if err != nil {
		return nil, err
	}
	out := &importsOutput{}
	out.Body.Imports = waiting
	return out, nil
}

type applyImportInput struct {
	Keyed
	List string `path:"list"`
	ID   string `path:"id"`
	Body struct {
		Reasoned
		Confirm string `json:"confirm,omitempty" maxLength:"300" example:"staff" doc:"as of an import"`
	}
}

func (a *API) applyImport(ctx context.Context, in *applyImportInput) (*importOutput, error) {
	w := in.by(ctx, in.Body.Reasoned)
	w.Confirm = in.Body.Confirm
	return importedAs(a.do.ApplyImport(ctx, w, in.List, in.ID))
}

func importedAs(out actions.ImportOutcome, err error) (*importOutput, error) {
	if err != nil {
		return nil, err
	}
	return &importOutput{ETag: etag(out.Release), Body: out}, nil
}

type approveImportInput struct {
	Keyed
	List string `path:"list"`
	Body struct {
		Reasoned
		Digest string `json:"digest" minLength:"64" maxLength:"64" doc:"of the import, as who signs saw it"`
	}
}

func (a *API) approveImport(ctx context.Context, in *approveImportInput) (*importOutput, error) {
	return importedAs(a.do.ApproveImport(ctx, in.by(ctx, in.Body.Reasoned), in.List, in.Body.Digest))
}

type withdrawImportInput struct {
	Keyed
	List string `path:"list"`
	ID   string `path:"id"`
	Body Reasoned
}

type withdrawImportOutput struct{ Body actions.ListImport }

func (a *API) withdrawImport(ctx context.Context, in *withdrawImportInput) (*withdrawImportOutput, error) {
	gone, err := a.do.WithdrawImport(ctx, in.by(ctx, in.Body), in.List, in.ID)
	if err != nil {
		return nil, err
	}
	return &withdrawImportOutput{Body: gone}, nil
}

type exportListInput struct {
	List   string `path:"list"`
	Format string `query:"format" enum:"lines,csv" default:"lines" doc:"lines: as an import takes them; csv: safe to open in a spreadsheet"`
}

func (a *API) exportList(ctx context.Context, in *exportListInput) (*huma.StreamResponse, error) {
	export, err := a.do.ExportList(ctx, actorOf(ctx), in.List, whitelist.Format(in.Format))
	if err != nil {
		return nil, err
	}
	kind, name := "text/plain; charset=utf-8", in.List+".txt"
	if in.Format == string(whitelist.CSV) {
		kind, name = "text/csv; charset=utf-8", in.List+".csv"
	}
	return a.download("export-list", kind, name, func(ctx huma.Context) error {
		ctx.SetHeader("X-Count", strconv.Itoa(export.Count))
		return export.Write(ctx.Context(), ctx.BodyWriter())
	}), nil
}

// download streams a file. What breaks off on the way ends the connection, so that
// nobody takes a part for the whole.
func (a *API) download(operation, kind, name string, write func(huma.Context) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", kind)
		ctx.SetHeader("Content-Disposition", `attachment; filename="`+name+`"`)
		if err := write(ctx); err != nil {
			a.refuse(ctx.Context(), operation, err)
			panic(http.ErrAbortHandler)
		}
	}}
}
