package admin

import (
	"context"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/whitelist"
)

type listsOutput struct {
	Body struct {
		Lists []actions.ListInfo `json:"lists"`
	}
}

func (a *API) lists(ctx context.Context, _ *struct{}) (*listsOutput, error) {
	out := &listsOutput{}
	out.Body.Lists = a.do.Lists()
	return out, nil
}

type listInput struct {
	List string `path:"list" doc:"key of a list"`
}

type listOutput struct{ Body actions.ListInfo }

func (a *API) list(_ context.Context, in *listInput) (*listOutput, error) {
	info, err := a.do.List(in.List)
	if err != nil {
		return nil, err
	}
	return &listOutput{Body: info}, nil
}

type importInput struct {
	ReasonQuery
	Streamed
	List   string `path:"list" doc:"key of a list that the current document names"`
	Format string `query:"format" enum:"lines,csv" doc:"how the ids are written; found out when absent"`
	Column string `query:"column" maxLength:"200" doc:"of a CSV: the column with the ids; id when absent"`
	MaxBad int    `query:"max_bad" minimum:"0" doc:"bad lines that are left out instead of refusing the import"`
	Empty  bool   `query:"allow_empty" doc:"let an import without ids empty the list"`
	DryRun bool   `query:"dry_run" doc:"report only"`
	Keep   bool   `query:"keep" doc:"keep the content instead of using it; POST /api/v1/lists/LIST/imports/ID/apply uses it"`

	Confirm string `query:"confirm" maxLength:"300" example:"staff" doc:"the key of the list, typed by a person, where more ids go than the settings allow one person; with --env the environment and a slash before it"`
}

type importOutput struct {
	ETag string `header:"ETag"`
	Body actions.ImportOutcome
}

func (a *API) importList(ctx context.Context, in *importInput) (*importOutput, error) {
	body, err := in.plain()
	if err != nil {
		return nil, err
	}
	w := in.by(ctx)
	w.Confirm = in.Confirm
	out, err := a.do.ImportList(ctx, w, actions.Import{List: in.List, Body: body, Format: whitelist.Format(in.Format),
		Column: in.Column, MaxBad: in.MaxBad, AllowEmpty: in.Empty, DryRun: in.DryRun, Keep: in.Keep})
	if err != nil {
		return nil, err
	}
	return &importOutput{ETag: etag(out.Release), Body: out}, nil
}

type patchListInput struct {
	Keyed
	List string `path:"list"`
	Body struct {
		Reasoned
		Add    []string `json:"add,omitempty" maxItems:"10000"`
		Remove []string `json:"remove,omitempty" maxItems:"10000"`
		DryRun bool     `json:"dry_run,omitempty"`

		Confirm string `json:"confirm,omitempty" maxLength:"300" example:"staff" doc:"as of an import"`
	}
}

type patchListOutput struct {
	ETag string `header:"ETag"`
	Body actions.PatchOutcome
}

func (a *API) patchList(ctx context.Context, in *patchListInput) (*patchListOutput, error) {
	w := in.by(ctx, in.Body.Reasoned)
	w.Confirm = in.Body.Confirm
	out, err := a.do.PatchList(ctx, w, actions.ListPatch{
		List: in.List, Add: in.Body.Add, Remove: in.Body.Remove, DryRun: in.Body.DryRun,
	})
	if err != nil {
		return nil, err
	}
	return &patchListOutput{ETag: etag(out.Release), Body: out}, nil
}

type containsInput struct {
	List string `path:"list"`
	ID   string `query:"id" required:"true"`
}

type containsOutput struct {
	Body struct {
		Contains bool   `json:"contains"`
		Absent   string `json:"absent,omitempty" doc:"why the id counts as no id at all"`
	}
}

func (a *API) contains(ctx context.Context, in *containsInput) (*containsOutput, error) {
	out := &containsOutput{}
	var err error
	out.Body.Contains, out.Body.Absent, err = a.do.Contains(ctx, actorOf(ctx), in.List, in.ID)
	return out, err
}

type uploadTableInput struct {
	ReasonQuery
	Streamed
	Table string `path:"table" doc:"key of the table"`
}

type uploadTableOutput struct{ Body actions.TableOutcome }

func (a *API) uploadTable(ctx context.Context, in *uploadTableInput) (*uploadTableOutput, error) {
	body, err := in.plain()
	if err != nil {
		return nil, err
	}
	out, err := a.do.UploadTable(ctx, in.by(ctx), in.Table, body)
	if err != nil {
		return nil, err
	}
	return &uploadTableOutput{Body: out}, nil
}
