package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/kubebridge/bridge/internal/cli/terminal"
)

// TestNamesForTerminals prints the name of a Role that sets the title of a terminal, in every way.
func TestNamesForTerminals(t *testing.T) {
	const name = "shop/a\x1b]0;owned\x07\u009b2J\x00\r"
	obeyed := func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }
	for how, print := range map[string]func(*bytes.Buffer) error{
		"an error": func(out *bytes.Buffer) error {
			report(out, errors.New("pods does not know "+name+": did you mean "+name+"?"))
			return nil
		},
		"a status": func(out *bytes.Buffer) error { out.WriteString(terminal.OneLine("refused " + name)); return nil },
	} {
		var out bytes.Buffer
		if err := print(&out); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(out.String(), obeyed) || !strings.Contains(out.String(), `shop/a\x1b]0;owned\a`) {
			t.Errorf("%s prints %q", how, out.String())
		}
	}
}
