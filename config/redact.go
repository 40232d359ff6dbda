package config

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// String is the whole configuration as YAML, defaults filled in and secrets masked.
func (c *Config) String() string {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(c); err != nil {
		return "configuration: " + err.Error()
	}
	return out.String()
}
