package settings

import (
	"fmt"
	"strings"
)

// Expand puts the values of environment variables in the place of ${NAME}; $${ is a literal ${.
// What comes out of a variable is never expanded again, nor read as YAML: a password may hold
// anything.
func Expand(text string, lookup func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(literal + "${")
			text = after
			continue
		}
		name, rest, found := strings.Cut(after, "}")
		if !found || !isVariable(name) {
			return "", fmt.Errorf("${ without the name of a variable and }; write $${ for a literal ${")
		}
		value, ok := lookup(name)
		if !ok {
			return "", fmt.Errorf("environment variable %s is not set", name)
		}
		out.WriteString(before + value)
		text = rest
	}
}

func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
