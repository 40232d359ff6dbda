package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

// pageCommand matches a command of the bridge in a block of a page, with what it runs in.
var pageCommand = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )?(?:kubectl exec \S+ (?:-n \S+ )?-- )?(?:bin/)?bridge (.*)$`)

// commandsOfPage are the commands in the blocks of a page, without comments and what follows a
// pipe.
func commandsOfPage(text string) (commands []string) {
	for i, block := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "```") {
		if i%2 == 0 {
			continue
		}
		for line := range strings.Lines(block) {
			found := pageCommand.FindStringSubmatch(strings.TrimSpace(line))
			if found == nil {
				continue
			}
			command, _, _ := strings.Cut(found[1], " #")
			command, _, _ = strings.Cut(command, " |")
			command, _, _ = strings.Cut(command, " >")
			command, _, _ = strings.Cut(command, " &")
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// TestPageCommands looks up each command of the pages, and its flags. TestReadme and
// TestRunbookCommands carry theirs out.
func TestPageCommands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	testkit.OK(t, err)
	total := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		testkit.OK(t, err)
		for _, command := range commandsOfPage(string(text)) {
			if filepath.Base(page) == "commands.md" {
				continue // made of the commands
			}
			total++
			cmd, args, err := newRoot(Build{}).Find(strings.Fields(command))
			if err == nil {
				cmd.InitDefaultHelpFlag()
				err = cmd.ParseFlags(args)
			}
			if err != nil || cmd.Parent() == nil && !strings.HasPrefix(command, "-") {
				t.Errorf("%s: bridge %s: %v", filepath.Base(page), command, err)
			}
		}
	}
	if total < 30 {
		t.Errorf("only %d commands were found", total)
	}
}
