package config

// ProblemAt is a problem that was found after loading, with a key: it knows where the key is.
func (c *Config) ProblemAt(path, format string, args ...any) error {
	return c.origins.Problem(path, format, args...)
}

// ProblemsAt are the problems that an error is about a key: one, or none for nil.
func (c *Config) ProblemsAt(path string, err error) []error {
	if err == nil {
		return nil
	}
	return []error{c.ProblemAt(path, "%v", err)}
}
