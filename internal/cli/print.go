package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// outputFlag adds --output with its values.
func outputFlag(cmd *cobra.Command, output *string, values ...string) {
	cmd.Flags().StringVarP(output, "output", "o", values[0], "one of "+strings.Join(values, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values,
		cobra.ShellCompDirectiveNoFileComp))
}

func checkOutput(output string, values ...string) error {
	if slices.Contains(values, output) {
		return nil
	}
	return fmt.Errorf("--output %q: want one of %s", output, strings.Join(values, ", "))
}

// printJSON prints a value as a JSON document.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// marshalLine is a value as one line of JSON.
func marshalLine(value any) ([]byte, error) {
	line, err := json.Marshal(value)
	return append(line, '\n'), err
}

// printYAML prints a value as a YAML document, with the names that it has in JSON.
func printYAML(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var document yaml.Node // JSON is YAML; numbers stay as they are
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	inBlocks(&document)
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(&document), encoder.Close())
}

// inBlocks takes off the braces and quotes of JSON.
func inBlocks(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		inBlocks(child)
	}
}

// printIndented prints a JSON document with line breaks.
func printIndented(w io.Writer, document []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(document), "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(w)
	return err
}

// newTable aligns columns that tabs separate. Flush prints it.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// oneLine keeps a table a table.
func oneLine(text string) string { return plain(strings.Join(strings.Fields(text), " ")) }

// seconds is "0s", "120ms", "3m20s".
func seconds(n float64) string {
	d := time.Duration(n * float64(time.Second))
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// formatBytes is "812 B" or "1.2 MiB".
func formatBytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, units := float64(n)/(1<<10), "KMGTPE"
	for value >= 1023.95 { // what would be shown as 1024.0
		value, units = value/(1<<10), units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}

// plain takes control characters out of a text that others have chosen, such as the name of a Role:
// a terminal would obey them. Lines and tabs stay.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || 0x7f <= r && r <= 0x9f {
			return '?'
		}
		return r
	}, text)
}
