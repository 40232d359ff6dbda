package nats

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
)

// deadLetterToken stands where events have a field. event.AppendSubjectToken never returns a token
// that begins with "_" for a Kubernetes name, so no event has a dead letter's subject.
const deadLetterToken = "_deadletter"

// parseSubject reads a subject template and checks that it produces valid subjects whatever the
// fields are.
func parseSubject(field, text string) (*event.Template, error) {
	t, err := event.ParseTemplate(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	for token := range strings.SplitSeq(t.Pattern("x", nil, event.AppendSubjectToken), ".") {
		if token == "" {
			return nil, fmt.Errorf("%s %q: has an empty token", field, text)
		}
		if strings.ContainsAny(token, " \t\r\n*>") {
			return nil, fmt.Errorf("%s %q: white space and the wildcards * and > are not allowed",
				field, text)
		}
	}
	if strings.HasPrefix(text, "$") || strings.HasPrefix(text, "_") {
		return nil, fmt.Errorf("%s %q: subjects that begin with $ or _ belong to the server", field,
			text)
	}
	return t, nil
}

// DefaultDeadLetter puts dead letters below the constant beginning of the subject, so that the
// stream holds them too; with several streams, each its own.
func DefaultDeadLetter(subject, stream string) string {
	var constant []string
	for token := range strings.SplitSeq(subject, ".") {
		if strings.Contains(strings.ReplaceAll(token, "{cluster}", ""), "{") {
			break
		}
		constant = append(constant, token)
	}
	token := deadLetterToken
	if len(constant) == 0 { // a subject may not begin with "_"
		token = "deadletter"
	}
	constant = append(constant, token, "{resource}", "{op}")
	if name, err := event.ParseTemplate(stream); err == nil {
		for _, field := range name.Fields() {
			if field = "{" + field + "}"; !slices.Contains(constant, field) {
				constant = append(constant, field)
			}
		}
	}
	return strings.Join(constant, ".")
}

// deriveSubjects sets the stream's subjects, and checks that they cover what will be published.
func (c *Options) deriveSubjects(subject, deadLetter *event.Template) error {
	if strings.Contains(c.Subject, "{cluster}") && c.Cluster == "" {
		return fmt.Errorf("cluster is not set, but subject %q names {cluster}", c.Subject)
	}
	if c.severalStreams() {
		return c.checkStreamTemplate(subject, deadLetter)
	}
	published := c.published(subject, deadLetter, nil)
	if len(c.Stream.Subjects) > 0 {
		if missing := uncovered(c.Stream.Subjects, published); len(missing) > 0 {
			return fmt.Errorf("stream.subjects %v do not cover %v, which will be published: "+
				"add them", c.Stream.Subjects, missing)
		}
		return nil
	}
	constant := constantPrefix(published[0])
	if constant == "" {
		return fmt.Errorf("subject %q begins with a field, so the stream would hold every "+
			"subject of the account: set stream.subjects, or begin with a constant", c.Subject)
	}
	c.Stream.Subjects = []string{constant}
	c.Stream.Subjects = append(c.Stream.Subjects, uncovered(c.Stream.Subjects, published)...)
	return nil
}

// published returns the subjects, with wildcards, of all events with some values known.
func (c *Options) published(subject, deadLetter *event.Template, known map[string]string) []string {
	subjects := []string{c.pattern(subject, known)}
	if deadLetter != nil {
		subjects = append(subjects, c.pattern(deadLetter, known))
	}
	if c.Fence != nil {
		subjects = append(subjects, c.fencePattern(known))
	}
	return subjects
}

// pattern returns the template as a subject with wildcards. A token with a field in it can only be
// matched as a whole.
func (c *Options) pattern(t *event.Template, known map[string]string) string {
	all := map[string]string{"cluster": c.Cluster}
	maps.Copy(all, known)
	token := event.AppendSubjectToken
	if c.Mode == KV {
		token = event.AppendKeyToken
	}
	tokens := strings.Split(t.Pattern("*", all, token), ".")
	for i, token := range tokens {
		if strings.Contains(token, "*") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// pattern is a subject with wildcards for single tokens, in its tokens.
type pattern []string

// patterns returns those of the templates, without those that are nil.
func (c *Options) patterns(templates ...*event.Template) (list []pattern) {
	for _, t := range templates {
		if t != nil {
			list = append(list, strings.Split(c.pattern(t, nil), "."))
		}
	}
	return list
}

// matches reports whether a subject is one of the pattern's.
func (p pattern) matches(subject string) bool {
	i := 0
	for token := range strings.SplitSeq(subject, ".") {
		if i >= len(p) || p[i] != "*" && p[i] != token {
			return false
		}
		i++
	}
	return i == len(p)
}

// publishes reports whether a message on a subject can be the sink's own.
func (s *Sink) publishes(subject string) bool {
	if prefix := s.events.prefix; prefix != "" {
		return strings.HasPrefix(subject, prefix) &&
			!strings.HasPrefix(subject, prefix+fenceToken+".")
	}
	return slices.ContainsFunc(s.ownSubjects, func(p pattern) bool { return p.matches(subject) })
}

// constantPrefix covers everything below the tokens before the first wildcard; "" when there are
// none.
func constantPrefix(pattern string) string {
	before, _, wild := strings.Cut(pattern, "*")
	if !wild || before == "" {
		return before
	}
	return before + ">"
}

// uncovered returns the patterns that no subject covers.
func uncovered(subjects, patterns []string) (missing []string) {
	for _, pattern := range patterns {
		covered := false
		for _, subject := range subjects {
			covered = covered || covers(subject, pattern)
		}
		if !covered {
			missing = append(missing, pattern)
		}
	}
	return missing
}

// covers reports whether every subject that matches pattern matches subject too.
func covers(subject, pattern string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range have {
		switch {
		case i >= len(want):
			return false
		case token == ">":
			return true
		case want[i] == ">":
			return false
		case token != "*" && token != want[i]:
			return false
		}
	}
	return len(have) == len(want)
}
