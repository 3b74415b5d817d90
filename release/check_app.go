package release

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

func (k *checker) apps() {
	k.limit("apps", len(k.doc.Apps), MaxApps)
	if len(k.doc.Apps) == 0 {
		k.addHint("apps", "write at least one app", "a release without apps would leave nobody served")
	}
	index, err := k.someLists()
	if err != nil {
		k.addError("lists", err)
	}
	if _, err := whitelist.NewNormalizer(k.doc.AbsentIDs, false); err != nil {
		k.addError("absent_ids", err)
	}
	keys, hosts := k.keys("app"), map[string]string{}
	var defaults []string
	for i := range k.doc.Apps {
		app, path := &k.doc.Apps[i], fmt.Sprintf("apps[%d]", i)
		keys.check(path+".key", app.Key)
		if app.Default {
			defaults = append(defaults, path+".default")
		}
		k.app(path, app)
		k.requestHosts(path, app, hosts)
		k.rules(path, app, index)
		k.ramps(path, app)
	}
	switch {
	case len(defaults) == 0 && len(k.doc.Apps) > 1:
		k.addHint("apps", "write default: true at one", "none of %d apps is the default", len(k.doc.Apps))
	case len(defaults) > 1:
		for _, path := range defaults[1:] {
			k.addHint(path, "keep one", "another app is the default already, at %s", k.at(defaults[0]))
		}
	}
}

// app checks what neither domain nor policy knows of.
func (k *checker) app(path string, app *App) {
	if app.Fallback == "" {
		k.addHint(path+".fallback", "name the host that answers when no region can", "the fallback is missing")
	} else {
		k.host(path+".fallback", app.Fallback)
	}
	k.session(path, app)
	k.word(path+".id_case", app.IDCase, CaseExact, CaseFold)
	k.word(path+".identity.user", app.Identity.User, FromTrustedProxy, FromAnyone)
	k.word(path+".identity.device", app.Identity.Device, FromTrustedProxy, FromAnyone)
	k.limit(path+".policies", len(app.Policies), MaxPolicies)
	k.limit(path+".regions", len(app.Regions), MaxAppRegions)
	for i := range app.Regions {
		at := fmt.Sprintf("%s.regions[%d].endpoints", path, i)
		k.limit(at, len(app.Regions[i].Endpoints), MaxRegionEndpoints)
		for j, e := range app.Regions[i].Endpoints {
			// Its form is domain.Validate's business.
			if normal, err := domain.NormalHost(e.Domain); err == nil && normal == e.Domain {
				k.host(fmt.Sprintf("%s[%d].domain", at, j), e.Domain)
			}
		}
	}
	if len(app.Regions) > 0 && !usable(app.Regions) { // of none at all, policy speaks
		k.addHint(path+".regions", "make a region with a serving endpoint active", "rule last_region: app %s has no usable region", quote(app.Key))
	}
	for key := range app.Salts {
		known := slices.ContainsFunc(app.salts(), func(s salt) bool { return s.path == "salts."+key })
		if !known {
			k.addHint(path+".salts."+key, "write otherwise, failover/REGION or endpoint/REGION; a policy has its own salt",
				"nothing has the salt %s", quote(key))
		}
	}
}

func (k *checker) session(path string, app *App) {
	life := app.Life()
	if life.TTL < MinSessionTTL || life.TTL > MaxSessionTTL {
		k.addHint(path+".session_ttl", "", "%s is not between %s and %s", Duration(life.TTL), Duration(MinSessionTTL), Duration(MaxSessionTTL))
	}
	if life.Max > MaxSessionMax {
		k.addHint(path+".session_max", "", "%s is more than %s", Duration(life.Max), Duration(MaxSessionMax))
	}
	if life.Max < life.TTL {
		k.addHint(path+".session_max", "raise it, or lower session_ttl", "%s is less than session_ttl, %s", Duration(life.Max), Duration(life.TTL))
	}
}

// word checks a word that Parse checks too, for documents that never were text.
func (k *checker) word(path, word string, allowed ...string) {
	if word != "" && !slices.Contains(allowed, word) {
		k.addHint(path, proposal(word, allowed), "%s is not one of %v", quote(word), allowed)
	}
}

// requestHosts checks the hosts by which an app is recognised; each names one app.
func (k *checker) requestHosts(path string, app *App, seen map[string]string) {
	k.limit(path+".hosts", len(app.Hosts), MaxHosts)
	for i, host := range app.Hosts {
		at := fmt.Sprintf("%s.hosts[%d]", path, i)
		if !k.normalHost(at, host) {
			continue
		}
		if first, taken := seen[host]; taken {
			k.addHint(at, "keep one", "host %s is already at %s", host, k.at(first))
			continue
		}
		seen[host] = at
	}
}

