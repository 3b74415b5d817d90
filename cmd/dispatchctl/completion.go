package main

import (
	"fmt"
	"os"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run prints what the shell's start-up file has to say; the program itself
// answers the shell, from the same table of commands.
func (c *completionCmd) Run(p *program) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	lines := map[string]string{
		"bash": "complete -C %[1]q dispatchctl\n",
		"zsh":  "autoload -U +X bashcompinit && bashcompinit\ncomplete -o nospace -C %[1]q dispatchctl\n",
		"fish": "complete -c dispatchctl -f -a '(env COMP_LINE=(commandline -cp) COMP_POINT=(string length (commandline -cp)) %[1]q)'\n",
	}
	_, err = fmt.Fprintf(p.out, lines[c.Shell], self)
	return err
}
