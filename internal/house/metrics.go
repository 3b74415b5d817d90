package house

import (
	"go/ast"
	"regexp"
	"strings"
)

var (
	metricName = regexp.MustCompile(`^dispatch(_[a-z0-9]+)+$`)
	unitEnd    = regexp.MustCompile(`_(seconds|bytes|ratio|ids|hosts|rows|steps|requests|calls|instances|replicas)$`)
	wrongUnit  = regexp.MustCompile(`_(ms|millis|milliseconds|us|micros|microseconds|ns|nanoseconds|minutes|hours|days|kb|mb|gb|kib|mib|percent|pct)(_|$)`)
)

// idLabels would make a series for every person.
const idLabels = " device device_id user user_id session session_id ip addr address host token "

// metrics holds the naming of Prometheus: dispatch_NOUN_UNIT, base units, _total
// on counters alone, never an id as a label. A function of ours may make metrics
// of one kind; then its callers write the full name.
func metrics(r *Repo) (found []Finding) {
	r.product(func(p *Package, f *File) {
		makers := metricMakers(p)
		var within *ast.FuncDecl
		ast.Inspect(f.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				within = n
			case *ast.CompositeLit:
				if kind := metricKind(n); kind != "" {
					found = append(found, metricOpts(r, n, kind, within)...)
				}
			case *ast.CallExpr:
				found = append(found, metricCall(r, n, makers)...)
			}
			return true
		})
	})
	return found
}

// metricMaker is a function that gives a metric the name in one of its parameters.
type metricMaker struct {
	kind string
	name int
}

func metricMakers(p *Package) map[string]metricMaker {
	makers := map[string]metricMaker{}
	for _, f := range p.Files {
		each(f, func(fn *ast.FuncDecl) {
			ast.Inspect(fn, func(n ast.Node) bool {
				if lit, ok := n.(*ast.CompositeLit); ok && metricKind(lit) != "" {
					if i := parameterIndex(fn, dotted(optsField(lit, "Name"))); i >= 0 {
						makers[fn.Name.Name] = metricMaker{metricKind(lit), i}
					}
				}
				return true
			})
		})
	}
	return makers
}

// parameterIndex is the position of the parameter with this name, -1 if there is none.
func parameterIndex(fn *ast.FuncDecl, name string) int {
	i := 0
	for _, field := range fn.Type.Params.List {
		for _, id := range field.Names {
			if name != "" && id.Name == name {
				return i
			}
			i++
		}
	}
	return -1
}

// metricKind is Counter, Gauge, Histogram or Summary for their options, empty for other literals.
func metricKind(lit *ast.CompositeLit) string {
	switch kind := strings.TrimPrefix(dotted(lit.Type), "prometheus."); kind {
	case "CounterOpts", "GaugeOpts", "HistogramOpts", "SummaryOpts":
		return strings.TrimSuffix(kind, "Opts")
	}
	return ""
}

func optsField(lit *ast.CompositeLit, field string) ast.Expr {
	for _, element := range lit.Elts {
		if kv, ok := element.(*ast.KeyValueExpr); ok && dotted(kv.Key) == field {
			return kv.Value
		}
	}
	return nil
}

// metricOpts checks the options of one metric; within is the function around it.
func metricOpts(r *Repo, lit *ast.CompositeLit, kind string, within *ast.FuncDecl) (found []Finding) {
	var parts []string
	for _, field := range []string{"Namespace", "Subsystem", "Name"} {
		if value := optsField(lit, field); value != nil {
			parts = append(parts, literal(value))
		}
	}
	made := within != nil && parameterIndex(within, dotted(optsField(lit, "Name"))) >= 0
	if problem := metricProblem(strings.Join(parts, "_"), kind); problem != "" && !made {
		found = append(found, r.at(lit, "%s", problem))
	}
	if help := optsField(lit, "Help"); help == nil || dotted(help) == "" && literal(help) == "" && isLiteral(help) {
		found = append(found, r.at(lit, "a metric without Help; say what it counts and what to do when it rises"))
	}
	return found
}

func isLiteral(e ast.Expr) bool {
	_, ok := e.(*ast.BasicLit)
	return ok
}

// metricCall checks a call that makes a metric: its name, and its labels.
func metricCall(r *Repo, call *ast.CallExpr, makers map[string]metricMaker) (found []Finding) {
	name := dotted(call.Fun)
	maker, ours := makers[name[strings.LastIndex(name, ".")+1:]]
	switch {
	case ours && len(call.Args) > maker.name:
		if problem := metricProblem(literal(call.Args[maker.name]), maker.kind); problem != "" {
			found = append(found, r.at(call, "%s", problem))
		}
	case name == "prometheus.NewDesc" && len(call.Args) > 0:
		if problem := metricProblem(literal(call.Args[0]), ""); problem != "" {
			found = append(found, r.at(call, "%s", problem))
		}
	case !strings.HasPrefix(name, "prometheus.New") && !strings.HasPrefix(name, "promauto."):
		return nil
	}
	for _, arg := range call.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok && metricKind(lit) != "" {
				return false
			}
			if e, ok := n.(ast.Expr); ok && literal(e) != "" && strings.Contains(idLabels, " "+literal(e)+" ") {
				found = append(found, r.at(n, "label %s makes a series for every person; count by app, region or reason, and leave ids to the decision log", literal(e)))
			}
			return true
		})
	}
	return found
}

// metricProblem says what is wrong with the full name of a metric, empty if nothing.
func metricProblem(name, kind string) string {
	total := strings.HasSuffix(name, "_total")
	switch {
	case strings.Trim(name, "_") == "":
		return "write a metric's name as a literal, so that it can be found by searching"
	case !metricName.MatchString(name):
		return "metric " + name + " does not read dispatch_noun_unit in lower case"
	case wrongUnit.MatchString(name):
		return "metric " + name + " is not in a base unit; use seconds, bytes or ratio"
	case kind == "Counter" && !total:
		return "counter " + name + " does not end in _total"
	case kind != "Counter" && kind != "" && total:
		return "metric " + name + " ends in _total but is no counter"
	case (kind == "Histogram" || kind == "Summary") && !unitEnd.MatchString(name):
		return "metric " + name + " does not end in its unit, such as _seconds or _bytes"
	}
	return ""
}
