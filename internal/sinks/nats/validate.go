package nats

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
)

// validate reports everything that is wrong, and sets the subjects.
func (c *Config) validate() (subject, deadLetter *event.Template, err error) {
	if c.Mode == KV {
		subject, err = event.ParseTemplate(c.Subject)
		return subject, nil, errors.Join(err, c.validateBucket(),
			oneOf("encoding", c.Encoding, Binary, Structured), c.Connection.validate(),
			c.Stream.validate())
	}
	subject, subjectErr := parseSubject("subject", c.Subject)
	var deadErr error
	if c.DeadLetter != NoDeadLetter {
		deadLetter, deadErr = parseSubject("deadLetter", c.DeadLetter)
	}
	problems := []error{
		oneOf("mode", c.Mode, JetStream, Core, KV),
		oneOf("encoding", c.Encoding, Binary, Structured),
		subjectErr, deadErr, c.Connection.validate(),
	}
	if strings.ContainsAny(c.Objects.Bucket, " \t\r\n.*>/\\") {
		problems = append(problems, fmt.Errorf("objects.bucket %q: spaces and . * > / \\ are not "+
			"allowed in it", c.Objects.Bucket))
	}
	if c.Mode == JetStream {
		problems = append(problems, c.Stream.validate())
		if subjectErr == nil && deadErr == nil && c.Stream.Manage != Off {
			problems = append(problems, c.deriveSubjects(subject, deadLetter))
		}
	}
	return subject, deadLetter, errors.Join(problems...)
}

func (c *Connection) validate() error { return errors.Join(c.Auth.validate(), c.TLS.validate()) }

func (s *Stream) validate() error {
	var name, age error
	if _, err := event.ParseTemplate(s.Name); err != nil {
		name = fmt.Errorf("stream.name: %w", err)
	} else if strings.ContainsAny(s.Name, " \t\r\n.*>/\\") {
		name = fmt.Errorf("stream.name %q: spaces and . * > / \\ are not allowed in it", s.Name)
	}
	if s.MaxAge > 0 && s.Duplicates > s.MaxAge {
		age = fmt.Errorf("stream.duplicates %v is longer than stream.maxAge %v", s.Duplicates,
			s.MaxAge)
	}
	return errors.Join(name, age,
		oneOf("stream.storage", s.Storage, "file", "memory"),
		oneOf("stream.compression", s.Compression, "s2", "none"),
		oneOf("stream.manage", s.Manage, Create, Verify, Off))
}

func (a *Auth) validate() error {
	ways := 0
	for _, way := range []string{a.CredsFile, a.NKeyFile, a.Token, a.TokenFile, a.User} {
		if way != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("auth: more than one of credsFile, nkeyFile, token, tokenFile and user is set")
	case a.Password != "" && a.User == "":
		return errors.New("auth: password without user")
	default:
		return nil
	}
}

func (t *TLS) validate() error {
	if (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("tls: certFile and keyFile belong together, one of them is not set")
	}
	return nil
}

func oneOf(field, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s %q: want one of %s", field, value, strings.Join(allowed, ", "))
}
