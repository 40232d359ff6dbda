package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// What the linker sets in a release, since the go tool's own facts depend on how the sources came to be there.
var release, revision, revisionTime string

// buildVersion is the facts of the build, from what the go tool writes into every binary.
type buildVersion struct {
	Version  string `json:"version"`            // of the module; "devel" for a build out of a working tree
	Commit   string `json:"commit,omitempty"`   // of the repository
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // whether there were changes beyond the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() buildVersion {
	v := buildVersion{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(release, strings.Trim(info.Main.Version, "()"), v.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	v.Commit, v.Time = cmp.Or(revision, v.Commit), cmp.Or(revisionTime, v.Time)
	return v
}

// String is "bridge v1.2.3 (commit 0123abc of 2026-11-21T10:00:00Z, go1.26.8, linux/amd64)".
func (v buildVersion) String() string {
	var facts []string
	if v.Commit != "" {
		commit := "commit " + v.Commit[:min(len(v.Commit), 12)]
		if v.Modified {
			commit += " with changes"
		}
		facts = append(facts, commit+" of "+v.Time)
	}
	facts = append(facts, v.Go, v.Platform)
	return fmt.Sprintf("bridge %s (%s)", v.Version, strings.Join(facts, ", "))
}

func newVersionCommand() *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  "version prints the version of bridge, the commit that it was built from, and the Go version and platform that it was built for.",
		Example: `  bridge version
  bridge version --output json`,
		Args: cobra.NoArgs,
	}
	outputFlag(cmd, &output, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkOutput(output, "text", "json"); err != nil {
			return err
		}
		if output == "text" {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), readVersion())
			return failed(err)
		}
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		return failed(encoder.Encode(readVersion()))
	}
	return cmd
}

// outputFlag adds --output with its values.
func outputFlag(cmd *cobra.Command, output *string, values ...string) {
	cmd.Flags().StringVarP(output, "output", "o", values[0], "one of "+strings.Join(values, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func checkOutput(output string, values ...string) error {
	if slices.Contains(values, output) {
		return nil
	}
	return fmt.Errorf("--output %q: want one of %s", output, strings.Join(values, ", "))
}
