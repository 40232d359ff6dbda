package resource

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// Rules take values out of objects of any kind, before anything else sees them. They are immutable
// and safe for concurrent use.
type Rules struct {
	redactor *Redactor
	redact   *Paths
	drop     *Paths
	env      bool
}

// RulesConfig says what to take out. Neither redact nor drop may reach what identifies an object:
// see CheckRule.
type RulesConfig struct {
	// Redactor makes the fingerprints; required.
	Redactor *Redactor
	// Redact are the paths whose values, whatever kind they are of, are replaced by a fingerprint.
	Redact []Path
	// Drop are the paths whose members or items are cut out.
	Drop []Path
	// Env replaces the values of environment variables of containers whose name or value looks like
	// a secret.
	Env bool
}

// NewRules makes the Rules; nil when there is nothing to take out.
func NewRules(cfg RulesConfig) (*Rules, error) {
	if len(cfg.Redact) == 0 && len(cfg.Drop) == 0 && !cfg.Env {
		return nil, nil
	}
	if cfg.Redactor == nil {
		return nil, errors.New("rules of redaction need a redactor")
	}
	for _, p := range slices.Concat(cfg.Redact, cfg.Drop) {
		if err := CheckRule(p); err != nil {
			return nil, err
		}
	}
	redact := append(copyPaths(), cfg.Redact...)
	return &Rules{
		redactor: cfg.Redactor, redact: NewPaths(redact...), drop: NewPaths(cfg.Drop...),
		env: cfg.Env,
	}, nil
}

// copyPaths lead to the copies of an object in its own annotations: what is taken out of the object
// is in them too.
func copyPaths() []Path {
	var paths []Path
	for _, name := range copiesOfObject {
		paths = append(paths, Path{steps: []step{{name: "metadata"}, {name: "annotations"}, {name: name}}})
	}
	return paths
}

// rules are those of the configuration, and those for the credentials of a kind that is known to
// have some.
func (o *ParseOptions) rules() *Rules {
	if o.Redactor == nil {
		return o.Rules
	}
	known := knownPaths()[groupResource{o.Type.Group, o.Type.Resource}]
	if known == nil {
		return o.Rules
	}
	both := Rules{redactor: o.Redactor, redact: known}
	if o.Rules != nil {
		both = *o.Rules
		both.redact = known.and(o.Rules.redact)
	}
	return &both
}

// Again is for objects that were redacted before, as Redactor.Again is.
func (r *Rules) Again() *Rules {
	if r == nil {
		return nil
	}
	again := *r
	again.redactor = r.redactor.Again()
	return &again
}

// identity is what an object can't do without.
var identity = [][]string{
	{"kind"},
	{"apiVersion"},
	{"metadata", "name"},
	{"metadata", "namespace"},
	{"metadata", "uid"},
	{"metadata", "resourceVersion"},
}

// CheckRule refuses a path that may lead to what identifies an object.
func CheckRule(p Path) error {
	for _, names := range identity {
		if p.Reaches(names...) {
			return fmt.Errorf("path %q reaches %s, which "+
				"every event is made of", p, strings.Join(names, "."))
		}
	}
	return nil
}

// apply makes the object without what the rules take out. What was read of its managedFields stays.
func (r *Rules) apply(obj *Object, t Type) (*Object, error) {
	raw, err := r.rewrite(obj.Raw, r.redactor.of(t, obj.Namespace, obj.Name))
	if err != nil {
		return nil, err
	}
	out, err := Parse(raw, ParseOptions{Type: t})
	if err != nil {
		return nil, fmt.Errorf("%w: what the rules leave of the object: %w", ErrRedact, err)
	}
	out.Writes = obj.Writes.clone() // of managedFields, which are cut by now
	return out, nil
}

// rewrite gives the JSON without what the rules take out, otherwise byte-equal.
func (r *Rules) rewrite(raw []byte, redactor objectRedactor) ([]byte, error) {
	w := rewriter{
		Scanner: jsonscan.Of(raw), raw: raw, redactor: redactor,
		out: make([]byte, 0, len(raw)+len(raw)/8),
	}
	at := place{redact: r.redact, drop: r.drop}
	if r.env {
		at.env = envAnywhere
	}
	w.value(at)
	if err := finish(&w.Scanner); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRedact, err)
	}
	w.copyTo(len(raw))
	return slices.Clip(w.out), nil
}
