package config

import (
	"fmt"

	"github.com/kubebridge/bridge/internal/settings"
)

// Warnings returns what a person may not have meant, as Problems: a bridge runs with it all the
// same.
func (c *Config) Warnings() (list []error) {
	ps := &settings.Report{Origins: c.origins}
	for i := range c.Sinks {
		key, _ := c.Sinks[i].Section()
		if remote := c.Sinks[i].remote(); remote != nil {
			remote.Warn(ps, fmt.Sprintf("sinks[%d].%s", i, key))
		}
	}
	for _, p := range ps.List() {
		list = append(list, p)
	}
	return list
}
