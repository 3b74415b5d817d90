package drills

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// held says which tests hold each row of the requirements: FOLDER TestName. A folder
// that is left out is this one. What is open says so instead of naming a test.
var held = map[string][]string{
	"R1": {"TestR1DeadInstancesAreLeft", "TestR1NeedsOutcomes"},
	"R2": {"TestR2Breaker", "discovery/breaker TestManyAtTheThirtiethSecond"},
	"R3": {"TestR3CallsEndAtTheirCaller", "TestR3NeedsADeadline"},
	"R4": {"TestR4SharesOfAGray"},
	"R5": {"TestR5OneIDStringsFiveServices"},
	"R6": {"TestR6MachinesStopInTurn"},

	"C01": {"TestR1DeadInstancesAreLeft"},
	"C02": {"TestR2Breaker"},
	"C03": {"TestR3CallsEndAtTheirCaller"},
	"C04": {"TestR4SharesOfAGray"},
	"C05": {"TestR5OneIDStringsFiveServices"},
	"C06": {"TestR6MachinesStopInTurn"},
	"C07": {"discovery TestEntryHasItsLease", "discovery TestLeaseSurvivesTwoLostRenewals"},
	"C08": {"discovery TestLostLeaseIsEnteredAgain", "discovery TestEndWhenLost"},
	"C09": {"discovery TestChangesArriveSoon", "TestC23AddressesChangeUnderLoad"},
	"C10": {"TestR1DeadInstancesAreLeft", "discovery/caller TestRefusedIsPutOut"},
	"C11": {"open: etcd is no registry here"},
	"C12": {"discovery TestSource", "discovery TestSeveralChangesAreOneEvent"},
	"C13": {"TestC13PauseRemovesNobody", "discovery TestLeaseSurvivesTwoLostRenewals"},
	"C14": {"discovery TestThreeConsulServers", "TestR6MachinesStopInTurn"},
	"C15": {"discovery TestThreeConsulServers", "discovery TestLeaderIsAskedForOurEntry"},
	"C16": {"discovery/caller TestCostOfEvents"},
	"C17": {"TestR2Breaker"},
	"C18": {"TestEachRowHasItsTest"},
	"C19": {"TestC20HiccupIsNotAmplified", "discovery/httpcall TestHealthWhileADependencyHangs"},
	"C20": {"TestC20HiccupIsNotAmplified"},
	"C21": {"TestC20HiccupIsNotAmplified", "discovery/httpcall TestDegradedValueWhileTheBreakerIsOpen"},
	"C22": {"TestC22NewInstancesGetTheirPart"},
	"C23": {"TestC23AddressesChangeUnderLoad"},
	"C24": {"TestR4SharesOfAGray", "cmd/dispatch/admin TestAVersionGrowsByStepsAndIsTakenBack"},
	"C25": {"discovery/trace TestEveryLineOfAHopHasItsIDs", "e2e/inner TestOneTraceThroughFiveServices"},
	"C26": {"e2e/inner TestOneTraceThroughFiveServices"},

	"A38": {"discovery/caller TestSickVersionLosesItsTraffic"},
	"A39": {"discovery/caller TestFallbackTakesAll", "discovery/caller TestFallbackTakesOver"},
	"A40": {"discovery/caller TestConditionWithHysteresis"},
	"A41": {"TestA41BlackHoledAddress", "discovery/httpcall TestOutcomes"},
	"A42": {"discovery/caller TestRefusedIsPutOut", "discovery/caller TestAllAreBad"},
	"A43": {"discovery/caller TestHeatFollowsRamp"},
	"A44": {"TestA44SickVersionLosesItsTraffic", "discovery/caller TestSickVersionLosesItsTraffic"},
	"A45": {"discovery/httpcall TestPoolsAreRebuiltWhenRulesChange", "discovery/grpccall TestRulesThatChange"},

	"T92":  {"TestT92OutageIsNotAmplified", "TestT92NeedsABudget", "discovery/guard TestTotalOutage"},
	"COST": {"TestCostOfAGuardedCall", "discovery/httpcall TestAllocationsOfAGuardedCall", "discovery/grpccall TestAllocationsOfAGuardedCall"},
}

// C18: every row has a test that exists, and every drill is of a row.
func TestEachRowHasItsTest(t *testing.T) {
	t.Parallel()
	known := map[string]map[string]bool{} // names of tests, by folder
	used := map[string]bool{}
	for _, row := range demanded() {
		if len(held[row]) == 0 {
			t.Errorf("row %s has no test; add it to held", row)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(held)) {
		for _, entry := range held[row] {
			if strings.HasPrefix(entry, "open: ") {
				figure(t, row, "%s", entry)
				continue
			}
			folder, name, elsewhere := strings.Cut(entry, " ")
			if !elsewhere {
				folder, name = "drills", entry
				used[name] = true
			}
			if known[folder] == nil {
				known[folder] = testsIn(t, folder)
			}
			if !known[folder][name] {
				t.Errorf("row %s: folder %s has no %s", row, folder, name)
			}
		}
	}
	for name := range known["drills"] {
		if !used[name] && name != "TestMain" {
			t.Errorf("%s is the drill of no row; add it to held", name)
		}
	}
}

// demanded are the rows that must have a test: C01 to C23, A38 to A45, R1 to R6.
func demanded() (all []string) {
	for _, span := range []struct {
		form     string
		from, to int
	}{{"C%02d", 1, 23}, {"A%d", 38, 45}, {"R%d", 1, 6}} {
		for n := span.from; n <= span.to; n++ {
			all = append(all, fmt.Sprintf(span.form, n))
		}
	}
	return append(all, "T92")
}

// testsIn are the test functions of a folder.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	must(t, err)
	names := map[string]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
