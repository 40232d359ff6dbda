// Package settings reads a configuration: a struct whose tags say what its keys are called, what
// values they take, and their defaults.
//
// It takes in a YAML file, environment variables and command-line flags. A flag beats a variable, a
// variable beats the file, and the file beats the default. It hands on the struct, where each value
// came from, and all that is wrong, each with its line or its variable and the path of its key. It
// knows no key of the bridge: package config has those, and what they mean together.
//
// Everything runs in the caller's goroutine.
package settings
