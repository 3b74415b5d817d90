// Package examples holds configurations that run, each with the tables that it
// names beside it. They are built into the program, so that serve --demo needs
// no file; a test in release parses, checks and compiles every one. The package
// is data: it has no types of its own and starts nothing.
package examples

import "embed"

// Demo is the document that serve --demo publishes; the tables it names lie beside it.
const Demo = "mobile-bank.yaml"

// DemoRegistry is the file of instances that the demo's inner layer follows, and
// DemoRules the folder of rules that it publishes.
const (
	DemoRegistry = "inner/registry.yaml"
	DemoRules    = "rules"
)

// Files are the documents and their tables, instances and rules.
//
//go:embed *.yaml *.csv inner/*.yaml rules/*.yaml
var Files embed.FS
