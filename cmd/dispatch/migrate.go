package main

import (
	"context"
	"fmt"

	"dispatch.example/dispatch/store"
)

type migrateCmd struct {
	DB string `name:"db" env:"DISPATCH_DB" required:"" placeholder:"sqlite:FILE|mysql:DSN" help:"The database."`
}

// Run takes the steps that the schema lacks. It may be run again, and by several at once.
func (c *migrateCmd) Run(ctx context.Context, out streams) error {
	steps, err := store.Migrate(ctx, c.DB)
	for _, step := range steps {
		fmt.Fprintln(out.out, step)
	}
	if err == nil && len(steps) == 0 {
		fmt.Fprintln(out.out, "nothing to do")
	}
	return err
}