// rules lets policy judge the rules, as written and with the operational state.
func (k *checker) rules(path string, app *App, lists *whitelist.Index) {
	var ops Operational
	if k.Operational != nil {
		ops = *k.Operational
	}
	env := policy.Env{Lists: lists, Tables: k.tablesFor(app), Geo: k.Geo}
	table, err := policy.Compile(RulesOf(app, ops), env)
	if err != nil {
		k.reroot(path, err)
	} else {
		for _, w := range table.Warnings() {
			w.Path = join(path, w.Path)
			k.warnings = append(k.warnings, w)
		}
	}
	served := Apply(&Document{Apps: []App{*app}}, ops)[0]
	if reflect.DeepEqual(served.Regions, app.Regions) {
		return
	}
	written := domain.Validate(app.Regions)
	for _, p := range domain.Validate(served.Regions) {
		if !slices.ContainsFunc(written, func(was fault.Problem) bool { return was.String() == p.String() }) {
			k.addHint(join(path, p.Path), p.Hint, "with the changes made by hand: %s", p.Detail)
		}
	}
	if usable(app.Regions) && !usable(served.Regions) {
		k.addHint(path+".regions", "end one of those changes first, or publish with release_holds=true",
			"rule last_region: with the changes made by hand, app %s has no usable region", quote(app.Key))
	}
}

// ramps warns of ramps that do not begin where they are written to.
func (k *checker) ramps(path string, app *App) {
	if k.Now.IsZero() {
		return
	}
	for i := range app.Policies {
		share := app.Policies[i].Then.Share
		if share == nil || share.Ramp == nil {
			continue
		}
		at, r := fmt.Sprintf("%s.policies[%d].then.share.ramp", path, i), share.Ramp
		var before *policy.Policy
		if k.Previous != nil {
			before = k.Previous.app(app.Key).policy(app.Policies[i].Key)
		}
		switch unchanged := before != nil && reflect.DeepEqual(before.Then.Share, share); {
		case !k.Now.Before(r.End):
			k.warnings.Addf(at+".end", "is over: the share is %d; write of: %d", r.To, r.To)
		case unchanged:
		case r.At(k.Now) > r.From:
			k.warnings.Addf(at+".start", "has passed: the share is %d of %d at once", r.At(k.Now), policy.Whole)
		}
	}
}

// reroot adds problems whose paths begin at the app.
func (k *checker) reroot(path string, err error) {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || len(e.Problems) == 0 {
		k.addError(path, err)
		return
	}
	for _, p := range e.Problems {
		p.Path = join(path, p.Path)
		k.problems = append(k.problems, p)
	}
}

// renames refuses a new key for an old thing, as long as that would quietly give
// it a new salt and so move its people.
func (k *checker) renames() {
	if k.Previous == nil {
		return
	}
	for i := range k.doc.Apps {
		app, path := &k.doc.Apps[i], fmt.Sprintf("apps[%d]", i)
		if old := k.Previous.app(app.Key); old != nil {
			k.renamedPolicies(path, old, app)
			continue
		}
		for j := range k.Previous.Apps {
			old := &k.Previous.Apps[j]
			if k.doc.app(old.Key) == nil && reflect.DeepEqual(old.Regions, app.Regions) {
				k.renamedApp(path, old, app)
			}
		}
	}
}

func (k *checker) renamedPolicies(path string, old, app *App) {
	salts, before := app.salts(), old.salts()
	for i := range app.Policies {
		p := &app.Policies[i]
		if old.policy(p.Key) != nil || p.Salt != "" || !salts[i].draws {
			continue
		}
		for j := range old.Policies {
			was := &old.Policies[j]
			if app.policy(was.Key) == nil && reflect.DeepEqual(was.When, p.When) && reflect.DeepEqual(was.Then, p.Then) {
				k.saltMoves(path, salts[i], before[j].in(k.stored(old.Key)))
				break
			}
		}
	}
}

func (k *checker) renamedApp(path string, old, app *App) {
	before := old.salts()
	for _, s := range app.salts() {
		i := slices.IndexFunc(before, func(b salt) bool { return b.key == s.key })
		if s.draws && s.stated == "" && i >= 0 {
			k.saltMoves(path, s, before[i].in(k.stored(old.Key)))
		}
	}
}

func (k *checker) saltMoves(path string, s salt, was string) {
	if was == s.byDefault {
		return
	}
	k.addHint(join(path, s.path), "write "+was+" there to keep people where they are, or "+s.byDefault+" to draw anew",
		"the rename would change the salt from %s to %s", quote(was), quote(s.byDefault))
}

func (k *checker) stored(app string) map[string]string {
	if k.Operational == nil {
		return nil
	}
	return k.Operational.Apps[app].Salts
}
