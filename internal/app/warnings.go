package app

import (
	"slices"
	"strings"

	"github.com/kubebridge/bridge/config"
)

// Warnings are what a configuration may say and what is often not meant, each with its place in the
// file. `bridge validate` prints them and `bridge run` logs them.
func Warnings(c *config.Config) (list []error) {
	return ownKeys(c)
}

// ownKeys warns where several processes, or several lives of one, would redact with keys of their own.
func ownKeys(c *config.Config) (list []error) {
	if c.Redaction.KeyFile != "" || !slices.ContainsFunc(c.Informers, mayRedact) {
		return nil
	}
	warn := func(is bool, path, who string) {
		if is {
			list = append(list, c.ProblemAt(path, "without redaction.keyFile %s: every redacted value would look changed", who))
		}
	}
	warn(c.Standby.Enabled, "standby.enabled", "a replica that takes over has another redaction key")
	warn(c.Shard != "", "shard", "each shard has another redaction key, and objects move between them when there are more")
	warn(c.State.Mode == "memory", "state.mode", "each start has another redaction key")
	return list
}

// mayRedact reports whether an informer may meet objects of which it takes values out.
func mayRedact(inf config.Informer) bool {
	if len(inf.Redact) > 0 || inf.RedactEnv {
		return true
	}
	return inf.Secrets != "send" && slices.ContainsFunc(inf.Resources, func(name string) bool {
		return strings.Contains(name, "*") || name == "secrets" || name == "secret"
	})
}
