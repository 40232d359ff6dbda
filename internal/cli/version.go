package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
)

// Build is the facts of a build.
type Build struct {
	// of the module; "devel" for a build out of a working tree
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`   // of the repository
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // whether there were changes beyond the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// complete adds the facts that the go tool writes into every binary to those that are given.
func (b Build) complete() Build {
	b.Go, b.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(b.Version, "devel")
		return b
	}
	b.Version = cmp.Or(b.Version, strings.Trim(info.Main.Version, "()"), "devel")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.time":
			b.Time = cmp.Or(b.Time, s.Value)
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is "bridge v1.2.3 (commit 0123abc of 2026-11-21T10:00:00Z, go1.26.8, linux/amd64)".
func (b Build) String() string {
	var facts []string
	if b.Commit != "" {
		commit := "commit " + b.Commit[:min(len(b.Commit), 12)]
		if b.Modified {
			commit += " with changes"
		}
		facts = append(facts, commit+" of "+b.Time)
	}
	facts = append(facts, b.Go, b.Platform)
	return fmt.Sprintf("bridge %s (%s)", b.Version, strings.Join(facts, ", "))
}

func newVersionCommand(build Build) *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: "version prints the version of bridge, the commit that it was built from, and the " +
			"Go version and platform that it was built for.",
		Example: `  bridge version
  bridge version --output json`,
		Args: cobra.NoArgs,
	}
	OutputFlag(cmd, &output, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := CheckOutput(output, "text", "json", "yaml"); err != nil {
			return err
		}
		switch output {
		case "json":
			return Failed(terminal.PrintJSON(cmd.OutOrStdout(), build))
		case "yaml":
			return Failed(terminal.PrintYAML(cmd.OutOrStdout(), build))
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), build)
		return Failed(err)
	}
	return cmd
}
