// Package examples holds configurations that run. They are part of the program,
// so that serve --demo needs no file.
package examples

import "embed"

// Demo is the document that serve --demo publishes; the tables it names lie beside it.
const Demo = "mobile-bank.yaml"

// Files are the documents and their tables.
//
//go:embed *.yaml *.csv
var Files embed.FS
