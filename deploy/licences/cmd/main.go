// Licences checks the licences of what the bridge and bridge-table are compiled of, and writes the
// notices of the bridge. It runs in the directory deploy.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/kubebridge/bridge/deploy/licences"
)

func main() {
	notices := flag.String("notices", "", "write the notices to this file; none: only check")
	flag.Parse()
	if err := run(*notices); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(notices string) error {
	modules, err := licences.Find(context.Background(), "..", "./cmd/bridge", "amd64", "arm64")
	if err != nil {
		return err
	}
	if err := licences.Check(modules); err != nil {
		return err
	}
	ofTable, err := licences.Find(context.Background(), "../table", "./cmd/bridge-table", "amd64", "arm64")
	if err != nil {
		return err
	}
	if err := licences.Check(ofTable); err != nil {
		return err
	}
	fmt.Printf("the licences of %d modules are allowed, and of %d of bridge-table\n", len(modules), len(ofTable))
	if notices == "" {
		return nil
	}
	return os.WriteFile(notices, []byte(licences.Notices(modules)), 0o644)
}
