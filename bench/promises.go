package main

// promises are the limits that the project states for its Go benchmarks. Names
// are those of go test, without the leading Benchmark.
var promises = []promise{
	{"Decide/ids=5k", "ns/op", 1000},
	{"Decide/ids=5M", "ns/op", 1000},
	{"Decide/ids=5k", "allocs/op", 0},
	{"Decide/ids=5M", "allocs/op", 0},
	{"Load/5M/1lists", "B/id", 20},
	{"Import/1M", "ms/op", 500},
	{"Delta/5M/4ids", "ms/op", 10},
	{"Load5M/swap", "ms/op", 10},
	{"ColdStart5M", "ms/op", 2000},
	{"Import1M/sqlite", "s/import", 10},
	{"Import1M/mysql", "s/import", 10},
	{"Pick/1000x200", "ns/op", 200},
	{"Pick/1000x200", "allocs/op", 0},
	{"Pick/services", "ns/op", 200},
	{"Pick/pick", "ns/op", 200},
	{"Pick/pick", "allocs/op", 0},
	{"Pick/nobody", "allocs/op", 0},
	{"Pick1000Over50", "ratio", 2},
	{"CompileService/1000", "ms/compile", 2},
	{"TableMemory", "MB", 8},
	{"Rebuild", "ns/op", 2e6},
	{"ConsulChange", "p99-ms", 300},
}

// proportions are pairs that are promised to stay close.
var proportions = []proportion{
	{"Decide/ids=5M", "Decide/ids=5k", 3},
	{"DecidePlatforms/policies=500", "DecidePlatforms/policies=5", 3},
}
