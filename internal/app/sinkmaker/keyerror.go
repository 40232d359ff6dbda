package sinkmaker

import (
	"errors"
	"fmt"

	"github.com/kubebridge/bridge/config"
)

// keyError is what is wrong with a key of a section: a file that it names can't be used.
type keyError struct {
	key string // below the section
	err error
}

func (e *keyError) Error() string { return e.key + ": " + e.err.Error() }

func (e *keyError) Unwrap() error { return e.err }

// aboutKey is err with the key that it is about; nil for nil.
func aboutKey(key string, err error) error {
	if err == nil {
		return nil
	}
	return &keyError{key, err}
}

// Problems are what is wrong with the sink of a number, each with its place in the file: the
// key's where that is known, else the sink's.
func Problems(c *config.Config, number int, err error) (problems []error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			problems = append(problems, Problems(c, number, one)...)
		}
		return problems
	}
	sink := &c.Sinks[number]
	path := fmt.Sprintf("sinks[%d]", number)
	if about, ok := errors.AsType[*keyError](err); ok {
		return c.ProblemsAt(path+"."+kindOf(sink).key()+"."+about.key, about.err)
	}
	if err != nil {
		err = fmt.Errorf("sink %s: %w", sink.Name, err)
	}
	return c.ProblemsAt(path, err)
}
