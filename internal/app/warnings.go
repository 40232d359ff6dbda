package app

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/resource"
)

// Warnings are what a configuration may say and what is often not meant, each with its place in the
// file. `bridge validate` prints them and `bridge run` logs them.
func Warnings(c *config.Config) []error {
	return slices.Concat(ownKeys(c), kindsNamed(c), c.Warnings())
}

// kindsNamed warns of kinds with credentials that informers name. What `*` selects only the API
// server knows: see kindsServed.
func kindsNamed(c *config.Config) (list []error) {
	for i := range c.Informers {
		inf := &c.Informers[i]
		for _, name := range resource.UnredactedKinds() {
			plural, group, _ := strings.Cut(name, ".")
			if slices.Contains(inf.Resources, name) && !slices.Contains(inf.Exclude, name) {
				list = append(list, kindWarning(c, i, resource.Type{
					Group:    group,
					Resource: plural,
				})...)
			}
		}
	}
	return list
}

// kindsServed warns of kinds with credentials that the API server has and informers select by `*`.
func kindsServed(c *config.Config, selected [][]resource.Type) (list []error) {
	for i, types := range selected {
		for _, t := range types {
			if !slices.Contains(c.Informers[i].Resources, t.String()) {
				list = append(list, kindWarning(c, i, t)...)
			}
		}
	}
	return list
}

// kindWarning is a warning of one kind, or none: where an informer says what becomes of the kind's
// credentials, or that Secrets are sent, its author has decided.
func kindWarning(c *config.Config, informer int, t resource.Type) []error {
	inf := &c.Informers[informer]
	places := resource.Unredacted(t)
	if len(places) == 0 || inf.Secrets == "send" || decided(inf, places) {
		return nil
	}
	return []error{c.ProblemAt(fmt.Sprintf("informers[%d].resources", informer),
		"%s often hold credentials (%s), and these are not redacted: name their paths in redact "+
			"or drop, or exclude the kind", t, listOf(places))}
}

// decided reports whether a path of redact or drop is about one of some places: it leads there, to
// something around it, or into it. A rule for another kind decides nothing.
func decided(inf *config.Informer, places []resource.Path) bool {
	return slices.ContainsFunc(slices.Concat(inf.Redact, inf.Drop), func(text string) bool {
		rule, err := resource.ParsePath(text)
		return err == nil && slices.ContainsFunc(places, rule.Overlaps)
	})
}

func listOf(places []resource.Path) string {
	texts := make([]string, len(places))
	for i, p := range places {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

// ownKeys warns where several processes, or several lives of one, would redact with keys of their
// own.
func ownKeys(c *config.Config) (list []error) {
	if c.Redaction.KeyFile != "" || !slices.ContainsFunc(c.Informers, mayRedact) {
		return nil
	}
	warn := func(is bool, path, who string) {
		if is {
			list = append(list, c.ProblemAt(path, "without redaction.keyFile %s: every redacted "+
				"value would look changed", who))
		}
	}
	warn(c.Standby.Enabled, "standby.enabled", "a replica that takes over has another "+
		"redaction key")
	warn(c.Shard != "", "shard", "each shard has another redaction key, and objects move between "+
		"them when there are more")
	stored := slices.ContainsFunc(c.Sinks, func(s config.Sink) bool { return s.Stdout == nil })
	warn(c.State.Mode == "memory" && stored, "state.mode", "each start has another redaction key")
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

func logWarnings(log *slog.Logger, list []error) {
	for _, warning := range list {
		log.Warn("the configuration may not be what is meant", "warning", warning.Error())
	}
}
