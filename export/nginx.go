package export

import (
	"fmt"
	"maps"
	"strings"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// Nginx is a configuration for the http block of nginx, and a file for each list.
// It has maps only: they are evaluated when $dispatch_region is used. nginx has no
// XXH64, so every rule that draws by bucket is asked for. dir is where the lists
// will lie.
func Nginx(a App, dir string) Export {
	a.IDs = maps.Clone(a.IDs)
	for key, ids := range a.IDs {
		if !a.FoldIDs && foldsTogether(ids) { // no map can hold both
			delete(a.IDs, key)
		}
	}
	p := newPlan(a)
	n := &nginx{plan: p, dir: dir}
	n.head()
	var regions []string
	for i := range p.steps {
		regions = append(regions, n.step(i, &p.steps[i]))
	}
	n.mapped(`"$dispatch_asked|`+strings.Join(regions, "|")+`"`, "dispatch_region", Ask, `"~^\|*(?<dispatch_first>[^|]+)" $dispatch_first`)
	out := Export{Files: []File{{a.Rules.App + ".nginx.conf", n.b.String()}}, Notes: p.notes}
	for _, key := range n.lists {
		out.Files = append(out.Files, File{key + ".map", rowsOf(usable(p.IDs[key]))})
	}
	return out
}

// foldsTogether says whether two ids differ in case alone.
func foldsTogether(ids []string) bool {
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		folded := strings.ToLower(id)
		if seen[folded] {
			return true
		}
		seen[folded] = true
	}
	return false
}

// rowsOf is a map from each id to itself.
func rowsOf(ids []string) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%q %q;\n", id, id)
	}
	return b.String()
}

type nginx struct {
	*plan
	dir   string
	b     strings.Builder
	lists []string
}

// mapped writes one map. Sources and variables are ours; values were checked by odd.
func (n *nginx) mapped(from, to, otherwise string, rows ...string) {
	fmt.Fprintf(&n.b, "map %s $%s {\n", from, to)
	for _, row := range rows {
		fmt.Fprintf(&n.b, "  %s;\n", row)
	}
	fmt.Fprintf(&n.b, "  default %s;\n}\n", quoted(otherwise))
}

func quoted(value string) string { return `"` + value + `"` }

// head finds the ids, and asks for every request that has more than headers.
func (n *nginx) head() {
	fmt.Fprintf(&n.b, "# App %s of release %d. Include this in the http block.\n# $dispatch_region is a region, or ask: then dispatch must decide.\n", n.Rules.App, n.Release)
	fmt.Fprintf(&n.b, "map_hash_max_size 262144;\nmap_hash_bucket_size 512;\n")
	var strange []string
	for _, id := range ids {
		from, v := "$http_x_"+id.kind+"_id", "dispatch_"+id.kind
		if id.kind == "user" && !n.OpenUser {
			if n.usesUser() {
				strange = append(strange, from)
			}
			n.mapped(from, v, "")
			continue
		}
		var none []string
		for _, text := range usable(n.Absent) {
			none = append(none, quoted(text)+` ""`)
		}
		n.mapped(from, v, "$http_x_"+id.kind+"_id", none...)
		n.mapped(from, v+"_odd", "", `"~[^`+plain+`]" 1`, fmt.Sprintf(`"~^.{%d}" 1`, whitelist.MaxID+1))
		strange = append(strange, "$"+v+"_odd")
	}
	strange = append(strange, "$http_x_session_token", "$http_x_session_id", "$http_x_forwarded_for", "$http_forwarded", "$http_x_origin_region")
	n.mapped("$request_method$is_args$args", "dispatch_plain", "", `"GET" 1`, quoted("GET?app="+n.Rules.App)+" 1")
	n.mapped(`"$dispatch_plain`+strings.Join(strange, "")+`"`, "dispatch_asked", Ask, `"1" ""`)
}

// step writes one rule and returns its variable: a region, ask, or empty.
func (n *nginx) step(i int, s *step) string {
	fmt.Fprintf(&n.b, "# %s\n", s.name)
	name := fmt.Sprintf("dispatch_rule_%d", i)
	var conditions []string
	for j, c := range s.when {
		conditions = append(conditions, n.condition(fmt.Sprintf("dispatch_%d_%d", i, j), c))
	}
	region := Ask
	to, outright := s.outright()
	switch {
	case s.doubt:
	case outright:
		region = n.region[to]
	case len(s.spans) == 0:
		region = ""
	default:
		n.note("%s draws by bucket, which nginx has no hash for", s.name)
		if !s.split && s.by == policy.ByDevice { // without a device the share passes on
			conditions = append(conditions, n.condition(fmt.Sprintf("dispatch_%d_id", i), condition{kind: "device"}))
		}
	}
	n.mapped(`"`+strings.Join(conditions, "")+`"`, name, "", quoted(strings.Repeat("1", len(conditions)))+" "+quoted(region))
	return "$" + name
}

// condition writes a map that is 1 where the condition holds, and returns its variable.
func (n *nginx) condition(name string, c condition) string {
	yes, no := "1", "0"
	if c.not {
		yes, no = no, yes
	}
	switch c.kind {
	case "device", "user":
		n.mapped("$dispatch_"+c.kind, name, yes, `"" `+no)
	case "cidr":
		fmt.Fprintf(&n.b, "geo $remote_addr $%s {\n  default %s;\n", name, no)
		for _, prefix := range c.values {
			fmt.Fprintf(&n.b, "  %s %s;\n", prefix, yes)
		}
		fmt.Fprintf(&n.b, "}\n")
	case "list":
		// Maps compare without case. So each gives the id that it found, and a second one
		// says whether that is the id.
		same := `"~^(.+)\|\1$"`
		if n.FoldIDs {
			same = `"~*^(.+)\|\1$"`
		}
		var all strings.Builder
		for k, key := range c.values {
			found := fmt.Sprintf("%s_%d", name, k)
			n.lists = appendNew(n.lists, key)
			n.mapped("$dispatch_"+string(n.ListOf[key]), found, "", fmt.Sprintf("include %s/%s.map", n.dir, key))
			n.mapped(`"$dispatch_`+string(n.ListOf[key])+"|$"+found+`"`, found+"_in", "", same+" 1")
			fmt.Fprintf(&all, "$%s_in", found)
		}
		n.mapped(quoted(all.String()), name, yes, `"" `+no)
	default:
		rows := []string{`"" 0`}
		for _, value := range c.values {
			rows = append(rows, quoted(strings.ToLower(value))+" "+yes)
		}
		n.mapped("$http_x_"+c.kind, name, no, rows...)
	}
	return "$" + name
}
