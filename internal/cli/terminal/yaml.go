package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"unicode"

	yaml11 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"
)

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
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: map[bool]string{false: "false", true: "true"}[t]}, nil
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
