package settings

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Node is a configuration as YAML: secrets masked, values that came from variables as the file has
// them, and without the sections that are not there.
func (o Origins) Node(config any) (*yaml.Node, error) {
	var doc yaml.Node
	if err := doc.Encode(config); err != nil {
		return nil, err
	}
	o.restoreReferences(&doc, "")
	dropAbsent(&doc)
	return &doc, nil
}

// restoreReferences writes values that came from variables as the file has them: ${NAME}. A secret
// that is a variable as a whole is shown as that too. Text around a variable may be a part of the
// secret, so then it stays masked.
func (o Origins) restoreReferences(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			o.restoreReferences(n.Content[i+1], Join(path, n.Content[i].Value))
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			o.restoreReferences(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.ScalarNode:
		from := o[path]
		masked := strings.Contains(n.Value, Masked) && onlyVariable.MatchString(from.Reference)
		if from.Value != "" && (n.Value == from.Value || masked) {
			n.SetString(from.Reference)
		}
	}
}

var onlyVariable = regexp.MustCompile(`^\$\{\w+\}$`)

// dropAbsent takes the sections out that are not there: a reader takes the name alone for one with
// defaults.
func dropAbsent(n *yaml.Node) {
	kept := n.Content[:0]
	for i := 0; i < len(n.Content); i++ {
		if n.Kind == yaml.MappingNode {
			key, value := n.Content[i], n.Content[i+1]
			i++
			if isNull(value) {
				continue
			}
			kept = append(kept, key)
		}
		dropAbsent(n.Content[i])
		kept = append(kept, n.Content[i])
	}
	n.Content = kept
}
