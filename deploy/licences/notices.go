package licences

import (
	"fmt"
	"strings"
)

const rule = "================================================================================\n"

// Notices is the text that goes with a binary: what it is compiled of, and the licences and notices
// of that. The same modules give the same text.
func Notices(modules []Module) string {
	var out strings.Builder
	out.WriteString("The bridge is compiled of its own code, under the Apache License 2.0, and " +
		"of these modules.\n\n")
	for _, m := range modules {
		fmt.Fprintf(&out, "%-64s %s\n", m.Path+" "+m.Version, strings.Join(m.IDs(), ", "))
	}
	for _, m := range modules {
		for _, f := range m.Files {
			fmt.Fprintf(&out, "\n%s%s %s: %s\n%s\n%s\n", rule, m.Path, m.Version, f.Name, rule,
				strings.TrimSpace(f.Text))
		}
	}
	return out.String()
}
