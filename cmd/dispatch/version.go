package main

import (
	"errors"
	"fmt"
	"runtime/debug"
)

type versionCmd struct{}

// Run prints the module's version, the commit where the build knows it, and Go's version.
func (versionCmd) Run(out streams) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this program was built without module support and does not know its version")
	}
	commit := ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = " " + s.Value
		}
	}
	fmt.Fprintf(out.out, "dispatch %s%s %s\n", info.Main.Version, commit, info.GoVersion)
	return nil
}
