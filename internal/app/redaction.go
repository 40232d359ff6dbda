package app

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/store"
)

// informerRules returns what an informer keeps back from all its sinks.
func informerRules(inf *config.Informer) (filter.Rules, error) {
	r, err := rules(inf.Operations, inf.Filter)
	if err != nil {
		return r, err
	}
	r.On, r.Heartbeats = inf.ChangedParts, inf.IgnoreHeartbeats
	r.Ignore, err = paths(inf.IgnoreChanges)
	return r, err
}

// rules of operations and an expression, each of which may be left out.
func rules(operations []string, expression string) (r filter.Rules, err error) {
	for _, op := range operations {
		r.Operations = append(r.Operations, event.Op(op))
	}
	if expression != "" {
		r.Expression, err = filter.Compile(expression)
	}
	return r, err
}

func paths(texts []string) ([]resource.Path, error) {
	var paths []resource.Path
	for _, text := range texts {
		p, err := resource.ParsePath(text)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// redaction returns what an informer takes out of its objects, nil for nothing.
func redaction(inf *config.Informer, redactor *resource.Redactor) (*resource.Rules, error) {
	redact, err := paths(inf.Redact)
	if err != nil {
		return nil, err
	}
	drop, err := paths(inf.Drop)
	if err != nil {
		return nil, err
	}
	return resource.NewRules(resource.RulesConfig{
		Redactor: redactor, Redact: redact, Drop: drop,
		Env: inf.RedactEnv,
	})
}

// customAttributes returns the attributes that an informer's events have of their objects, in the
// order of their names.
func customAttributes(attributes map[string]string) ([]event.CustomAttribute, error) {
	var list []event.CustomAttribute
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		p, err := resource.ParsePath(attributes[name])
		if err != nil {
			return nil, err
		}
		list = append(list, event.CustomAttribute{Name: name, Path: p})
	}
	return list, nil
}

// keyFileKey is where the configuration names the key's file.
const keyFileKey = "redaction.keyFile"

// keyFromFile makes the redactor of the configured file; nil where none is configured. Its errors
// have the place in the configuration.
func keyFromFile(c *config.Config) (*resource.Redactor, error) {
	file := c.Redaction.KeyFile
	if file == "" {
		return nil, nil
	}
	key, err := settings.ReadSecret("", file)
	if err != nil {
		remedy := ""
		if errors.Is(err, fs.ErrNotExist) {
			remedy = fmt.Sprintf("; create it once with `openssl rand -hex 32 > %s`, and give "+
				"every replica the same one", file)
		}
		return nil, c.ProblemAt(keyFileKey, "%v%s", err, remedy)
	}
	redactor, err := resource.NewRedactor([]byte(key))
	if err != nil {
		return nil, c.ProblemAt(keyFileKey, "%s: %v", file, err)
	}
	return redactor, nil
}

// redactorOf returns a redactor with the key of the configured file, else of the state directory.
func redactorOf(c *config.Config, db *store.DB) (*resource.Redactor, error) {
	if redactor, err := keyFromFile(c); err != nil || redactor != nil {
		return redactor, err
	}
	key, err := db.Database().Identity().Secret()
	if err != nil {
		return nil, err
	}
	return resource.NewRedactor(key)
}

// forgetOwnKey removes the state directory's own key where the configuration names a file: who
// reads a backup of the directory could guess values with it.
func forgetOwnKey(c *config.Config, db *store.DB) error {
	if c.Redaction.KeyFile == "" {
		return nil
	}
	return db.Database().Identity().ForgetSecret()
}
