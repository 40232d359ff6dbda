package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ProblemAt is a problem that was found after loading, with a key: it knows where the key is.
func (c *Config) ProblemAt(path, format string, args ...any) error {
	o := c.origins.of(path)
	return &Problem{
		Origin: o.text, Path: path, Message: o.hide(fmt.Sprintf(format, args...)),
		line: o.line,
	}
}

// ProblemsAt are the problems that an error is about a key: one, or none for nil.
func (c *Config) ProblemsAt(path string, err error) []error {
	if err == nil {
		return nil
	}
	return []error{c.ProblemAt(path, "%v", err)}
}

// InOrder sorts errors by where in the file they are; those that are no problems of the file come
// first.
func InOrder(errs []error) []error {
	line := func(err error) int {
		if p, ok := errors.AsType[*Problem](err); ok {
			return p.line
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(errs), func(a, b error) int {
		return cmp.Or(cmp.Compare(line(a), line(b)), strings.Compare(a.Error(), b.Error()))
	})
}
