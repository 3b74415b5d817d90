package rules

import (
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// Actor is who changes rules.
type Actor struct {
	Name          string // of a token or a login
	Administrator bool   // may change everything
}

// MayChange refuses a change of rules and groups that belong to others: 403
// not_your_group, with every service. Rules of a service in no group are anybody's
// who may change rules at all; that, and the switch, are checked elsewhere. Groups
// belong to their owners; a new one may be made by an owner of any.
func MayChange(actor Actor, before, after Set) error {
	if actor.Administrator {
		return nil
	}
	var p fault.Problems
	refused := map[string]bool{}
	refuse := func(name string, g Group) {
		if !refused[name] {
			p = append(p, fault.Problem{Path: name, Detail: fmt.Sprintf("belongs to the group %s of %s", g.Prefix, strings.Join(g.Owners, ", "))})
		}
		refused[name] = true
	}
	for _, d := range Diff(before, after) {
		switch d.Kind {
		case Switched:
		case Regrouped:
			if why := groupProblem(actor, before, d); why != "" {
				p = append(p, fault.Problem{File: groupsFile, Path: "groups[" + d.Service + "]", Detail: why})
			}
		default:
			if g, ok := before.Owner(d.Service); ok && !slices.Contains(g.Owners, actor.Name) {
				refuse(d.Service, g)
			}
		}
	}
	if len(p) == 0 {
		return nil
	}
	e := fault.New(fault.Denied, "not_your_group", "%s may not change what belongs to others", actor.Name).
		WithHint("an owner applies it, or an administrator; groups.yaml names the owners")
	e.Problems = p
	return e
}

// groupProblem says why the actor may not change a group, empty if they may.
func groupProblem(actor Actor, before Set, d Difference) string {
	if g, ok := byPrefix(before)[d.Service]; ok {
		if slices.Contains(g.Owners, actor.Name) {
			return ""
		}
		return "belongs to " + strings.Join(g.Owners, ", ")
	}
	if slices.ContainsFunc(before.Groups, func(g Group) bool { return slices.Contains(g.Owners, actor.Name) }) {
		return ""
	}
	return "a new group is made by an owner of another, or by an administrator"
}
