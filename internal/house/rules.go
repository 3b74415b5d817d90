package house

// A rule is one thing that everybody here keeps to.
type rule struct {
	name  string
	check func(*Repo) []Finding
}

// rules is the house. CONTRIBUTING.md gives the reasons.
var rules = []rule{
	{"parse", func(r *Repo) []Finding { return r.Broken }},
	{"imports", imports},
	{"libraries", libraries},
	{"folders", folders},
	{"package comment", packageComments},
	{"doc comment", docComments},
	{"file size", fileSize},
	{"function size", functionSize},
	{"parameters", parameters},
	{"interface size", interfaceSize},
	{"init", noInit},
	{"package variables", packageVariables},
	{"goroutine in New", goroutineInNew},
	{"unbuilt", unbuilt},
	{"exit", exits},
	{"sleep", sleeps},
	{"skip", skips},
	{"error text", errorText},
	{"error wrap", errorWrap},
	{"errors.Is", errorsIs},
	{"metrics", metrics},
	{"sql", mariaDBOnly},
	{"machine words", machineWords},
	{"links", links},
	{"decision records", decisionRecords},
}

// exceptions lets one file or folder pass one rule. Each needs a reason that a
// newcomer can judge; a decision record says more.
var exceptions = []exception{}

type exception struct{ rule, path, why string }
