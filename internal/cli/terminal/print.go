// Package terminal prints the answers of commands: tables, JSON and YAML, texts that a terminal may
// be given, and lines that are redrawn while a command works. It knows neither commands nor
// configuration.
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// PrintJSON prints a value as a JSON document.
func PrintJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// JSONLine returns a value as one line of JSON.
func JSONLine(value any) ([]byte, error) {
	line, err := json.Marshal(value)
	return append(line, '\n'), err
}

// PrintIndented prints a JSON document with line breaks.
func PrintIndented(w io.Writer, document []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(document), "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(w)
	return err
}

// NewTable aligns columns that tabs separate. Flush prints it, each column as Plain does.
func NewTable(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(plainWriter{w}, 0, 0, 2, ' ', 0)
}

// plainWriter writes what Plain makes of a text.
type plainWriter struct{ io.Writer }

func (w plainWriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(w.Writer, Plain(string(text)))
	return len(text), err
}

// OneLine keeps a table a table.
func OneLine(text string) string { return Plain(strings.Join(strings.Fields(text), " ")) }

// Bytes is "812 B" or "1.2 MiB".
func Bytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, units := float64(n)/(1<<10), "KMGTPE"
	for value >= 1023.95 { // what would be shown as 1024.0
		value, units = value/(1<<10), units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}

// Plain makes visible what a terminal would obey in a text that others have chosen, such as the
// name of a Role: control characters and those that change the direction of the line become \x00 or
// \u202e, as Go's strings have them. Lines and tabs stay.
func Plain(text string) string {
	if strings.IndexFunc(text, isObeyed) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if isObeyed(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// isObeyed reports whether a terminal obeys a character, and does not show it. Cf are the format
// characters of Unicode, among them those of bidirectional text.
func isObeyed(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Cf, r) ||
		r == '\u2028' || r == '\u2029'
}

// Amount is "1 event" or "1,000,000 events".
func Amount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Thousands(n) + " " + what + "s"
}

// Thousands is "1,000,000".
func Thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
