package domain

import (
	"fmt"
	"strings"
	"testing"
)

func validRegions() []Region {
	regions := city(Active, Draining)
	for i := range regions {
		regions[i].Endpoints = []Endpoint{{Key: "main", Domain: regions[i].Key + ".bank.example", Cluster: "k1"}}
	}
	return regions
}

func TestValidRegionsHaveNoProblem(t *testing.T) {
	t.Parallel()
	regions := validRegions()
	regions[0].Endpoints = append(regions[0].Endpoints, // several endpoints may share a domain
		Endpoint{Key: "spare", Domain: regions[0].Endpoints[0].Domain, Cluster: "k2", State: Standby})
	if problems := Validate(regions); len(problems) != 0 {
		t.Errorf("problems = %v", problems)
	}
	if problems := Validate(nil); len(problems) != 0 {
		t.Errorf("no regions: problems = %v", problems)
	}
}

func TestValidateNamesEachMistakeAndItsPlace(t *testing.T) {
	t.Parallel()
	weight := func(n int) *int { return &n }
	for name, row := range map[string]struct {
		spoil func([]Region)
		path  string
		says  string
	}{
		"state of a region":      {func(r []Region) { r[1].State = "Active" }, "regions[1].state", "active, draining, off"},
		"state of an endpoint":   {func(r []Region) { r[1].Endpoints[0].State = "up" }, "regions[1].endpoints[0].state", "active, standby, off"},
		"key of a region":        {func(r []Region) { r[1].Key = "hf/1"; r[0].Failover = nil }, "regions[1].key", "'/'"},
		"no key":                 {func(r []Region) { r[1].Key = ""; r[0].Failover = nil }, "regions[1].key", "missing"},
		"key of an endpoint":     {func(r []Region) { r[1].Endpoints[0].Key = "" }, "regions[1].endpoints[0].key", "missing"},
		"cluster":                {func(r []Region) { r[0].Endpoints[0].Cluster = "k 1" }, "regions[0].endpoints[0].cluster", "' '"},
		"negative capacity":      {func(r []Region) { r[0].Capacity = -1 }, "regions[0].capacity", "-1"},
		"too much capacity":      {func(r []Region) { r[0].Capacity = MaxCapacity + 1 }, "regions[0].capacity", "1000001"},
		"negative weight":        {func(r []Region) { r[0].Endpoints[0].Weight = weight(-1) }, "regions[0].endpoints[0].weight", "-1"},
		"too much weight":        {func(r []Region) { r[0].Endpoints[0].Weight = weight(MaxWeight + 1) }, "regions[0].endpoints[0].weight", "10001"},
		"host":                   {func(r []Region) { r[1].Endpoints[0].Domain = "10.0.0.1" }, "regions[1].endpoints[0].domain", "address"},
		"host not in normal":     {func(r []Region) { r[1].Endpoints[0].Domain = "HF.bank.example" }, "regions[1].endpoints[0].domain", "write hf.bank.example"},
		"no host":                {func(r []Region) { r[1].Endpoints[0].Domain = "" }, "regions[1].endpoints[0].domain", "empty"},
		"fails over to itself":   {func(r []Region) { r[1].Failover = []string{"hf"} }, "regions[1].failover[0]", "itself"},
		"fails over to nobody":   {func(r []Region) { r[1].Failover = []string{"sh", "bj"} }, "regions[1].failover[1]", `"bj" is unknown`},
		"fails over twice":       {func(r []Region) { r[1].Failover = []string{"sh", "sh"} }, "regions[1].failover[1]", "regions[1].failover[0]"},
		"active without serving": {func(r []Region) { r[0].Endpoints[0].State = Standby }, "regions[0].endpoints", "none of its endpoints"},
		"active without any":     {func(r []Region) { r[0].Endpoints = nil }, "regions[0].endpoints", "none of its endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			regions := validRegions()
			row.spoil(regions)
			problems := Validate(regions)
			if len(problems) != 1 {
				t.Fatalf("problems = %v, want exactly one", problems)
			}
			if got := problems[0]; got.Path != row.path || !strings.Contains(got.String(), row.says) {
				t.Errorf("problem = %v, want %q at %s", got, row.says, row.path)
			}
		})
	}
}

// e36: names that differ only by case or space are refused, naming both and their places.
func TestValidateFindsLookAlikeKeys(t *testing.T) {
	t.Parallel()
	regions := validRegions()
	regions = append(regions, regions[0])
	regions[2].Key = "SH "
	regions[2].Failover = nil
	regions[2].Endpoints = []Endpoint{
		{Key: "main-1", Domain: "a.bank.example"}, {Key: "main.1", Domain: "b.bank.example"}, {Key: "main-1", Domain: "b.bank.example"},
	}
	var text []string
	for _, p := range Validate(regions) {
		text = append(text, p.String())
	}
	all := strings.Join(text, "\n")
	for _, want := range []string{
		`regions[2].key: region "SH " looks like "sh" at regions[0].key`,
		`regions[2].endpoints[1].key: endpoint "main.1" looks like "main-1" at regions[2].endpoints[0].key`,
		`regions[2].endpoints[2].key: endpoint "main-1" looks like "main-1" at regions[2].endpoints[0].key`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("problems:\n%s\nwant %s", all, want)
		}
	}
}

func TestValidateListsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	negative := -1
	problems := Validate([]Region{{Key: "SH", State: "up", Capacity: -1, Failover: []string{"SH", "x"},
		Endpoints: []Endpoint{{Key: "a b", Domain: "u@x", Cluster: "K", State: "no", Weight: &negative}}}})
	if len(problems) != 10 {
		t.Errorf("%d problems, want 10:\n%v", len(problems), problems)
	}
}

func TestValidateLimitsNumbers(t *testing.T) {
	t.Parallel()
	var regions []Region
	for i := range MaxRegions + 1 {
		regions = append(regions, Region{Key: fmt.Sprintf("r%d", i), State: Off})
	}
	for i := range MaxEndpoints + 1 {
		regions[0].Endpoints = append(regions[0].Endpoints, Endpoint{Key: fmt.Sprintf("e%d", i), Domain: "a.bank.example"})
	}
	if problems := Validate(regions); len(problems) != 2 {
		t.Errorf("problems = %v, want one for the regions and one for the endpoints", problems)
	}
}
