// Package terminal prints the answers of commands: tables, JSON and YAML, texts that a terminal may
// be given, and lines that are redrawn while a command works. It knows neither commands nor
// configuration.
package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	yaml11 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"
)

// PrintJSON prints a value as a JSON document.
func PrintJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// PrintLine prints a value as one line of JSON.
func PrintLine(w io.Writer, value any) error { return json.NewEncoder(w).Encode(value) }

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

// PrintYAML prints a value as a YAML document, with the names that it has in JSON, in their order.
// kubectl reads YAML 1.1 (sigs.k8s.io/yaml), others read 1.2: both read the value that was printed.
func PrintYAML(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a number stays as it is
	document, err := yamlNode(decoder)
	if err != nil {
		return err
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(document), encoder.Close())
}

// yamlNode reads the next value of a JSON document.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if t == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for d.More() { // names and values of an object alternate
			child, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err := d.Token()
		return n, err
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t, Style: styleOf(t)}, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(t)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}

// longestWord is longer than any text without quotes that YAML 1.1 reads as something else than a
// string, but for numbers.
const longestWord = 64

// styleOf returns how a string is written, so that every reader gets the same string: without
// quotes, as a block of lines, or else in double quotes, which have an escape for everything.
func styleOf(s string) yaml.Style {
	isPlain := func(r rune) bool { return r == '\n' || unicode.IsPrint(r) && r != '\ufeff' }
	switch {
	case s == "" || strings.ContainsFunc(s, func(r rune) bool { return !isPlain(r) }):
		return yaml.DoubleQuotedStyle
	case strings.Contains(s, "\n"):
		// The first line shows how far a block is indented.
		if strings.ContainsAny(s[:1], " \n") || strings.TrimRight(s, "\n ") == "" {
			return yaml.DoubleQuotedStyle
		}
		return yaml.LiteralStyle
	case len(s) > longestWord && strings.ContainsAny(s[:1], "+-.0123456789"):
		return yaml.DoubleQuotedStyle
	case len(s) <= longestWord && !isString(s):
		return yaml.DoubleQuotedStyle
	}
	return 0 // the encoder adds quotes where its own rules ask for them
}

// sexagesimal is 1:20:30, which YAML 1.1 reads as 4830. Our library for it does not.
var sexagesimal = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)

// isString reports whether YAML 1.1 reads a text without quotes as that string.
func isString(s string) bool {
	if s == "=" || s == "<<" || sexagesimal.MatchString(s) {
		return false // = is the default value, << the merge key
	}
	var value any
	return yaml11.Unmarshal([]byte(s), &value) == nil && value == s
}
