package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubebridge/bridge/internal/testkit"
)

var update = flag.Bool("update", false, "write docs/commands.md")

const commandsFile = "../../docs/commands.md"

const commandsHead = `# Commands

<!-- Made of the commands themselves by "go test ./internal/cli -run TestCommandsReference -update".
     Do not edit. -->

Every command prints this text with ` + "`--help`" + `. Flags that name a key set it for this call; see
[where values come from](configuration.md).

`

// TestCommandsReference: docs/commands.md has every command and flag.
func TestCommandsReference(t *testing.T) {
	t.Setenv("BRIDGE_CONFIG", "")
	var out strings.Builder
	out.WriteString(commandsHead)
	writeCommands(&out, newRoot(Build{}))
	if *update {
		testkit.OK(t, os.WriteFile(commandsFile, []byte(out.String()), 0o644))
	}
	text, err := os.ReadFile(commandsFile)
	testkit.OK(t, err)
	if string(text) != out.String() {
		t.Error("docs/commands.md is not what the commands say: run go test ./internal/cli -run TestCommandsReference -update")
	}
}

// writeCommands writes the commands below one, with those below them.
func writeCommands(out *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.Runnable() || c.Long != "" {
			writeCommand(out, c)
		}
		writeCommands(out, c)
	}
}

func writeCommand(out *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(out, "## %s\n\n%s.\n\n```\n%s\n```\n\n", c.CommandPath(), c.Short, strings.TrimSpace(c.UseLine()+"\n\n"+c.Long))
	if c.Example != "" {
		fmt.Fprintf(out, "```\n%s\n```\n\n", c.Example)
	}
	first := true
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if first {
			out.WriteString("| flag | default | meaning |\n| --- | --- | --- |\n")
			first = false
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value := f.DefValue
		if value == "[]" {
			value = ""
		}
		if value != "" {
			value = "`" + value + "`"
		}
		_, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(out, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(usage, "|", `\|`))
	})
	if !first {
		out.WriteString("\n")
	}
}

// TestNamespaceFlag: -n is the namespace in every command, as with kubectl.
func TestNamespaceFlag(t *testing.T) {
	found := 0
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if isNamespace := f.Name == "namespace"; isNamespace != (f.Shorthand == "n") {
				t.Errorf("%s: --%s has the short form %q", c.CommandPath(), f.Name, f.Shorthand)
			} else if isNamespace {
				found++
			}
		})
		for _, below := range c.Commands() {
			look(below)
		}
	}
	look(newRoot(Build{}))
	if found < 5 {
		t.Errorf("only %d commands have --namespace", found)
	}
}

// Help fits into a terminal of 80 columns.
func TestHelpWidth(t *testing.T) {
	seen := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		seen++
		var out strings.Builder
		root := newRoot(Build{})
		root.SetOut(&out)
		root.SetArgs(append(strings.Fields(c.CommandPath())[1:], "--help"))
		testkit.OK(t, root.Execute())
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimRight(line, "\n"); len([]rune(line)) > helpWidth {
				t.Errorf("%s --help: %q has %d columns", c.CommandPath(), line, len(line))
			}
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newRoot(Build{}))
	if seen < 26 {
		t.Errorf("only %d commands", seen)
	}
}
