package actions

import (
	"context"
	"slices"

	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/internal/fault"
)

// Inner is the region's directory, which this node keeps.
type Inner interface {
	View() (v *directory.View, changed <-chan struct{})
	Recheck()
}

// Directory is what the registries of the region say now, and what was made of it.
func (a *Actions) Directory(context.Context, Actor) (*directory.View, error) {
	v, err := a.view()
	if err != nil {
		return nil, err
	}
	shown := *v // nobody who reads it has to expect null
	shown.Registries = orNone(v.Registries)
	shown.Services = slices.Clone(orNone(v.Services))
	for i := range shown.Services {
		s := &shown.Services[i]
		s.Instances = slices.Clone(orNone(s.Instances))
		for j := range s.Instances {
			s.Instances[j].Sources = orNone(s.Instances[j].Sources)
		}
	}
	shown.Suspicious, shown.Queue = orNone(v.Suspicious), orNone(v.Queue)
	shown.Isolated, shown.Calls = orNone(v.Isolated), orNone(v.Calls)
	return &shown, nil
}

// view is the directory's newest.
func (a *Actions) view() (*directory.View, error) {
	if a.Inner == nil {
		return nil, fault.New(fault.NotFound, "no_registry", "this node follows no registry").
			WithHint("start control nodes with --registry NAME=URL and --region")
	}
	v, _ := a.Inner.View()
	if v == nil {
		return nil, fault.New(fault.Unavailable, "directory_starting", "the directory has not been drawn yet").
			WithHint("try again in a second")
	}
	return v, nil
}

// away are the registries that the directory does not hear from, and why.
func away(v *directory.View) map[string]string {
	var partial map[string]string
	for _, r := range v.Registries {
		if r.OK {
			continue
		}
		if partial == nil {
			partial = map[string]string{}
		}
		partial[r.Name] = r.Problem
	}
	return partial
}

// orNone is an empty list for none.
func orNone[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
